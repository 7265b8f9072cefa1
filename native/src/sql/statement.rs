//! A statement: what kind it is, and its parts.

use std::sync::Arc;

use datafusion_common::DataFusionError;
use datafusion_sql::parser::DFParserBuilder;
use datafusion_sql::planner::NullOrdering;
use datafusion_sql::sqlparser::dialect::GenericDialect;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::ParserError;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use pyo3::exceptions::{PyRecursionError, PyValueError};
use pyo3::prelude::*;

use crate::python::errors::guarded;
use crate::sql::distance_orders::{DistanceOrder, DistanceOrders};
use crate::sql::faults::Faults;
use crate::sql::memberships::Misread;
use crate::sql::query::{Past, Search, misread_past, searches, without_past};
use crate::sql::reader::{Parsed, Reader};
use crate::sql::source::Source;
use crate::sql::tables::{Placed, Tables};
use crate::sql::text::Tree;
use crate::sql::tokens::is_blank;
use crate::sql::tree::{Call, Part, Transaction, Variable};

/// A statement.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
pub struct SqlStatement {
    /// Its first keyword in upper case, after a WITH that stands before a change of rows.
    pub word: String,
    /// The text without a semicolon.
    pub part: Part,
    /// The WITH clause of a statement that changes rows, and the names of its queries.
    pub ctes: Option<Part>,
    pub cte_names: Vec<String>,
    /// One of the classes of statements; None for queries and all statements that DataFusion reads.
    pub tree: Option<Py<PyAny>>,
    /// The place of the statement in an EXPLAIN, and whether it has ANALYZE.
    pub explained: usize,
    pub analyzes: bool,
    pub pasts: Vec<Past>,
}

/// The statements of a text for DataFusion, and the places of their tables.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
pub struct SqlQuery {
    /// The tables: the place of each, its name, and whether an alias may follow.
    pub tables: Vec<Placed>,
    pub pasts: Vec<Past>,
    pub searches: Vec<Search>,
    /// The conditions with `[NOT] IN (SELECT ...)` in which DataFusion forgets NULLs.
    pub misread: Vec<String>,
    /// Why the text is refused: clauses that DataFusion ignores or answers wrongly.
    pub refused: Vec<&'static str>,
    /// The places after columns that need an alias.
    pub unnamed: Vec<usize>,
    /// The queries that sort the rows of one table by a distance, and keep the first few.
    pub distance_orders: Vec<DistanceOrder>,
}

const SEVERAL: &str = "give one statement at a time: another one begins after this";
const TOO_NESTED: &str = "this statement is nested deeper than 50 levels, as the parser counts them: \
    simplify it, or take several steps";

pub fn error(source: &Source, tokens: &[TokenWithSpan], error: &ParserError) -> PyErr {
    match error {
        ParserError::RecursionLimitExceeded => PyRecursionError::new_err(TOO_NESTED),
        ParserError::TokenizerError(text) | ParserError::ParserError(text) => {
            match misread_past(source, tokens) {
                Some((message, place)) => PyValueError::new_err((message.to_owned(), place)),
                None => PyValueError::new_err(text.clone()),
            }
        }
    }
}

fn parser_error(error: &DataFusionError) -> ParserError {
    match error {
        DataFusionError::SQL(error, _) => (**error).clone(),
        DataFusionError::Diagnostic(_, inner) | DataFusionError::Context(_, inner) => {
            parser_error(inner)
        }
        other => ParserError::ParserError(other.strip_backtrace()),
    }
}

pub fn query(
    source: &Arc<Source>,
    tokens: Vec<TokenWithSpan>,
    names: &[String],
    null_ordering: NullOrdering,
) -> PyResult<SqlQuery> {
    let searches = searches(source, &tokens, names);
    let whole = tokens.clone();
    let (tokens, pasts) = without_past(source, tokens);
    let parsed = guarded(|| {
        DFParserBuilder::new(tokens).with_dialect(&GenericDialect {}).build()?.parse_statements()
    });
    let statements = parsed.map_err(|failed| error(source, &whole, &parser_error(&failed)))?;
    let tree = Tree::Statements(statements.into());
    let mut tables = Tables::new(source);
    let _ = tree.visit(&mut tables);
    let mut misread = Misread::default();
    let _ = tree.visit(&mut misread);
    let mut faults = Faults::new(source);
    let _ = tree.visit(&mut faults);
    let Faults { refused, unnamed, .. } = faults;
    let mut orders = DistanceOrders::new(source, null_ordering);
    let _ = tree.visit(&mut orders);
    Ok(SqlQuery {
        tables: tables.placed(),
        pasts,
        searches,
        misread: misread.found,
        refused,
        unnamed,
        distance_orders: orders.found,
    })
}

