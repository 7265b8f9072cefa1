//! Reads statements that create, change and drop tables and indexes.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::{Location, Token};
use pyo3::prelude::*;

use crate::sql::changes::kind;
use crate::sql::reader::{Parsed, Reader};
use crate::sql::tree::{Expression, Part, Reference, shown};

shown!(AlterTable, CreateIndex, CreateTable, DropIndex, Named);

/// An element of a list of columns: a column, or `PRIMARY KEY (columns)`, which has no name.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Column {
    pub start: usize,
    pub name: Option<String>,
    /// The type and NOT NULL.
    pub kind: String,
    /// The columns of its primary key.
    pub key: Vec<String>,
    /// The constant after DEFAULT.
    pub default: Option<Part>,
}

/// A text in quotes, or the name of a parameter.
pub type Literal = (String, bool);

/// CREATE TABLE. `location`, `options` and their values are texts or parameters; `error` is a
/// clause that no table of this package has, and its place.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug, Default)]
pub struct CreateTable {
    pub replaces: bool,
    pub is_external: bool,
    pub lenient: bool,
    pub name: Option<Reference>,
    pub columns: Vec<Column>,
    pub columns_start: usize,
    /// Whether it says `USING memwal`, `STORED AS MEMWAL` or, unless it is external, LOCATION.
    pub is_ours: bool,
    /// The place of PRIMARY KEY among the columns.
    pub key_start: Option<usize>,
    pub regions: Option<String>,
    pub location: Option<Literal>,
    pub options: Vec<(String, Literal, usize)>,
    pub query: Option<Part>,
    pub error: Option<(String, usize)>,
}

/// CREATE or DROP of a schema or a view, or the name of a table to drop.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Named {
    /// "SCHEMA", "VIEW" or "TABLE".
    pub kind: &'static str,
    pub lenient: bool,
    pub name: Reference,
    /// The place of further tokens, if any.
    pub rest: Option<usize>,
}

#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct CreateIndex {
    pub replaces: bool,
    pub lenient: bool,
    pub name: Option<String>,
    pub table: Reference,
    pub kind: Option<String>,
    pub columns: Vec<Reference>,
    pub options: Vec<(String, Expression)>,
}

#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct DropIndex {
    pub lenient: bool,
    pub name: String,
    pub table: Reference,
}

#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct AlterTable {
    pub lenient: bool,
    pub table: Reference,
    pub changes: Vec<Alteration>,
}

/// A change of a table. `action` is "ADD", "DROP", "RENAME", "DROP NOT NULL", "SET NOT NULL", "SET
/// TYPE", whose type is that of the only one of `columns`, "SET DEFAULT" or "DROP DEFAULT".
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Alteration {
    pub start: usize,
    pub action: &'static str,
    pub lenient: bool,
    pub columns: Vec<Column>,
    pub column: Option<Reference>,
    pub new_name: Option<String>,
    pub value: Option<Part>,
}

const BY_WRITERS: &str = ": every row must come with its key";
const REFUSED: [(&str, &str); 13] = [
    ("UNIQUE", ": only the primary key is unique"),
    ("CHECK", ""),
    ("REFERENCES", ""),
    ("GENERATED", BY_WRITERS),
    ("AS", ""),
    ("COLLATE", ""),
    ("COMMENT", ""),
    ("AUTO_INCREMENT", BY_WRITERS),
    ("AUTOINCREMENT", BY_WRITERS),
    ("IDENTITY", BY_WRITERS),
    ("SERIAL", BY_WRITERS),
    ("BIGSERIAL", BY_WRITERS),
    ("SMALLSERIAL", BY_WRITERS),
];
/// The types whose numbers in parentheses count; DataFusion ignores those of other types.
const MEASURED: [&str; 4] = ["DECIMAL", "NUMERIC", "TIMESTAMP", "TIMESTAMPTZ"];

const IF_EXISTS: [Keyword; 2] = [Keyword::IF, Keyword::EXISTS];
const IF_NOT_EXISTS: [Keyword; 3] = [Keyword::IF, Keyword::NOT, Keyword::EXISTS];

