//! A filter as SQL text, to be shown: nobody reads it to find out what the filter means.

use std::collections::HashSet;
use std::sync::LazyLock;

use datafusion_expr::Expr;
use datafusion_sql::sqlparser::keywords::ALL_KEYWORDS;
use datafusion_sql::unparser::Unparser;
use datafusion_sql::unparser::dialect::Dialect;

use crate::filters::shallow::{chain, connective, is_within};

/// Levels that are printed as SQL: each takes some eighty kilobytes of stack.
const DEEPEST: usize = 8;

/// The text of `filter`, a shallow one; None where SQL has no words for it.
pub fn sql_of(filter: &Expr) -> Option<String> {
    if let Some(op) = connective(filter) {
        let parts: Option<Vec<_>> = chain(filter, op).into_iter().map(sql_of).collect();
        return Some(format!("({})", parts?.join(&format!(" {op} "))));
    }
    if let Expr::Not(argument) = filter {
        return Some(format!("NOT {}", sql_of(argument)?));
    }
    if !is_within(filter, DEEPEST) {
        return Some(filter.to_string());
    }
    Unparser::new(&PlainDialect).expr_to_sql(filter).ok().map(|sql| sql.to_string())
}

/// Writes what DataFusion's default dialect writes. That one compiles a regular expression for
/// every name, which takes longer than all other work on a filter.
struct PlainDialect;

static KEYWORDS: LazyLock<HashSet<&str>> = LazyLock::new(|| ALL_KEYWORDS.iter().copied().collect());

impl Dialect for PlainDialect {
    fn identifier_quote_style(&self, name: &str) -> Option<char> {
        let starts = name.starts_with(|c: char| c == '_' || c.is_ascii_lowercase());
        let plain = |c: char| c == '_' || c.is_ascii_lowercase() || c.is_ascii_digit();
        // A keyword of one dialect only, and the commonest name of a key.
        let keyword = name != "id" && KEYWORDS.contains(name.to_ascii_uppercase().as_str());
        (!starts || !name.chars().all(plain) || keyword).then_some('"')
    }
}