pub fn statement(
    py: Python<'_>,
    source: &Arc<Source>,
    tokens: Vec<TokenWithSpan>,
) -> PyResult<SqlStatement> {
    let whole = tokens.clone();
    let (mut tokens, pasts) = without_past(source, tokens);
    let is_end = |token: &TokenWithSpan| {
        is_blank(token) || token.token == Token::SemiColon || token.token == Token::EOF
    };
    while tokens.last().is_some_and(is_end) {
        tokens.pop();
    }
    let first = tokens.iter().position(|token| !is_end(token)).unwrap_or(tokens.len());
    let tokens = tokens.split_off(first);
    let (Some(first), Some(last)) = (tokens.first(), tokens.last()) else {
        return Err(PyValueError::new_err("there is no statement in the text"));
    };
    if let Some(end) = tokens.iter().find(|token| token.token == Token::SemiColon) {
        return Err(PyValueError::new_err((SEVERAL, source.start(end))));
    }
    let last_past = pasts.iter().map(|past| past.end).max().unwrap_or(0);
    let (start, end) = (source.start(first), source.end(last).max(last_past));
    let mut built = SqlStatement {
        word: match &first.token {
            Token::Word(word) if word.quote_style.is_none() => word.value.to_ascii_uppercase(),
            other => other.to_string(),
        },
        part: Part { text: source.slice(start, end).to_owned(), start, end },
        ctes: None,
        cte_names: Vec::new(),
        tree: None,
        explained: 0,
        analyzes: false,
        pasts,
    };
    let mut reader = Reader::new(Arc::clone(source), tokens);
    reader.pasts = built.pasts.iter().map(|past| (past.after, past.end)).collect();
    built.read(py, &mut reader).map_err(|failed| error(source, &whole, &failed))?;
    Ok(built)
}

/// A tree as an object of Python, unless something follows it.
macro_rules! tree {
    ($self:ident, $py:ident, $reader:ident, $read:expr) => {{
        let tree = $read;
        if !$reader.is_at_token(&Token::EOF) {
            return $reader.expected("the end of the statement");
        }
        $self.tree = Some(object($py, tree)?);
    }};
}

fn object<T: pyo3::PyClass + Into<PyClassInitializer<T>>>(
    py: Python<'_>,
    tree: T,
) -> Parsed<Py<PyAny>> {
    match Py::new(py, tree) {
        Ok(tree) => Ok(tree.into_any()),
        Err(error) => Err(ParserError::ParserError(error.to_string())),
    }
}