impl Reader {
    /// A column, `PRIMARY KEY (columns)`, or an error for another constraint.
    fn column(&mut self) -> Parsed<Column> {
        let start = self.start();
        let is_named = self.takes(&[Keyword::CONSTRAINT]);
        if is_named {
            self.name()?;
        }
        if self.is_at(Keyword::PRIMARY) && self.takes(&[Keyword::PRIMARY, Keyword::KEY]) {
            self.parser.expect_token(&Token::LParen)?;
            let key = self.list(Self::name)?;
            self.parser.expect_token(&Token::RParen)?;
            return Ok(Column { start, name: None, kind: String::new(), key, default: None });
        }
        let opens = self.parser.peek_nth_token_ref(1).token == Token::LParen;
        let is_constraint = match &self.parser.peek_token_ref().token {
            Token::Word(word) => match word.keyword {
                Keyword::UNIQUE | Keyword::CHECK | Keyword::EXCLUDE => opens,
                Keyword::FOREIGN => true,
                _ => false,
            },
            _ => false,
        };
        if is_named || is_constraint {
            return self.refused("this constraint is not supported");
        }
        let name = self.name()?;
        let mut kind = self.data_type()?;
        let mut key = Vec::new();
        let mut default = None;
        loop {
            if self.takes(&[Keyword::NOT, Keyword::NULL]) {
                kind.push_str(" NOT NULL");
            } else if self.takes(&[Keyword::PRIMARY, Keyword::KEY]) {
                key.push(name.clone());
            } else if default.is_none() && self.takes(&[Keyword::DEFAULT]) {
                default = Some(self.constant()?);
            } else if !self.takes(&[Keyword::NULL]) {
                self.refuse_options()?;
                return Ok(Column { start, name: Some(name), kind, key, default });
            }
        }
    }

    fn data_type(&mut self) -> Parsed<String> {
        let start = self.start();
        self.refuse_options()?;
        self.parser.parse_data_type()?;
        self.refuse_length(start)?;
        Ok(self.part_from(start).text)
    }

    /// A literal, as a default is the same value for every row.
    fn constant(&mut self) -> Parsed<Part> {
        let before = self.parser.index();
        let expression = self.expression_by(Parser::parse_prefix)?;
        if kind(&expression.expr).is_none() {
            self.back_to(before);
            return self.refused("a default is a constant, such as 0, 'x' or DATE '2026-01-31'");
        }
        Ok(expression.part)
    }

    /// Constraints of other databases after a column's name.
    fn refuse_options(&self) -> Parsed<()> {
        for (word, remedy) in REFUSED {
            if self.is_at_word(word) {
                return self.refused(&format!("{word} is not supported{remedy}"));
            }
        }
        Ok(())
    }

    /// An error for a length that DataFusion would forget, in the type that was taken last.
    fn refuse_length(&self, start: usize) -> Parsed<()> {
        let last = self.parser.index();
        for index in 0..last {
            let token = self.parser.token_at(index);
            let Token::Word(word) = &token.token else { continue };
            if self.source.start(token) < start || word.quote_style.is_some() {
                continue;
            }
            let name = word.value.to_ascii_uppercase();
            let opens = self.parser.token_at(index + 1).token == Token::LParen;
            if !opens || MEASURED.contains(&name.as_str()) {
                continue;
            }
            let length = self.parser.token_at(index + 2).token.to_string();
            let message = match name.as_str() {
                "VECTOR" => format!("a vector is a list of fixed length: write FLOAT[{length}]"),
                _ => "the length would be ignored: write TEXT, or leave the length out".to_owned(),
            };
            return Err(ParserError::ParserError(format!("{message}{}", token.span.start)));
        }
        Ok(())
    }

    fn columns(&mut self) -> Parsed<Vec<Column>> {
        self.parser.expect_token(&Token::LParen)?;
        let columns = self.list(Self::column)?;
        self.parser.expect_token(&Token::RParen)?;
        Ok(columns)
    }

    /// The text from the opening parenthesis at this token to the one that closes it.
    fn skip_parentheses(&mut self) -> Parsed<Part> {
        self.parser.expect_token(&Token::LParen)?;
        let start = self.start();
        let mut part = self.part_from(start);
        let mut open = 1;
        loop {
            match self.parser.next_token().token {
                Token::LParen => open += 1,
                Token::RParen => open -= 1,
                Token::EOF => return self.expected(")"),
                _ => {}
            }
            if open == 0 {
                return Ok(part);
            }
            part = self.part_from(start);
        }
    }

