//! The depth that the tree of SQL text may have, counted over its tokens.
//!
//! The parser limits nesting by brackets and prefixes. But of operators in a row, such as `a OR b
//! OR c`, it makes a tree just as deep: recursive code that walks or drops it overruns the stack,
//! which ends the process, and some of the planner's work is cubic or worse in the depth.

use datafusion_sql::sqlparser::keywords::Keyword;
use datafusion_sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// The deepest tree, in steps. With DataFusion 55 and a stack of 2 MiB, rows of one operator end the
/// process from 1,900 of OR and AND on, 2,000 of UNION, 900 of WITH, 450 of IS TRUE, 350 of EXCEPT
/// and EXPLAIN. 600 `+` are planned in 4 s, 150 JOINs in 1.2 s, and each further BETWEEN takes twice
/// the time of all before: 0.5 s for 12.
const DEEPEST: usize = 500;

/// The depth that a bracket adds to its contents.
const BRACKET: usize = 4;

/// The rank of an operator, from the loosest: everything between two operators of a rank is in the
/// tree below them.
#[derive(Clone, Copy, PartialEq)]
enum Rank {
    Sets,
    Tables,
    Items,
    Conditions,
    Values,
}

const RANKS: usize = Rank::Values as usize + 1;

/// Whether a tree of these tokens could get deeper than a stack has room for.
pub fn is_too_deep(tokens: &[TokenWithSpan]) -> bool {
    let mut open = vec![Level::default()];
    let mut before = &Token::EOF;
    for token in tokens.iter().map(|one| &one.token) {
        let brackets = open.len() - 1;
        let Some(level) = open.last_mut() else {
            return true;
        };
        match token {
            Token::Whitespace(_) => continue,
            Token::SemiColon if brackets == 0 => {
                if level.depth(0) > DEEPEST {
                    return true;
                }
                *level = Level::default();
            }
            Token::LParen | Token::LBracket | Token::LBrace => {
                if *token == Token::LBracket {
                    level.add(Rank::Values, 4); // an element, or a type of lists
                } else if is_keyword(before, &[Keyword::AS, Keyword::MATERIALIZED]) {
                    level.add(Rank::Tables, 4); // a query of WITH, which those after it may read
                }
                open.push(Level::default());
                if (brackets + 1) * BRACKET > DEEPEST {
                    return true;
                }
            }
            Token::RParen | Token::RBracket | Token::RBrace if brackets > 0 => {
                let inner = open.pop().map_or(0, |level| level.depth(0));
                if let Some(level) = open.last_mut() {
                    level.hold(inner + BRACKET);
                }
            }
            Token::Lt if is_keyword(before, &[Keyword::STRUCT, Keyword::ARRAY, Keyword::MAP]) => {
                level.add(Rank::Tables, 4); // a type, which has fields between commas
            }
            Token::Word(word) if word.quote_style.is_none() && *before != Token::Period => {
                level.word(word.keyword);
            }
            Token::Comma if level.lists_tables => level.add(Rank::Tables, 4),
            Token::Comma => level.add(Rank::Items, 0),
            Token::VerticalBarRightAngleBracket => {
                level.lists_tables = false;
                level.add(Rank::Tables, 4);
            }
            Token::Word(_)
            | Token::Period
            | Token::Number(..)
            | Token::Placeholder(_)
            | Token::SingleQuotedString(_)
            | Token::DoubleQuotedString(_)
            | Token::DollarQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::NationalStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::EOF => {}
            _ => level.add(Rank::Values, 4),
        }
        before = token;
    }
    let inner_to_outer = open.iter().rev();
    inner_to_outer.fold(0, |inner, level| BRACKET + level.with(inner).depth(0)) > DEEPEST + BRACKET
}

fn is_keyword(token: &Token, keywords: &[Keyword]) -> bool {
    matches!(token, Token::Word(word) if keywords.contains(&word.keyword))
}

/// The tokens read so far between two brackets.
#[derive(Clone, Default)]
struct Level {
    ranks: [Steps; RANKS],
    /// The BETWEENs whose AND has not come yet.
    ranges: usize,
    /// Whether a comma is a join.
    lists_tables: bool,
}

#[derive(Clone, Copy, Default)]
struct Steps {
    /// The number of operators of this rank since the last one of a lower rank.
    own: usize,
    /// The deepest tree between two of these.
    below: usize,
}

impl Level {
    fn word(&mut self, keyword: Keyword) {
        match keyword {
            Keyword::EXPLAIN => self.add(Rank::Sets, 50),
            Keyword::EXCEPT | Keyword::INTERSECT | Keyword::MINUS => self.add(Rank::Sets, 5),
            Keyword::UNION => self.add(Rank::Sets, 2),
            Keyword::JOIN
            | Keyword::STRAIGHT_JOIN
            | Keyword::APPLY
            | Keyword::PIVOT
            | Keyword::UNPIVOT
            | Keyword::MATCH_RECOGNIZE => self.add(Rank::Tables, 4),
            Keyword::AND if self.ranges > 0 => self.ranges -= 1,
            Keyword::AND | Keyword::OR | Keyword::XOR | Keyword::WHEN => {
                self.add(Rank::Conditions, 1);
            }
            Keyword::BETWEEN => {
                self.ranges += 1;
                self.add(Rank::Values, 50);
            }
            Keyword::IS => self.add(Rank::Values, 8),
            Keyword::AT
            | Keyword::COLLATE
            | Keyword::DIV
            | Keyword::ILIKE
            | Keyword::IN
            | Keyword::LIKE
            | Keyword::MATCH
            | Keyword::MEMBER
            | Keyword::NOT
            | Keyword::NOTNULL
            | Keyword::OPERATOR
            | Keyword::OVERLAPS
            | Keyword::REGEXP
            | Keyword::RLIKE
            | Keyword::SIMILAR => self.add(Rank::Values, 4),
            _ => {}
        }
        match keyword {
            Keyword::FROM | Keyword::USING => self.lists_tables = true,
            Keyword::GROUP
            | Keyword::HAVING
            | Keyword::LIMIT
            | Keyword::ORDER
            | Keyword::SELECT
            | Keyword::WHEN
            | Keyword::WHERE => self.lists_tables = false,
            _ => {}
        }
    }

    fn add(&mut self, rank: Rank, steps: usize) {
        let rank = rank as usize;
        let below = self.depth(rank + 1);
        self.ranks[rank + 1..].fill(Steps::default());
        let Steps { own, below: deepest } = &mut self.ranks[rank];
        *own += steps;
        *deepest = below.max(*deepest);
    }

    /// A tree of this depth stands between two operators.
    fn hold(&mut self, depth: usize) {
        let Steps { below, .. } = &mut self.ranks[Rank::Values as usize];
        *below = depth.max(*below);
    }

    fn with(&self, depth: usize) -> Self {
        let mut level = self.clone();
        level.hold(depth);
        level
    }

    /// The depth of the tree, as far as it consists of operators from a rank on.
    fn depth(&self, rank: usize) -> usize {
        let from_inner = self.ranks[rank..].iter().rev();
        from_inner.fold(0, |inner, steps| steps.own + inner.max(steps.below))
    }
}
