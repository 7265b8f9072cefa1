//! The places of the tokens of SQL text.

use datafusion_sql::sqlparser::tokenizer::{Location, Token, TokenWithSpan};

/// (kind, value, start, end): places are in characters.
pub type Found = (&'static str, String, usize, usize);

pub fn is_blank(token: &TokenWithSpan) -> bool {
    matches!(token.token, Token::Whitespace(_))
}

/// The tokens of a text, without blanks and comments.
pub fn placed(sql: &str, tokens: Vec<TokenWithSpan>) -> Vec<Found> {
    let lines = Lines::of(sql);
    let placed = tokens.into_iter().filter_map(|one| {
        let (kind, value) = named(one.token)?;
        Some((kind, value, lines.place(one.span.start), lines.place(one.span.end)))
    });
    placed.collect()
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

/// The characters at which the lines of a text begin.
#[derive(Debug)]
pub struct Lines(Vec<usize>);

impl Lines {
    pub fn of(text: &str) -> Self {
        let ends = text.chars().enumerate().filter(|(_, one)| *one == '\n');
        Self(std::iter::once(0).chain(ends.map(|(place, _)| place + 1)).collect())
    }

    pub fn place(&self, at: Location) -> usize {
        let line = usize::try_from(at.line).unwrap_or(1).clamp(1, self.0.len());
        self.0[line - 1] + usize::try_from(at.column).unwrap_or(1).saturating_sub(1)
    }
}