    pub fn create_table(&mut self) -> Parsed<CreateTable> {
        self.parser.expect_keyword(Keyword::CREATE)?;
        let mut table = CreateTable {
            replaces: self.takes(&[Keyword::OR, Keyword::REPLACE]),
            is_external: self.takes(&[Keyword::EXTERNAL]),
            ..CreateTable::default()
        };
        self.parser.expect_keyword(Keyword::TABLE)?;
        table.lenient = self.takes(&IF_NOT_EXISTS);
        table.name = Some(self.reference()?);
        table.columns_start = self.start();
        if self.is_at_token(&Token::LParen) {
            let before = self.parser.index();
            match self.columns() {
                Ok(columns) => table.columns = columns,
                Err(error) => {
                    table.error = Some(self.placed(&error));
                    self.back_to(before);
                    let columns = self.skip_parentheses()?;
                    table.key_start = self.key_among(&columns);
                }
            }
            let keyed = table.columns.iter().find(|column| !column.key.is_empty());
            if let Some(column) = keyed {
                table.key_start = Some(column.start);
            }
        }
        table.is_ours = self.says_ours(table.is_external);
        if let Err(error) = self.clauses(&mut table) {
            let placed = self.placed(&error);
            table.error.get_or_insert(placed);
        }
        Ok(table)
    }

    /// The place of PRIMARY KEY in a part that can't be read as columns.
    fn key_among(&self, part: &Part) -> Option<usize> {
        (0..self.parser.index())
            .map(|index| self.parser.token_at(index))
            .find(|token| {
                matches!(&token.token, Token::Word(word) if word.keyword == Keyword::PRIMARY)
                    && self.source.start(token) >= part.start
            })
            .map(|token| self.source.start(token))
    }

