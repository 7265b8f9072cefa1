//! Reads statements that change rows.

use std::sync::Arc;

use datafusion_sql::sqlparser::ast::{
    Expr, SelectItem, SelectItemQualifiedWildcardKind, TableFactor, UnaryOperator, Value,
};
use datafusion_sql::sqlparser::dialect::Precedence;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::sql::reader::{Parsed, Reader, precedence};
use crate::sql::tree::{
    Assignment, Cell, Conflict, Delete, Expression, Insert, Item, Merge, Part, Reference, Truncate,
    Update, When,
};

const BY_KEYS: &str = "a statement that changes rows can't have this clause: choose the rows by \
    their keys, as in WHERE id IN (SELECT id FROM t ORDER BY n LIMIT 10)";

const QUERIES: [Keyword; 5] =
    [Keyword::SELECT, Keyword::WITH, Keyword::VALUES, Keyword::FROM, Keyword::TABLE];

impl Reader {
    pub fn delete(&mut self) -> Parsed<Delete> {
        self.parser.expect_keyword(Keyword::DELETE)?;
        self.parser.expect_keyword(Keyword::FROM)?;
        let (target, alias) = self.target(&[Keyword::USING])?;
        let others = self.others(Keyword::USING)?;
        let condition = self.condition()?;
        let returning = self.returning()?;
        Ok(Delete { target, alias, others, condition, returning })
    }

    pub fn truncate(&mut self) -> Parsed<Truncate> {
        self.parser.expect_keyword(Keyword::TRUNCATE)?;
        self.takes(&[Keyword::TABLE]);
        Ok(Truncate { target: self.reference()? })
    }

    pub fn update(&mut self) -> Parsed<Update> {
        self.parser.expect_keyword(Keyword::UPDATE)?;
        let (target, alias) = self.target(&[Keyword::SET])?;
        self.parser.expect_keyword(Keyword::SET)?;
        let sets = self.list(Self::assignment)?;
        let others = self.others(Keyword::FROM)?;
        let condition = self.condition()?;
        let returning = self.returning()?;
        Ok(Update { target, alias, sets, others, condition, returning })
    }

    pub fn insert(&mut self) -> Parsed<Insert> {
        let mode = if self.takes(&[Keyword::REPLACE]) {
            "REPLACE"
        } else {
            self.parser.expect_keyword(Keyword::INSERT)?;
            if self.is_at(Keyword::OR) || self.is_at(Keyword::IGNORE) {
                return self.refused("write REPLACE INTO, or ON CONFLICT DO NOTHING");
            }
            if self.takes(&[Keyword::OVERWRITE]) { "OVERWRITE" } else { "INSERT" }
        };
        let has_into = self.takes(&[Keyword::INTO]);
        let has_table = self.takes(&[Keyword::TABLE]);
        let follows_into = matches!(&self.parser.peek_nth_token_ref(1).token,
            Token::Word(word) if word.keyword == Keyword::INTO);
        if !has_into && !has_table && follows_into {
            return self.expected("INTO");
        }
        let follows = [Keyword::BY, Keyword::DEFAULT, Keyword::PARTITION, Keyword::ON];
        let (target, alias) = self.target(&[QUERIES.as_slice(), &follows].concat())?;
        let mut columns = None;
        if self.is_at_token(&Token::LParen) && !self.opens_query() {
            columns = Some(self.references()?);
        }
        let by_name = columns.is_none() && self.takes(&[Keyword::BY, Keyword::NAME]);
        let start = self.start();
        let rows = self.rows()?;
        if rows.is_none() {
            if !self.is_at_token(&Token::LParen) && !QUERIES.iter().any(|word| self.is_at(*word)) {
                return self.refused("expected VALUES or a query here");
            }
            self.parser.parse_query()?;
        }
        let query = self.part_from(start);
        let conflict = self.conflict()?;
        let returning = self.returning()?;
        Ok(Insert { mode, target, alias, columns, by_name, query, rows, conflict, returning })
    }

