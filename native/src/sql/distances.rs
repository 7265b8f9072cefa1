//! The distance operators of pgvector, which the parser reads differently or not at all.

use std::sync::Arc;

use datafusion_sql::sqlparser::ast::{Expr, Value};
use datafusion_sql::sqlparser::dialect::Precedence;
use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};
use pyo3::prelude::*;

use crate::sql::reader::{Reader, precedence};
use crate::sql::source::Source;
use crate::sql::tokens::is_blank;
use crate::sql::tree::{Expression, Part};

/// `left <-> right`, or another of the operators.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Distance {
    pub operator: &'static str,
    pub start: usize,
    pub left: Option<Operand>,
    pub right: Option<Operand>,
}

/// An operand. `kind` is "text", "parameter", "list", "column" or "other"; `value` is the text, or
/// the name of the parameter or column.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Operand {
    pub part: Part,
    pub kind: &'static str,
    pub value: String,
}

/// The tokens with one token in place of `<->` and `<#>` that binds like a distance: less than
/// arithmetic, and more than comparisons. Also the places and kinds of all operators.
pub fn as_operators(
    source: &Source,
    tokens: Vec<TokenWithSpan>,
) -> (Vec<TokenWithSpan>, Vec<(usize, &'static str)>) {
    let mut read: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    let mut operators = Vec::new();
    for mut token in tokens.into_iter().filter(|token| !is_blank(token)) {
        let operator = match (read.last().map(|token| &token.token), &token.token) {
            (Some(Token::Lt), Token::Arrow) => Some("<->"),
            (Some(Token::Lt), Token::HashArrow) => Some("<#>"),
            _ => None,
        };
        let meets = read.last().is_some_and(|last| source.end(last) == source.start(&token));
        if token.token == Token::Spaceship {
            operators.push((read.len(), "<=>"));
            token.token = Token::Caret;
        } else if let Some(operator) = operator.filter(|_| meets) {
            let first = read.pop().map_or(token.span.start, |first| first.span.start);
            operators.push((read.len(), operator));
            token.token = Token::Caret;
            token.span.start = first;
        }
        read.push(token);
    }
    (read, operators)
}

pub fn distances(source: &Arc<Source>, tokens: Vec<TokenWithSpan>) -> Vec<Distance> {
    let (tokens, operators) = as_operators(source, tokens);
    let operators = operators.into_iter().map(|(index, operator)| Distance {
        operator,
        start: source.start(&tokens[index]),
        left: before(source, &tokens, index),
        right: operand(source, up_to_comma(&tokens[index + 1..])).map(|(operand, _)| operand),
    });
    operators.collect()
}

/// The tokens before the comma, or the bracket, that ends the item that begins with the first.
fn up_to_comma(tokens: &[TokenWithSpan]) -> &[TokenWithSpan] {
    let mut open = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token.token {
            Token::LParen | Token::LBracket | Token::LBrace => open += 1,
            Token::RParen | Token::RBracket | Token::RBrace if open > 0 => open -= 1,
            Token::RParen | Token::RBracket | Token::RBrace => return &tokens[..index],
            Token::Comma | Token::SemiColon if open == 0 => return &tokens[..index],
            _ => {}
        }
    }
    tokens
}

/// Words that no operand begins with: parentheses after them do not belong to a call.
const NO_OPERANDS: [Keyword; 30] = [
    Keyword::ALL,
    Keyword::AND,
    Keyword::ANY,
    Keyword::AS,
    Keyword::ASC,
    Keyword::BETWEEN,
    Keyword::BY,
    Keyword::DESC,
    Keyword::DISTINCT,
    Keyword::ELSE,
    Keyword::EXCEPT,
    Keyword::FROM,
    Keyword::HAVING,
    Keyword::IN,
    Keyword::INTERSECT,
    Keyword::IS,
    Keyword::JOIN,
    Keyword::LIKE,
    Keyword::LIMIT,
    Keyword::OFFSET,
    Keyword::ON,
    Keyword::OR,
    Keyword::QUALIFY,
    Keyword::RETURNING,
    Keyword::SELECT,
    Keyword::SET,
    Keyword::THEN,
    Keyword::UNION,
    Keyword::WHEN,
    Keyword::WHERE,
];

/// The longest operand that ends before a token.
fn before(source: &Arc<Source>, tokens: &[TokenWithSpan], end: usize) -> Option<Operand> {
    let mut left = None;
    let mut open = 0_usize;
    for start in (0..end).rev() {
        match tokens[start].token {
            Token::RParen | Token::RBracket | Token::RBrace => open += 1,
            Token::LParen | Token::LBracket | Token::LBrace if open == 0 => break,
            Token::LParen | Token::LBracket | Token::LBrace => open -= 1,
            Token::Comma | Token::SemiColon if open == 0 => break,
            _ => {}
        }
        if open > 0 {
            continue;
        }
        if let Some((operand, length)) = operand(source, &tokens[start..=end])
            && start + length == end
        {
            left = Some(operand);
        }
    }
    left
}

/// The operand that begins with the first token, and how many tokens it is.
fn operand(source: &Arc<Source>, tokens: &[TokenWithSpan]) -> Option<(Operand, usize)> {
    if let Token::Word(word) = &tokens.first()?.token
        && word.quote_style.is_none()
        && NO_OPERANDS.contains(&word.keyword)
    {
        return None;
    }
    let mut reader = Reader::new(Arc::clone(source), tokens.to_vec());
    let precedence = precedence(Precedence::Caret);
    let read = reader.expression_by(|parser| parser.parse_subexpr(precedence)).ok()?;
    let Expression { part, expr, .. } = read;
    let (kind, value) = kind_of(source, &expr);
    Some((Operand { part, kind, value }, reader.parser.index()))
}

fn kind_of(source: &Source, expr: &Expr) -> (&'static str, String) {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => {
                ("text", text.clone())
            }
            Value::Placeholder(name) => ("parameter", name.clone()),
            _ => ("other", String::new()),
        },
        Expr::Array(_) => ("list", String::new()),
        Expr::Identifier(name) => ("column", source.name(name)),
        Expr::CompoundIdentifier(names) => {
            ("column", names.last().map(|name| source.name(name)).unwrap_or_default())
        }
        Expr::Cast { expr, data_type, .. }
            if data_type.to_string().to_ascii_lowercase().starts_with("vector") =>
        {
            kind_of(source, expr)
        }
        _ => ("other", String::new()),
    }
}
