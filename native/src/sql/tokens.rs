//! Where the tokens and the tables of a statement stand in its text, as the tokenizer and the
//! parser that DataFusion uses read it in its default dialect.

use std::collections::HashMap;
use std::ops::{ControlFlow, Range};

use datafusion_sql::parser::{CopyToSource, DFParser, Statement};
use datafusion_sql::sqlparser::ast::{Ident, ObjectName, Query, Visit, Visitor};
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::tokenizer::{Location, Token, Tokenizer};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::python::errors::guarded;

/// (kind, value, start, end): the places are those of characters in the text.
type Found = (&'static str, String, usize, usize);

/// The tokens of a text, without blanks and comments.
///
/// Kinds are "word" (keyword or name), "quoted" (name in quotes), "string", "number",
/// "placeholder" and "symbol". Raises ValueError, with the place, for a quote or comment that does
/// not end.
#[pyfunction]
pub fn sql_tokens(sql: &str) -> PyResult<Vec<Found>> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql)
        .tokenize_with_location()
        .map_err(|error| PyValueError::new_err(error.to_string()))?;
    let lines = Lines::of(sql);
    let placed = tokens.into_iter().filter_map(|one| {
        let (kind, value) = named(one.token)?;
        Some((kind, value, lines.place(one.span.start), lines.place(one.span.end)))
    });
    Ok(placed.collect())
}

/// Where the names of tables stand in a statement, and their parts, those that are not quoted in
/// lower case; without those that stand for a query of a WITH. None for a text that DataFusion
/// can't parse in its default dialect and depth.
#[pyfunction]
pub fn table_references(sql: &str) -> Option<Vec<(usize, usize, Vec<String>)>> {
    let found = guarded(|| {
        let mut tables = Tables::default();
        DFParser::parse_sql(sql)?.iter().for_each(|statement| tables.look_at(statement));
        Ok(tables.names)
    });
    let lines = Lines::of(sql);
    let placed = found.ok()?.into_iter().filter_map(|name| {
        let parts: Option<Vec<&Ident>> = name.0.iter().map(|part| part.as_ident()).collect();
        let parts = parts?;
        let span: Range<usize> =
            lines.place(parts.first()?.span.start)..lines.place(parts.last()?.span.end);
        Some((span.start, span.end, parts.into_iter().map(normal).collect()))
    });
    Some(placed.collect())
}

/// A name as the session looks it up.
pub fn normal(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}

fn named(token: Token) -> Option<(&'static str, String)> {
    Some(match token {
        Token::EOF | Token::Whitespace(_) => return None,
        Token::Word(word) if word.quote_style.is_some() => ("quoted", word.value),
        Token::Word(word) => ("word", word.value),
        Token::Number(digits, _) => ("number", digits),
        Token::Placeholder(name) => ("placeholder", name),
        Token::SingleQuotedString(text)
        | Token::EscapedStringLiteral(text)
        | Token::NationalStringLiteral(text)
        | Token::UnicodeStringLiteral(text) => ("string", text),
        Token::DollarQuotedString(text) => ("string", text.value),
        other => ("symbol", other.to_string()),
    })
}

/// Where the lines of a text begin, in characters.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        let ends = text.chars().enumerate().filter(|(_, one)| *one == '\n');
        Self(std::iter::once(0).chain(ends.map(|(place, _)| place + 1)).collect())
    }

    fn place(&self, at: Location) -> usize {
        let line = usize::try_from(at.line).unwrap_or(1).clamp(1, self.0.len());
        self.0[line - 1] + usize::try_from(at.column).unwrap_or(1).saturating_sub(1)
    }
}

#[derive(Default)]
struct Tables {
    names: Vec<ObjectName>,
    /// The queries of WITH that a name may stand for where the visit is.
    visible: Vec<String>,
    /// How many were visible where each query around that place begins.
    before: Vec<usize>,
    /// The name of each query of a WITH, by its address, and whether it sees itself.
    defined: HashMap<*const Query, (String, bool)>,
}

impl Tables {
    fn look_at(&mut self, statement: &Statement) {
        match statement {
            Statement::Statement(inner) => {
                let _ = inner.visit(self);
            }
            Statement::Explain(explained) => self.look_at(&explained.statement),
            Statement::CopyTo(copy) => match &copy.source {
                CopyToSource::Query(query) => {
                    let _ = query.visit(self);
                }
                CopyToSource::Relation(name) => self.names.push(name.clone()),
            },
            _ => {}
        }
    }
}

impl Visitor for Tables {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.before.push(self.visible.len());
        if let Some((name, true)) = self.defined.get(&std::ptr::from_ref(query)) {
            self.visible.push(name.clone());
        }
        let tables = query
            .with
            .iter()
            .flat_map(|with| with.cte_tables.iter().map(|table| (table, with.recursive)));
        self.defined.extend(tables.map(|(table, recursive)| {
            (std::ptr::from_ref(table.query.as_ref()), (normal(&table.alias.name), recursive))
        }));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.visible.truncate(self.before.pop().unwrap_or_default());
        if let Some((name, _)) = self.defined.remove(&std::ptr::from_ref(query)) {
            self.visible.push(name); // for the queries after it, and the one that has the WITH
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let lone = match relation.0.as_slice() {
            [part] => part.as_ident().map(normal),
            _ => None,
        };
        if lone.is_none_or(|name| !self.visible.contains(&name)) {
            self.names.push(relation.clone());
        }
        ControlFlow::Continue(())
    }
}
