//! The text of a statement, sliced by the places of its tokens.

use datafusion_sql::sqlparser::ast::Ident;
use datafusion_sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};

use crate::sql::tokens::Lines;

/// A text that is sliced by the places of its characters.
#[derive(Debug)]
pub struct Source {
    text: String,
    lines: Lines,
    /// The byte at which each character begins; empty for ASCII text.
    bytes: Vec<usize>,
    length: usize,
    normalizes: bool,
}

impl Source {
    pub fn new(text: &str, normalizes: bool) -> Self {
        let bytes: Vec<usize> = match text.is_ascii() {
            true => Vec::new(),
            false => text.char_indices().map(|(byte, _)| byte).collect(),
        };
        let length = if bytes.is_empty() { text.len() } else { bytes.len() };
        Self { text: text.to_owned(), lines: Lines::of(text), bytes, length, normalizes }
    }

    pub fn slice(&self, start: usize, end: usize) -> &str {
        self.text.get(self.byte(start)..self.byte(end)).unwrap_or_default()
    }

    pub fn start(&self, token: &TokenWithSpan) -> usize {
        match token.token {
            Token::EOF => self.length,
            _ => self.lines.place(token.span.start),
        }
    }

    pub fn end(&self, token: &TokenWithSpan) -> usize {
        self.lines.place(token.span.end)
    }

    pub fn place(&self, location: Location) -> usize {
        self.lines.place(location)
    }

    pub fn length(&self) -> usize {
        self.length
    }

    /// The place of a name: its first character, and the place after its last one.
    pub fn span(&self, name: &[Ident]) -> Option<(usize, usize)> {
        let (first, last) = (name.first()?, name.last()?);
        Some((self.lines.place(first.span.start), self.lines.place(last.span.end)))
    }

    /// A name as a session looks it up.
    pub fn name(&self, name: &Ident) -> String {
        match name.quote_style {
            None if self.normalizes => name.value.to_ascii_lowercase(),
            _ => name.value.clone(),
        }
    }

    fn byte(&self, place: usize) -> usize {
        match self.bytes.is_empty() {
            true => place,
            false => self.bytes.get(place).copied().unwrap_or(self.text.len()),
        }
    }
}
