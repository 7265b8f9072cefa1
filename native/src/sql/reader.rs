//! sqlparser's parser, with the places in the text of the tokens that it takes.

use std::sync::Arc;

use datafusion_sql::sqlparser::ast::{Expr, Ident};
use datafusion_sql::sqlparser::dialect::{Dialect, GenericDialect, Precedence};
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::parser::{Parser, ParserError};
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::sql::source::Source;
use crate::sql::tokens::is_blank;
use crate::sql::tree::{Expression, Part, Reference};

pub type Parsed<T> = std::result::Result<T, ParserError>;

static DIALECT: GenericDialect = GenericDialect {};

/// The precedence of an operator.
pub fn precedence(of: Precedence) -> u8 {
    DIALECT.prec_value(of)
}

pub struct Reader {
    pub parser: Parser<'static>,
    pub source: Arc<Source>,
    /// The AS OF clauses, which are not among the tokens: the token before each, and where it ends.
    pub pasts: Vec<(usize, usize)>,
}

impl Reader {
    pub fn new(source: Arc<Source>, tokens: Vec<TokenWithSpan>) -> Self {
        // Without blanks a place of the parser is one token, to which it can go back.
        let tokens = tokens.into_iter().filter(|token| !is_blank(token)).collect();
        let parser = Parser::new(&DIALECT).with_tokens_with_locations(tokens);
        Self { parser, source, pasts: Vec::new() }
    }

    /// The place of the next token.
    pub fn start(&self) -> usize {
        self.source.start(self.parser.peek_token_ref())
    }

    /// The place after the last token that was taken.
    pub fn end(&self) -> usize {
        match self.parser.index() {
            0 => 0,
            index => self.source.end(self.parser.token_at(index - 1)),
        }
    }

    /// The text taken from a place on, with an AS OF clause after it.
    pub fn part_from(&self, start: usize) -> Part {
        let last = self.end();
        let past = self.pasts.iter().find(|(after, _)| *after == last);
        let end = past.map_or(last, |(_, end)| *end);
        Part { text: self.source.slice(start, end).to_owned(), start, end }
    }

    pub fn expression(&mut self) -> Parsed<Expression> {
        self.expression_by(Parser::parse_expr)
    }

    pub fn expression_by(
        &mut self,
        take: impl FnOnce(&mut Parser<'static>) -> Parsed<Expr>,
    ) -> Parsed<Expression> {
        let start = self.start();
        let expr = take(&mut self.parser)?;
        let part = self.part_from(start);
        Ok(Expression { part, expr: Arc::new(expr), source: Arc::clone(&self.source) })
    }

    /// The name of a table or a column, with its qualifiers.
    pub fn reference(&mut self) -> Parsed<Reference> {
        let start = self.start();
        let name = self.parser.parse_object_name(false)?;
        let parts: Option<Vec<&Ident>> = name.0.iter().map(|part| part.as_ident()).collect();
        let Some(parts) = parts else {
            return self.expected("a name");
        };
        let parts = parts.into_iter().map(|part| self.source.name(part)).collect();
        let end = self.end();
        Ok(Reference { parts, text: self.source.slice(start, end).to_owned(), start, end })
    }

    pub fn name(&mut self) -> Parsed<String> {
        Ok(self.source.name(&self.parser.parse_identifier()?))
    }

    /// Names in parentheses.
    pub fn references(&mut self) -> Parsed<Vec<Reference>> {
        self.parser.expect_token(&Token::LParen)?;
        let references = self.list(Self::reference)?;
        self.parser.expect_token(&Token::RParen)?;
        Ok(references)
    }

    /// One or more items between commas.
    pub fn list<T>(&mut self, mut take: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![take(self)?];
        while self.parser.consume_token(&Token::Comma) {
            items.push(take(self)?);
        }
        Ok(items)
    }

    pub fn takes(&mut self, keywords: &[Keyword]) -> bool {
        self.parser.parse_keywords(keywords)
    }

    pub fn is_at(&self, keyword: Keyword) -> bool {
        self.parser.peek_keyword(keyword)
    }

    pub fn is_at_token(&self, token: &Token) -> bool {
        self.parser.peek_token_ref().token == *token
    }

    pub fn is_at_word(&self, word: &str) -> bool {
        match &self.parser.peek_token_ref().token {
            Token::Word(found) => {
                found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word)
            }
            _ => false,
        }
    }

    pub fn takes_word(&mut self, word: &str) -> bool {
        let takes = self.is_at_word(word);
        if takes {
            self.parser.advance_token();
        }
        takes
    }

    pub fn expected<T>(&self, what: &str) -> Parsed<T> {
        self.parser.expected_ref(what, self.parser.peek_token_ref())
    }

    /// An error, with the place of the next token.
    pub fn refused<T>(&self, message: &str) -> Parsed<T> {
        let place = match self.parser.peek_token_ref().token {
            Token::EOF => String::new(), // the place after the last token has no location
            _ => self.parser.peek_token_ref().span.start.to_string(),
        };
        Err(ParserError::ParserError(format!("{message}{place}")))
    }
}
