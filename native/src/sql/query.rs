//! The queries of a text: the tables that they read, at which time, and searches.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use pyo3::prelude::*;

use crate::sql::source::Source;
use crate::sql::tokens::is_blank;

/// A clause `[FOR] VERSION | TIMESTAMP AS OF value`.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Past {
    /// "version" or "timestamp".
    pub kind: &'static str,
    /// An expression, as text.
    pub value: String,
    pub start: usize,
    pub end: usize,
    /// The place after the token before it.
    pub after: usize,
}

/// A call of a table function that takes its arguments by name, too.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Search {
    pub name: String,
    /// The place of the first argument, and the place after the last one.
    pub start: usize,
    pub end: usize,
    pub arguments: Vec<Argument>,
}

#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Argument {
    pub name: Option<String>,
    pub text: String,
    pub start: usize,
    /// Its text, if it is a string literal.
    pub string: Option<String>,
    /// The parameters in it: their names, and their places in its text.
    pub parameters: Vec<(String, usize, usize)>,
}

fn keyword(token: Option<&TokenWithSpan>) -> Keyword {
    match token.map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => word.keyword,
        _ => Keyword::NoKeyword,
    }
}

fn past_kind(token: Option<&TokenWithSpan>) -> Option<&'static str> {
    match token.map(|token| &token.token) {
        Some(Token::Word(word)) if word.quote_style.is_none() => {
            match word.value.to_ascii_uppercase().as_str() {
                "VERSION" | "SYSTEM_VERSION" => Some("version"),
                "TIMESTAMP" | "SYSTEM_TIME" => Some("timestamp"),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The tokens of a text without its clauses AS OF, and these.
pub fn without_past(
    source: &Source,
    tokens: Vec<TokenWithSpan>,
) -> (Vec<TokenWithSpan>, Vec<Past>) {
    let places: Vec<usize> = (0..tokens.len()).filter(|at| !is_blank(&tokens[*at])).collect();
    let at = |place: usize| places.get(place).and_then(|index| tokens.get(*index));
    let mut clauses = Vec::new();
    let mut cut = Vec::new();
    for place in 1..places.len() {
        let Some(kind) = past_kind(at(place)) else { continue };
        let is_clause = keyword(at(place + 1)) == Keyword::AS
            && keyword(at(place + 2)) == Keyword::OF
            && at(place - 1).is_some_and(|token| token.token != Token::Period);
        let Some(last) = is_clause.then(|| value_end(&at, place + 3)).flatten() else { continue };
        let first = place - usize::from(keyword(at(place - 1)) == Keyword::FOR);
        let token = |place: usize| &tokens[places[place]];
        if first == 0 {
            continue;
        }
        let end = source.end(token(last));
        clauses.push(Past {
            kind,
            value: source.slice(source.start(token(place + 3)), end).to_owned(),
            start: source.start(token(first)),
            end,
            after: source.end(token(first - 1)),
        });
        cut.push((places[first], places[last]));
    }
    if cut.is_empty() {
        return (tokens, clauses);
    }
    let is_cut = |index: usize| cut.iter().any(|(first, last)| (*first..=*last).contains(&index));
    let left = tokens.into_iter().enumerate().filter(|(index, _)| !is_cut(*index));
    (left.map(|(_, token)| token).collect(), clauses)
}

/// The last token of a value: a literal, a parameter, or an expression in parentheses.
fn value_end<'a>(
    at: &impl Fn(usize) -> Option<&'a TokenWithSpan>,
    mut place: usize,
) -> Option<usize> {
    if at(place)?.token == Token::LParen {
        return closing(at, place);
    }
    if matches!(keyword(at(place)), Keyword::TIMESTAMP | Keyword::DATE) {
        place += 1;
    }
    match at(place)?.token {
        Token::SingleQuotedString(_)
        | Token::EscapedStringLiteral(_)
        | Token::Number(..)
        | Token::Placeholder(_) => Some(place),
        _ => None,
    }
}

fn closing<'a>(at: &impl Fn(usize) -> Option<&'a TokenWithSpan>, place: usize) -> Option<usize> {
    let mut open = 0_usize;
    for place in place.. {
        match at(place)?.token {
            Token::LParen | Token::LBracket | Token::LBrace => open += 1,
            Token::RParen | Token::RBracket | Token::RBrace => open = open.saturating_sub(1),
            _ => {}
        }
        if open == 0 {
            return Some(place);
        }
    }
    None
}

/// The error of a clause of the past in a text that can't be parsed, and its place.
pub fn misread_past(source: &Source, tokens: &[TokenWithSpan]) -> Option<(&'static str, usize)> {
    let tokens: Vec<&TokenWithSpan> = tokens.iter().filter(|token| !is_blank(token)).collect();
    let at = |place: usize| tokens.get(place).copied();
    for place in 1..tokens.len() {
        let is_clause =
            keyword(at(place + 1)) == Keyword::AS && keyword(at(place + 2)) == Keyword::OF;
        let says = past_kind(at(place)).is_some();
        if says && is_clause && value_end(&at, place + 3).is_none() {
            let start = at(place + 3).map_or(usize::MAX, |token| source.start(token));
            let message = "AS OF takes a literal, a parameter, or an expression in parentheses";
            return Some((message, start));
        }
        if says && !is_clause && keyword(at(place - 1)) == Keyword::FOR {
            let message = "only AS OF reads the past, as in VERSION AS OF 7";
            return Some((message, source.start(tokens[place - 1])));
        }
    }
    None
}

/// The calls of functions with these names.
pub fn searches(source: &Source, tokens: &[TokenWithSpan], names: &[String]) -> Vec<Search> {
    let tokens: Vec<&TokenWithSpan> = tokens.iter().filter(|token| !is_blank(token)).collect();
    let at = |place: usize| tokens.get(place).copied();
    let mut calls = Vec::new();
    for place in 0..tokens.len() {
        let Token::Word(word) = &tokens[place].token else { continue };
        let name = match word.quote_style {
            Some(_) => word.value.clone(),
            None => word.value.to_ascii_lowercase(),
        };
        let opens = at(place + 1).is_some_and(|token| token.token == Token::LParen);
        if !opens || !names.contains(&name) {
            continue;
        }
        let Some(last) = closing(&at, place + 1).filter(|last| *last > place + 2) else { continue };
        let mut arguments = Vec::new();
        let mut start = place + 2;
        let mut open = 0_usize;
        for end in place + 2..=last {
            match tokens[end].token {
                Token::LParen | Token::LBracket | Token::LBrace => open += 1,
                Token::RParen | Token::RBracket | Token::RBrace if end < last => {
                    open = open.saturating_sub(1);
                }
                _ => {}
            }
            if end == last || (open == 0 && tokens[end].token == Token::Comma) {
                arguments.push(argument(source, &tokens[start..end]));
                start = end + 1;
            }
        }
        calls.push(Search {
            name,
            start: source.start(tokens[place + 2]),
            end: source.end(tokens[last - 1]),
            arguments,
        });
    }
    calls
}

fn argument(source: &Source, tokens: &[&TokenWithSpan]) -> Argument {
    let (name, value) = match tokens {
        [first, arrow, rest @ ..] if arrow.token == Token::RArrow => match &first.token {
            Token::Word(word) => (Some(word.value.to_ascii_lowercase()), rest),
            _ => (None, tokens),
        },
        _ => (None, tokens),
    };
    let (Some(first), Some(last)) = (value.first(), value.last()) else {
        let start = tokens.first().map_or(0, |token| source.start(token));
        return Argument { name, text: String::new(), start, string: None, parameters: Vec::new() };
    };
    let start = source.start(first);
    let string = match (value, &first.token) {
        ([_], Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => {
            Some(text.clone())
        }
        _ => None,
    };
    let parameters = value.iter().filter_map(|token| match &token.token {
        Token::Placeholder(name) => {
            Some((name.clone(), source.start(token) - start, source.end(token) - start))
        }
        _ => None,
    });
    Argument {
        name,
        text: source.slice(start, source.end(last)).to_owned(),
        start,
        string,
        parameters: parameters.collect(),
    }
}