impl SqlStatement {
    fn read(&mut self, py: Python<'_>, reader: &mut Reader) -> Parsed<()> {
        if self.word == "WITH" {
            self.read_with(reader)?;
        }
        match self.word.as_str() {
            "DELETE" => tree!(self, py, reader, reader.delete()?),
            "TRUNCATE" => tree!(self, py, reader, reader.truncate()?),
            "UPDATE" => tree!(self, py, reader, reader.update()?),
            "INSERT" | "REPLACE" => tree!(self, py, reader, reader.insert()?),
            "MERGE" => tree!(self, py, reader, reader.merge()?),
            "EXPLAIN" => self.read_explain(reader)?,
            "CALL" => tree!(self, py, reader, reader.call()?),
            "BEGIN" | "START" | "COMMIT" | "END" | "ROLLBACK" => {
                tree!(self, py, reader, reader.transaction()?);
            }
            "CREATE" | "DROP" | "ALTER" => self.read_definition(py, reader)?,
            "SET" | "SHOW" | "RESET" => {
                if let Some(variable) = reader.variable() {
                    tree!(self, py, reader, variable);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// CREATE, DROP or ALTER; the tree is None for a statement that is only DataFusion's.
    fn read_definition(&mut self, py: Python<'_>, reader: &mut Reader) -> Parsed<()> {
        let at = |place: usize, keyword: Keyword| {
            matches!(&reader.parser.peek_nth_token_ref(place).token,
                Token::Word(word) if word.keyword == keyword)
        };
        let creates = self.word == "CREATE";
        let replaces = creates && at(1, Keyword::OR); // OR REPLACE
        let says = |word: Keyword| at(if replaces { 3 } else { 1 }, word);
        if self.word == "ALTER" {
            if says(Keyword::TABLE) {
                tree!(self, py, reader, reader.alter_table()?);
            }
        } else if says(Keyword::INDEX) || says(Keyword::UNIQUE) {
            if creates {
                tree!(self, py, reader, reader.create_index()?);
            } else {
                tree!(self, py, reader, reader.drop_index()?);
            }
        } else if creates && (says(Keyword::TABLE) || says(Keyword::EXTERNAL)) {
            let table = reader.create_table()?;
            self.tree = Some(object(py, table)?);
        } else if let Some(named) = reader.named()? {
            self.tree = Some(object(py, named)?);
        }
        Ok(())
    }

    fn read_explain(&mut self, reader: &mut Reader) -> Parsed<()> {
        reader.parser.expect_keyword(Keyword::EXPLAIN)?;
        loop {
            if reader.takes(&[Keyword::ANALYZE]) {
                self.analyzes = true;
            } else if reader.takes(&[Keyword::FORMAT]) {
                let formats = ["INDENT", "TREE", "PGJSON", "GRAPHVIZ"];
                if !formats.iter().any(|format| reader.takes_word(format)) {
                    return reader.expected("indent, tree, pgjson or graphviz");
                }
            } else if !reader.takes(&[Keyword::VERBOSE]) {
                self.explained = reader.start();
                return Ok(());
            }
        }
    }

    /// The WITH clause of a statement that changes rows; with a query after it nothing is taken.
    fn read_with(&mut self, reader: &mut Reader) -> Parsed<()> {
        let start = reader.start();
        reader.parser.expect_keyword(Keyword::WITH)?;
        reader.takes(&[Keyword::RECURSIVE]);
        let names = reader.list(|reader| {
            let cte = reader.parser.parse_cte()?;
            Ok(reader.source.name(&cte.alias.name))
        })?;
        if let Token::Word(word) = &reader.parser.peek_token_ref().token
            && matches!(
                word.keyword,
                Keyword::DELETE
                    | Keyword::UPDATE
                    | Keyword::INSERT
                    | Keyword::REPLACE
                    | Keyword::MERGE
                    | Keyword::TRUNCATE
            )
        {
            self.word = word.value.to_ascii_uppercase();
            self.ctes = Some(reader.part_from(start));
            self.cte_names = names;
        }
        Ok(())
    }
}

impl Reader {
    fn call(&mut self) -> Parsed<Call> {
        self.parser.expect_keyword(Keyword::CALL)?;
        let name = self.reference()?;
        self.parser.expect_token(&Token::LParen)?;
        let mut arguments = Vec::new();
        if !self.is_at_token(&Token::RParen) {
            arguments = self.list(|reader| {
                let mut name = String::new();
                if reader.parser.peek_nth_token_ref(1).token == Token::RArrow {
                    name = reader.name()?;
                    reader.parser.expect_token(&Token::RArrow)?;
                }
                Ok((name, reader.expression()?))
            })?;
        }
        self.parser.expect_token(&Token::RParen)?;
        Ok(Call { name, arguments })
    }

    /// The start or the end of a transaction.
    fn transaction(&mut self) -> Parsed<Transaction> {
        let starts = self.takes(&[Keyword::START]);
        if starts || self.takes(&[Keyword::BEGIN]) {
            if starts {
                self.parser.expect_keyword(Keyword::TRANSACTION)?;
            } else {
                self.takes_transaction();
            }
            return self.modes();
        }
        let action = if self.takes(&[Keyword::ROLLBACK]) { "ROLLBACK" } else { "COMMIT" };
        if action == "COMMIT" {
            self.parser.advance_token(); // or END
        }
        self.takes_transaction();
        Ok(Transaction { action, level: None, reads_only: false })
    }

    /// The modes of a transaction after BEGIN: its isolation level, READ ONLY and READ WRITE.
    fn modes(&mut self) -> Parsed<Transaction> {
        let (mut level, mut reads_only) = (None, false);
        while !self.is_at_token(&Token::EOF) {
            if self.takes(&[Keyword::READ]) {
                reads_only = self.takes(&[Keyword::ONLY]);
                if !reads_only && !self.takes(&[Keyword::WRITE]) {
                    return self.expected("ONLY or WRITE");
                }
            } else {
                match self.isolation_level()? {
                    None => break,
                    found => level = found,
                }
            }
            let _ = self.parser.consume_token(&Token::Comma);
        }
        Ok(Transaction { action: "BEGIN", level, reads_only })
    }

    fn takes_transaction(&mut self) -> bool {
        self.takes(&[Keyword::TRANSACTION]) || self.takes(&[Keyword::WORK])
    }

    fn isolation_level(&mut self) -> Parsed<Option<&'static str>> {
        if !self.takes(&[Keyword::ISOLATION, Keyword::LEVEL]) {
            return Ok(None);
        }
        if self.takes(&[Keyword::SERIALIZABLE]) {
            return Ok(Some("serializable"));
        }
        if self.takes(&[Keyword::SNAPSHOT]) || self.takes(&[Keyword::REPEATABLE, Keyword::READ]) {
            return Ok(Some("snapshot"));
        }
        self.expected("SERIALIZABLE, SNAPSHOT or REPEATABLE READ")
    }

    /// `SET name = value`, `SHOW name` or `RESET name`; None for another form.
    fn variable(&mut self) -> Option<Variable> {
        let sets = self.is_at(Keyword::SET);
        self.parser.advance_token();
        let name = self.reference().ok()?;
        if !sets {
            return self.is_at_token(&Token::EOF).then_some(Variable { name, value: None });
        }
        if !self.parser.consume_token(&Token::Eq) && !self.takes(&[Keyword::TO]) {
            return None;
        }
        let value = match self.parser.next_token().token {
            Token::SingleQuotedString(text) => text,
            Token::Word(word) => word.value,
            _ => return None,
        };
        self.is_at_token(&Token::EOF).then_some(Variable { name, value: Some(value) })
    }
}