    fn says_ours(&self, is_external: bool) -> bool {
        let mut open = 0_usize;
        let is_word = |place: usize, word: &str| {
            matches!(&self.parser.peek_nth_token_ref(place).token, Token::Word(found)
                if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
        };
        for place in 0.. {
            match &self.parser.peek_nth_token_ref(place).token {
                Token::LParen => open += 1,
                Token::RParen => open = open.saturating_sub(1),
                Token::EOF => return false,
                Token::Word(_) if open > 0 => {}
                _ if is_word(place, "AS") => {
                    if place > 0 && is_word(place - 1, "STORED") {
                        if is_word(place + 1, "MEMWAL") {
                            return true;
                        }
                    } else {
                        return false;
                    }
                }
                _ if is_word(place, "USING") && is_word(place + 1, "MEMWAL") => return true,
                _ if is_word(place, "LOCATION") && !is_external => return true,
                _ => {}
            }
        }
        false
    }

    fn clauses(&mut self, table: &mut CreateTable) -> Parsed<()> {
        let mut seen = Vec::new();
        while !self.is_at_token(&Token::EOF) {
            let word = self.parser.peek_token_ref().token.to_string().to_ascii_uppercase();
            if seen.contains(&word) {
                return self.refused("this clause is given twice");
            }
            seen.push(word);
            if self.takes(&[Keyword::AS]) {
                let start = self.start();
                while !self.is_at_token(&Token::EOF) {
                    self.parser.advance_token();
                }
                table.query = Some(self.part_from(start));
            } else if self.takes(&[Keyword::USING]) || self.takes(&[Keyword::STORED, Keyword::AS]) {
                if !self.takes_word("MEMWAL") {
                    return self.refused("a MemWAL table does not have this clause");
                }
            } else if self.takes(&[Keyword::LOCATION]) {
                table.location = Some(self.literal()?);
            } else if self.takes(&[Keyword::PARTITIONED, Keyword::BY]) {
                table.regions = Some(self.regions()?);
            } else if self.takes(&[Keyword::OPTIONS])
                || self.takes(&[Keyword::WITH])
                || self.takes(&[Keyword::TBLPROPERTIES])
            {
                self.parser.expect_token(&Token::LParen)?;
                table.options = self.list(Self::option)?;
                self.parser.expect_token(&Token::RParen)?;
            } else {
                return self.refused("a MemWAL table does not have this clause");
            }
        }
        Ok(())
    }

    fn literal(&mut self) -> Parsed<Literal> {
        match self.parser.peek_token_ref().token.clone() {
            Token::SingleQuotedString(text) => {
                self.parser.advance_token();
                Ok((text, false))
            }
            Token::Placeholder(name) => {
                self.parser.advance_token();
                Ok((name, true))
            }
            _ => self.refused("expected a text in single quotes here"),
        }
    }

    /// `'name' 'value'`, `'name' = 'value'` or `name = 'value'`; names may have dots.
    fn option(&mut self) -> Parsed<(String, Literal, usize)> {
        let start = self.start();
        let name = match &self.parser.peek_token_ref().token {
            Token::SingleQuotedString(_) => self.literal()?.0,
            _ => self.reference()?.parts.join("."),
        };
        let _ = self.parser.consume_token(&Token::Eq);
        Ok((name, self.literal()?, start))
    }

    /// Region fields as text; a column alone is a region for each of its values.
    fn regions(&mut self) -> Parsed<String> {
        self.parser.expect_token(&Token::LParen)?;
        let fields = self.list(|reader| {
            let field = reader.expression()?;
            Ok(match &*field.expr {
                datafusion_sql::sqlparser::ast::Expr::Identifier(_) => {
                    format!("identity({})", field.part.text)
                }
                _ => field.part.text,
            })
        })?;
        self.parser.expect_token(&Token::RParen)?;
        Ok(fields.join(", "))
    }

    /// CREATE or DROP of a schema, a view or a table, as far as the name.
    pub fn named(&mut self) -> Parsed<Option<Named>> {
        self.parser.advance_token();
        self.takes(&[Keyword::OR, Keyword::REPLACE]);
        let kind = if self.takes(&[Keyword::SCHEMA]) {
            "SCHEMA"
        } else if self.takes(&[Keyword::VIEW]) {
            "VIEW"
        } else if self.takes(&[Keyword::TABLE]) {
            "TABLE"
        } else {
            return Ok(None);
        };
        let lenient = self.takes(&IF_EXISTS) || self.takes(&IF_NOT_EXISTS);
        let name = self.reference()?;
        let rest = (!self.is_at_token(&Token::EOF)).then(|| self.start());
        Ok(Some(Named { kind, lenient, name, rest }))
    }

    pub fn create_index(&mut self) -> Parsed<CreateIndex> {
        self.parser.expect_keyword(Keyword::CREATE)?;
        let replaces = self.takes(&[Keyword::OR, Keyword::REPLACE]);
        if self.is_at(Keyword::UNIQUE) {
            return self.refused("an index can't be unique: only the primary key is");
        }
        self.parser.expect_keyword(Keyword::INDEX)?;
        let lenient = self.takes(&IF_NOT_EXISTS);
        let name = if self.is_at(Keyword::ON) { None } else { Some(self.name()?) };
        self.parser.expect_keyword(Keyword::ON)?;
        let table = self.reference()?;
        let kind = match self.takes(&[Keyword::USING]) {
            true => Some(self.parser.parse_identifier()?.value.to_ascii_uppercase()),
            false => None,
        };
        let columns = self.references()?;
        let mut options = Vec::new();
        if self.takes(&[Keyword::WITH]) {
            self.parser.expect_token(&Token::LParen)?;
            options = self.list(|reader| {
                let name = reader.name()?;
                reader.parser.expect_token(&Token::Eq)?;
                Ok((name, reader.expression()?))
            })?;
            self.parser.expect_token(&Token::RParen)?;
        }
        Ok(CreateIndex { replaces, lenient, name, table, kind, columns, options })
    }

    pub fn drop_index(&mut self) -> Parsed<DropIndex> {
        self.parser.expect_keyword(Keyword::DROP)?;
        self.parser.expect_keyword(Keyword::INDEX)?;
        let lenient = self.takes(&IF_EXISTS);
        let name = self.name()?;
        if !self.takes(&[Keyword::ON]) {
            return self.refused("expected ON and a table here: each table names its own indexes");
        }
        Ok(DropIndex { lenient, name, table: self.reference()? })
    }

    pub fn alter_table(&mut self) -> Parsed<AlterTable> {
        self.parser.expect_keyword(Keyword::ALTER)?;
        self.parser.expect_keyword(Keyword::TABLE)?;
        let lenient = self.takes(&IF_EXISTS);
        let table = self.reference()?;
        Ok(AlterTable { lenient, table, changes: self.list(Self::alteration)? })
    }

    fn alteration(&mut self) -> Parsed<Alteration> {
        let start = self.start();
        let mut change = Alteration {
            start,
            action: "ADD",
            lenient: false,
            columns: Vec::new(),
            column: None,
            new_name: None,
            value: None,
        };
        if self.takes(&[Keyword::ADD]) {
            let _ = self.takes(&[Keyword::COLUMN]) || self.takes(&[Keyword::COLUMNS]);
            change.lenient = self.takes(&IF_NOT_EXISTS);
            change.columns = match self.is_at_token(&Token::LParen) {
                true => self.columns()?,
                false => vec![self.column()?],
            };
            return Ok(change);
        }
        if self.takes(&[Keyword::RENAME]) {
            if self.is_at(Keyword::TO) {
                return self.refused("a table has the name of its folder: move the folder");
            }
            self.takes(&[Keyword::COLUMN]);
            change.action = "RENAME";
            change.column = Some(self.reference()?);
            self.parser.expect_keyword(Keyword::TO)?;
            change.new_name = Some(self.name()?);
            return Ok(change);
        }
        if self.takes(&[Keyword::DROP]) {
            let constraints = ["CONSTRAINT", "PRIMARY", "PARTITION", "FOREIGN", "INDEX"];
            if constraints.iter().any(|word| self.is_at_word(word)) {
                return self.refused("expected ADD, DROP, RENAME or ALTER COLUMN here");
            }
            self.takes(&[Keyword::COLUMN]);
            change.action = "DROP";
            change.lenient = self.takes(&IF_EXISTS);
            change.column = Some(self.reference()?);
            return Ok(change);
        }
        if self.takes(&[Keyword::ALTER]) {
            self.takes(&[Keyword::COLUMN]);
            change.column = Some(self.reference()?);
            change.action = "DROP NOT NULL";
            if self.takes(&[Keyword::DROP, Keyword::NOT, Keyword::NULL]) {
                return Ok(change);
            }
            change.action = "SET NOT NULL";
            if self.takes(&[Keyword::SET, Keyword::NOT, Keyword::NULL]) {
                return Ok(change);
            }
            change.action = "DROP DEFAULT";
            if self.takes(&[Keyword::DROP, Keyword::DEFAULT]) {
                return Ok(change);
            }
            if self.takes(&[Keyword::SET, Keyword::DEFAULT]) {
                change.action = "SET DEFAULT";
                change.value = Some(self.constant()?);
                return Ok(change);
            }
            let start = self.start();
            if self.takes(&[Keyword::TYPE])
                || self.takes(&[Keyword::SET, Keyword::DATA, Keyword::TYPE])
            {
                change.action = "SET TYPE";
                let name = change.column.as_ref().and_then(|column| column.parts.last().cloned());
                let kind = self.data_type()?;
                change.columns = vec![Column { start, name, kind, key: Vec::new(), default: None }];
                return Ok(change);
            }
            return self.refused(
                "ALTER COLUMN can DROP NOT NULL, SET DEFAULT, DROP DEFAULT and change the TYPE",
            );
        }
        self.refused(match self.is_at(Keyword::SET) || self.is_at_word("UNSET") {
            true => {
                "a table's regions and key can't be changed, and it has no other \
                 options: mw.register(ctx, name, table, consistency) and CREATE INDEX have theirs"
            }
            false => "expected ADD, DROP, RENAME or ALTER COLUMN here",
        })
    }

    /// A message without its place, and that.
    fn placed(&self, error: &ParserError) -> (String, usize) {
        let text = match error {
            ParserError::ParserError(text) | ParserError::TokenizerError(text) => text.clone(),
            ParserError::RecursionLimitExceeded => "this is nested too deeply".to_owned(),
        };
        let Some((message, place)) = text.rsplit_once(" at Line: ") else {
            return (text, self.source.length());
        };
        let mut numbers = place.split(", Column: ").filter_map(|number| number.parse().ok());
        match (numbers.next(), numbers.next()) {
            (Some(line), Some(column)) => {
                (message.to_owned(), self.source.place(Location { line, column }))
            }
            _ => (text, self.source.length()),
        }
    }
}