    pub fn merge(&mut self) -> Parsed<Merge> {
        self.parser.expect_keyword(Keyword::MERGE)?;
        self.takes(&[Keyword::INTO]);
        let (target, alias) = self.target(&[Keyword::USING])?;
        self.parser.expect_keyword(Keyword::USING)?;
        let start = self.start();
        let factor = self.parser.parse_table_factor()?;
        let source = self.part_from(start);
        let source_name = self.name_of(&factor);
        if !self.is_at(Keyword::ON) {
            return self.refused(
                "expected ON here: USING takes one table, or a query in parentheses with an alias",
            );
        }
        self.parser.advance_token();
        let first = self.parser.index();
        let on = self.expression()?;
        let (equalities, conjuncts) = self.equalities(first)?;
        let mut whens = Vec::new();
        while self.is_at(Keyword::WHEN) {
            whens.push(self.when()?);
        }
        if whens.is_empty() {
            return self.refused("WHEN [NOT] MATCHED is missing");
        }
        let returning = self.returning()?;
        Ok(Merge {
            target,
            alias,
            source,
            source_name,
            on,
            equalities,
            conjuncts,
            whens,
            returning,
        })
    }

    /// The table that is changed, and its alias.
    fn target(&mut self, clauses: &[Keyword]) -> Parsed<(Reference, Option<String>)> {
        let target = self.reference()?;
        let ends =
            [Keyword::SET, Keyword::WHERE, Keyword::RETURNING, Keyword::ORDER, Keyword::LIMIT];
        if self.takes(&[Keyword::AS]) {
            return Ok((target, Some(self.name()?)));
        }
        let is_name = match &self.parser.peek_token_ref().token {
            Token::Word(word) => !clauses.contains(&word.keyword) && !ends.contains(&word.keyword),
            _ => false,
        };
        let alias = if is_name { Some(self.name()?) } else { None };
        Ok((target, alias))
    }

    fn others(&mut self, word: Keyword) -> Parsed<Option<Part>> {
        if !self.takes(&[word]) {
            return Ok(None);
        }
        let start = self.start();
        self.list(|reader| reader.parser.parse_table_and_joins())?;
        Ok(Some(self.part_from(start)))
    }

    fn condition(&mut self) -> Parsed<Option<Expression>> {
        let condition = if self.takes(&[Keyword::WHERE]) { Some(self.expression()?) } else { None };
        if self.is_at(Keyword::ORDER) || self.is_at(Keyword::LIMIT) {
            return self.refused(BY_KEYS);
        }
        Ok(condition)
    }

    fn returning(&mut self) -> Parsed<Option<Vec<Item>>> {
        if !self.takes(&[Keyword::RETURNING]) {
            return Ok(None);
        }
        if self.is_at(Keyword::DISTINCT) {
            return self.refused("RETURNING has one row for each changed row: leave out DISTINCT");
        }
        self.list(Self::item).map(Some)
    }

