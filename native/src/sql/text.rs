//! SQL text as DataFusion's parser reads it.

use std::ops::ControlFlow;

use datafusion_sql::parser::{CopyToSource, Statement};
use datafusion_sql::sqlparser::ast::{Expr, Visit, Visitor};
use pyo3::prelude::*;

/// A text that has been parsed.
#[pyclass(frozen, module = "memwal_native")]
pub struct SqlText {
    pub tree: Tree,
}

/// Statements, or one expression.
pub enum Tree {
    Statements(Vec<Statement>),
    Expression(Box<Expr>),
}

impl Tree {
    pub fn visit<V: Visitor>(&self, visitor: &mut V) -> ControlFlow<V::Break> {
        match self {
            Self::Statements(statements) => {
                statements.iter().try_for_each(|statement| visit(statement, visitor))
            }
            Self::Expression(expression) => expression.visit(visitor),
        }
    }
}

#[pymethods]
impl SqlText {
    /// Whether it calls functions, so that it may mean something else at each evaluation, as
    /// `now()` does.
    fn calls_functions(&self) -> bool {
        self.tree.visit(&mut Calls).is_break()
    }
}

fn visit<V: Visitor>(statement: &Statement, visitor: &mut V) -> ControlFlow<V::Break> {
    match statement {
        Statement::Statement(inner) => inner.visit(visitor),
        Statement::Explain(explained) => visit(&explained.statement, visitor),
        Statement::CopyTo(copy) => match &copy.source {
            CopyToSource::Query(query) => query.visit(visitor),
            CopyToSource::Relation(name) => visitor.pre_visit_relation(name),
        },
        _ => ControlFlow::Continue(()),
    }
}

struct Calls;

impl Visitor for Calls {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(_) => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}
