//! SQL text as DataFusion's parser reads it.

use std::ops::ControlFlow;

use datafusion_sql::parser::{CopyToSource, Statement};
use datafusion_sql::sqlparser::ast::{Expr, Visit, Visitor};
use pyo3::prelude::*;

use crate::sql::memberships;
use crate::sql::tables::{Placed, Tables};

/// Statements, or one expression.
#[pyclass(frozen, module = "memwal_native")]
pub struct SqlText {
    pub text: String,
    pub parsed: Parsed,
    pub normalizes: bool,
}

pub enum Parsed {
    Statements(Vec<Statement>),
    Expression(Expr),
}

impl SqlText {
    fn visit<V: Visitor>(&self, visitor: &mut V) -> ControlFlow<V::Break> {
        match &self.parsed {
            Parsed::Statements(statements) => {
                statements.iter().try_for_each(|one| visit(one, visitor))
            }
            Parsed::Expression(expression) => expression.visit(visitor),
        }
    }
}

#[pymethods]
impl SqlText {
    fn tables(&self) -> Vec<Placed> {
        let mut tables = Tables::new(self.normalizes);
        let _ = self.visit(&mut tables);
        tables.placed(&self.text)
    }

    fn misread_memberships(&self) -> Vec<String> {
        let mut misread = memberships::Misread::default();
        let _ = self.visit(&mut misread);
        misread.found
    }

    /// Whether it calls functions, so that it may mean something else each time it is asked, as
    /// `now()` does.
    fn calls_functions(&self) -> bool {
        self.visit(&mut Calls).is_break()
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