    fn item(&mut self) -> Parsed<Item> {
        let start = self.start();
        let item = self.parser.parse_select_item()?;
        let part = self.part_from(start);
        let Part { text, start, .. } = part.clone();
        let (star, expression) = match item {
            SelectItem::Wildcard(_) if text == "*" => (Some(Vec::new()), None),
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _)
                if text.ends_with('*') =>
            {
                let parts = name.0.iter().filter_map(|part| part.as_ident());
                (Some(parts.map(|part| self.source.name(part)).collect()), None)
            }
            SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
                let source = Arc::clone(&self.source);
                (None, Some(Expression { part, expr: expr.into(), source }))
            }
            _ => return self.expected("an expression, or * alone, before this"),
        };
        Ok(Item { text, start, star, expression })
    }

    fn assignment(&mut self) -> Parsed<Assignment> {
        if self.is_at_token(&Token::LParen) {
            return self.refused("set each column by itself: column = value");
        }
        let column = self.reference()?;
        self.parser.expect_token(&Token::Eq)?;
        Ok(Assignment { column, value: self.expression()? })
    }

    /// Whether the parenthesis at this token opens a query.
    fn opens_query(&self) -> bool {
        match &self.parser.peek_nth_token_ref(1).token {
            Token::LParen => true,
            Token::Word(word) => word.quote_style.is_none() && QUERIES.contains(&word.keyword),
            _ => false,
        }
    }

    /// The cells of VALUES, which may be in parentheses; None, with nothing taken, for another
    /// query.
    fn rows(&mut self) -> Parsed<Option<Vec<Vec<Cell>>>> {
        let mut open = 0;
        while self.parser.peek_nth_token_ref(open).token == Token::LParen {
            open += 1;
        }
        match &self.parser.peek_nth_token_ref(open).token {
            Token::Word(word) if word.keyword == Keyword::VALUES && word.quote_style.is_none() => {}
            _ => return Ok(None),
        }
        let before = self.parser.index();
        for _ in 0..open {
            self.parser.expect_token(&Token::LParen)?;
        }
        self.parser.expect_keyword(Keyword::VALUES)?;
        let rows = self.list(|reader| {
            reader.parser.expect_token(&Token::LParen)?;
            let cells = reader.list(Self::cell)?;
            reader.parser.expect_token(&Token::RParen)?;
            Ok(cells)
        })?;
        for _ in 0..open {
            if !self.parser.consume_token(&Token::RParen) {
                self.back_to(before); // a query that has VALUES as a part
                return Ok(None);
            }
        }
        let goes_on = [
            Keyword::UNION,
            Keyword::EXCEPT,
            Keyword::INTERSECT,
            Keyword::ORDER,
            Keyword::LIMIT,
            Keyword::OFFSET,
        ];
        if goes_on.iter().any(|word| self.is_at(*word)) {
            self.back_to(before);
            return Ok(None);
        }
        Ok(Some(rows))
    }

    pub fn back_to(&mut self, index: usize) {
        while self.parser.index() > index {
            self.parser.prev_token();
        }
    }

    fn cell(&mut self) -> Parsed<Cell> {
        let expression = self.expression()?;
        let kind = match expression.has_query() {
            true => "query".into(),
            false => kind(&expression.expr).unwrap_or_else(|| "other".into()),
        };
        Ok((expression.part.text, kind))
    }

    fn conflict(&mut self) -> Parsed<Option<Conflict>> {
        let start = self.start();
        if !self.takes(&[Keyword::ON]) {
            return Ok(None);
        }
        if self.is_at(Keyword::DUPLICATE) {
            return self.refused("write ON CONFLICT DO UPDATE SET column = excluded.column");
        }
        self.parser.expect_keyword(Keyword::CONFLICT)?;
        let key = if self.is_at_token(&Token::LParen) { Some(self.references()?) } else { None };
        self.parser.expect_keyword(Keyword::DO)?;
        if self.takes(&[Keyword::NOTHING]) {
            return Ok(Some(Conflict { start, key, sets: None, condition: None }));
        }
        self.parser.expect_keyword(Keyword::UPDATE)?;
        self.parser.expect_keyword(Keyword::SET)?;
        let sets = Some(self.list(Self::assignment)?);
        let condition = self.condition()?;
        Ok(Some(Conflict { start, key, sets, condition }))
    }

    /// The name that qualifies the columns of a table in FROM.
    fn name_of(&self, factor: &TableFactor) -> Option<String> {
        let (name, alias) = match factor {
            TableFactor::Table { name, alias, .. } => (Some(name), alias),
            TableFactor::Function { name, alias, .. } => (Some(name), alias),
            TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::NestedJoin { alias, .. } => (None, alias),
            _ => (None, &None),
        };
        let last = name.and_then(|name| name.0.last()?.as_ident());
        alias.as_ref().map(|alias| &alias.name).or(last).map(|name| self.source.name(name))
    }

    /// The sides of each `a = b` among the conjuncts of a condition that was taken from the token at
    /// `first` on, and how many conjuncts it has.
    fn equalities(&mut self, first: usize) -> Parsed<(Vec<(Expression, Expression)>, usize)> {
        let last = self.parser.index();
        let mut tokens: Vec<_> =
            (first..last).map(|index| self.parser.token_at(index).clone()).collect();
        while is_enclosed(&tokens) {
            tokens = tokens[1..tokens.len() - 1].to_vec();
        }
        let (and, equal) = (precedence(Precedence::And), precedence(Precedence::Eq));
        let mut equalities = Vec::new();
        let mut conjuncts = 0;
        let mut reader = Self::new(Arc::clone(&self.source), tokens);
        loop {
            let before = reader.parser.index();
            let left = reader.expression_by(|parser| parser.parse_subexpr(equal))?;
            let mut pair = None;
            if reader.parser.consume_token(&Token::Eq) {
                pair = Some((left, reader.expression_by(|parser| parser.parse_subexpr(equal))?));
            }
            let at_end =
                |reader: &Self| reader.is_at_token(&Token::EOF) || reader.is_at(Keyword::AND);
            if pair.is_none() || !at_end(&reader) {
                pair = None;
                reader.back_to(before);
                reader.parser.parse_subexpr(and)?;
            }
            conjuncts += 1;
            equalities.extend(pair);
            if reader.is_at_token(&Token::EOF) {
                return Ok((equalities, conjuncts));
            }
            if !reader.takes(&[Keyword::AND]) {
                return Ok((Vec::new(), 1)); // an OR
            }
        }
    }

    fn when(&mut self) -> Parsed<When> {
        let start = self.start();
        self.parser.expect_keyword(Keyword::WHEN)?;
        let is_not = self.takes(&[Keyword::NOT]);
        self.parser.expect_keyword(Keyword::MATCHED)?;
        let of = match is_not {
            false => "matched",
            true if self.takes(&[Keyword::BY, Keyword::SOURCE]) => "alone",
            true => {
                self.takes(&[Keyword::BY, Keyword::TARGET]);
                "new"
            }
        };
        let condition = if self.takes(&[Keyword::AND]) { Some(self.expression()?) } else { None };
        self.parser.expect_keyword(Keyword::THEN)?;
        let mut when = When {
            start,
            of,
            condition,
            action: "",
            star: None,
            sets: Vec::new(),
            columns: None,
            values: Vec::new(),
        };
        if self.takes(&[Keyword::DO, Keyword::NOTHING]) {
            return Ok(when);
        }
        if of == "new" {
            if !self.takes(&[Keyword::INSERT]) {
                return self.refused("expected INSERT or DO NOTHING here");
            }
            when.action = "INSERT";
            when.star = self.star();
            if when.star.is_none() {
                if self.is_at_token(&Token::LParen) {
                    when.columns = Some(self.references()?);
                }
                self.parser.expect_keyword(Keyword::VALUES)?;
                self.parser.expect_token(&Token::LParen)?;
                when.values = self.list(Self::expression)?;
                self.parser.expect_token(&Token::RParen)?;
            }
        } else if self.takes(&[Keyword::DELETE]) {
            when.action = "DELETE";
        } else if self.takes(&[Keyword::UPDATE]) {
            when.action = "UPDATE";
            self.parser.expect_keyword(Keyword::SET)?;
            when.star = self.star();
            if when.star.is_none() {
                when.sets = self.list(Self::assignment)?;
            }
        } else {
            return self.refused("expected UPDATE, DELETE or DO NOTHING here");
        }
        Ok(when)
    }

    fn star(&mut self) -> Option<usize> {
        let start = self.start();
        self.parser.consume_token(&Token::Mul).then_some(start)
    }
}

