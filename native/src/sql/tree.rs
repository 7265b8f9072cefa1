//! Statements as Python sees them: names, clauses and expressions, each a part of the user's text.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion_sql::sqlparser::ast::{Expr, Query, Visit, Visitor};
use pyo3::prelude::*;

use crate::sql::source::Source;

/// Shows a tree as text with all of its fields.
macro_rules! shown {
    ($($name:ident),*) => {
        $(#[pyo3::pymethods]
        impl $name {
            fn __repr__(&self) -> String {
                format!("{self:?}")
            }
        })*
    };
}
pub(crate) use shown;

shown!(Call, Delete, Insert, Merge, Transaction, Truncate, Update, Variable);

/// Characters of the text: `text` is `source[start:end]`.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Part {
    pub text: String,
    pub start: usize,
    pub end: usize,
}

/// The name of a table or a column; `parts` are as a session looks them up.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Reference {
    pub parts: Vec<String>,
    pub text: String,
    pub start: usize,
    pub end: usize,
}

#[pyclass(frozen, skip_from_py_object, module = "memwal_native")]
#[derive(Clone)]
pub struct Expression {
    pub part: Part,
    pub expr: Arc<Expr>,
    pub source: Arc<Source>,
}

impl fmt::Debug for Expression {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "`{}`", self.part.text)
    }
}

#[pymethods]
impl Expression {
    #[getter]
    fn text(&self) -> &str {
        &self.part.text
    }

    #[getter]
    fn start(&self) -> usize {
        self.part.start
    }

    /// The column, with its table, if the expression is only that.
    #[getter]
    fn column(&self) -> Option<Vec<String>> {
        self.names(&self.expr)
    }

    /// The columns in it, including its subqueries'.
    #[getter]
    fn columns(&self) -> Vec<Reference> {
        let mut columns = Vec::new();
        let _ = self.expr.visit(&mut Columns { expression: self, columns: &mut columns });
        columns
    }

    #[getter]
    pub fn has_query(&self) -> bool {
        self.expr.visit(&mut Queries).is_break()
    }

    /// Whether it makes several rows of one, by `unnest` outside of its subqueries.
    #[getter]
    fn unnests(&self) -> bool {
        self.expr.visit(&mut Unnests::default()).is_break()
    }
}

impl Expression {
    fn names(&self, expr: &Expr) -> Option<Vec<String>> {
        match expr {
            Expr::Identifier(name) => Some(vec![self.source.name(name)]),
            Expr::CompoundIdentifier(names) => {
                Some(names.iter().map(|name| self.source.name(name)).collect())
            }
            _ => None,
        }
    }
}

struct Columns<'a> {
    expression: &'a Expression,
    columns: &'a mut Vec<Reference>,
}

impl Visitor for Columns<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let source = &self.expression.source;
        let place = match expr {
            Expr::Identifier(name) => source.span(std::slice::from_ref(name)),
            Expr::CompoundIdentifier(names) => source.span(names),
            _ => None,
        };
        if let (Some(parts), Some((start, end))) = (self.expression.names(expr), place) {
            let text = source.slice(start, end).to_owned();
            self.columns.push(Reference { parts, text, start, end });
        }
        ControlFlow::Continue(())
    }
}

struct Queries;

impl Visitor for Queries {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

#[derive(Default)]
struct Unnests {
    depth: usize,
}

impl Visitor for Unnests {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function)
                if self.depth == 0
                    && function
                        .name
                        .to_string()
                        .trim_matches('"')
                        .eq_ignore_ascii_case("unnest") =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// An item of RETURNING. `star` has the table of `t.*`, and nothing for `*`; None for expressions.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Item {
    pub text: String,
    pub start: usize,
    pub star: Option<Vec<String>>,
    pub expression: Option<Expression>,
}

/// `column = value`.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Assignment {
    pub column: Reference,
    pub value: Expression,
}

#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Delete {
    pub target: Reference,
    pub alias: Option<String>,
    pub others: Option<Part>,
    pub condition: Option<Expression>,
    pub returning: Option<Vec<Item>>,
}

#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Truncate {
    pub target: Reference,
}

#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Update {
    pub target: Reference,
    pub alias: Option<String>,
    pub sets: Vec<Assignment>,
    pub others: Option<Part>,
    pub condition: Option<Expression>,
    pub returning: Option<Vec<Item>>,
}

/// INSERT and REPLACE. `mode` is "INSERT", "OVERWRITE" or "REPLACE"; `rows` has the cells of a
/// plain VALUES: the text of each, and the kind of literal, "query" or "other".
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Insert {
    pub mode: &'static str,
    pub target: Reference,
    pub alias: Option<String>,
    pub columns: Option<Vec<Reference>>,
    pub by_name: bool,
    pub query: Part,
    pub rows: Option<Vec<Vec<Cell>>>,
    pub conflict: Option<Conflict>,
    pub returning: Option<Vec<Item>>,
}

pub type Cell = (String, String);

/// ON CONFLICT; `sets` is None for DO NOTHING.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Conflict {
    pub start: usize,
    pub key: Option<Vec<Reference>>,
    pub sets: Option<Vec<Assignment>>,
    pub condition: Option<Expression>,
}

/// MERGE. `equalities` are the sides of `a = b` among the conjuncts of `on`; `conjuncts` is their
/// number.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Merge {
    pub target: Reference,
    pub alias: Option<String>,
    pub source: Part,
    pub source_name: Option<String>,
    pub on: Expression,
    pub equalities: Vec<(Expression, Expression)>,
    pub conjuncts: usize,
    pub whens: Vec<When>,
    pub returning: Option<Vec<Item>>,
}

/// A clause of MERGE. `of` is "matched", "new" or "alone"; `action` is "INSERT", "UPDATE", "DELETE",
/// or empty for DO NOTHING; `star` has the place of `*`.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct When {
    pub start: usize,
    pub of: &'static str,
    pub condition: Option<Expression>,
    pub action: &'static str,
    pub star: Option<usize>,
    pub sets: Vec<Assignment>,
    pub columns: Option<Vec<Reference>>,
    pub values: Vec<Expression>,
}

/// CALL; arguments without a name have an empty one.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Call {
    pub name: Reference,
    pub arguments: Vec<(String, Expression)>,
}

/// SET, SHOW or RESET of a variable.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Variable {
    pub name: Reference,
    pub value: Option<String>,
}

/// BEGIN, COMMIT or ROLLBACK of a transaction; `level` is its isolation level, in lower case.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct Transaction {
    pub action: &'static str,
    pub level: Option<&'static str>,
    pub reads_only: bool,
}
