//! Where the tokens and the tables of a statement stand in its text, as the tokenizer and the
//! parser that DataFusion uses read it in its default dialect.

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
/// lower case; without those that the statement defines itself by WITH. None of a text that
/// DataFusion can't parse.
#[pyfunction]
pub fn table_references(sql: &str) -> Vec<(usize, usize, Vec<String>)> {
    let found = guarded(|| {
        let mut tables = Tables::default();
        DFParser::parse_sql(sql)?.iter().for_each(|statement| tables.look_at(statement));
        Ok(tables)
    });
    let Ok(Tables { names, defined }) = found else { return Vec::new() };
    let lines = Lines::of(sql);
    let placed = names.iter().filter_map(|name| {
        let parts: Option<Vec<&Ident>> = name.0.iter().map(|part| part.as_ident()).collect();
        let parts = parts?;
        let span: Range<usize> =
            lines.place(parts.first()?.span.start)..lines.place(parts.last()?.span.end);
        let parts: Vec<String> = parts.into_iter().map(normal).collect();
        let own = parts.len() == 1 && defined.contains(&parts[0]);
        (!own).then_some((span.start, span.end, parts))
    });
    placed.collect()
}

fn normal(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_lowercase(),
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
    defined: Vec<String>,
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
        let with = query.with.iter().flat_map(|with| &with.cte_tables);
        self.defined.extend(with.map(|table| normal(&table.alias.name)));
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        self.names.push(relation.clone());
        ControlFlow::Continue(())
    }
}