fn is_enclosed(tokens: &[TokenWithSpan]) -> bool {
    let mut open = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen => open += 1,
            Token::RParen => open = open.saturating_sub(1),
            _ => {}
        }
        if open == 0 {
            return index > 0 && index + 1 == tokens.len();
        }
    }
    false
}

/// Numbers with more digits may not be int64, or not decimals of one type.
const DIGITS: usize = 18;

/// The kind that determines the type of a literal or of a list of literals; None for others.
pub fn kind(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => literal(&value.value).map(str::to_owned),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => {
            kind(expr).filter(|kind| kind == "integer" || kind == "decimal")
        }
        Expr::TypedString(typed) => Some(typed.data_type.to_string()),
        Expr::Array(array) => {
            let mut kinds: Vec<String> = array.elem.iter().map(kind).collect::<Option<_>>()?;
            kinds.retain(|kind| kind != "null");
            kinds.sort_unstable();
            kinds.dedup();
            Some(format!("[{}]", kinds.join(" ")))
        }
        _ => None,
    }
}

fn literal(value: &Value) -> Option<&'static str> {
    match value {
        Value::Null => Some("null"),
        Value::Boolean(_) => Some("boolean"),
        Value::Number(digits, _) => {
            let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
            let is_short = whole.len().max(fraction.len()) <= DIGITS
                && digits.chars().all(|digit| digit.is_ascii_digit() || digit == '.');
            is_short.then_some(if digits.contains('.') { "decimal" } else { "integer" })
        }
        Value::SingleQuotedString(_)
        | Value::EscapedStringLiteral(_)
        | Value::NationalStringLiteral(_)
        | Value::UnicodeStringLiteral(_)
        | Value::DollarQuotedString(_) => Some("text"),
        Value::HexStringLiteral(_) => Some("bytes"),
        _ => None,
    }
}
