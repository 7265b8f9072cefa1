//! Finds `x NOT IN (SELECT ...)` for which DataFusion 55 ignores NULLs of the subquery.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, Select, TableFactor, UnaryOperator, Visit, Visitor,
};

use crate::sql::tables::normal;

/// The conditions of a query in which DataFusion takes an unknown membership for a known one.
///
/// DataFusion is right for `IN`, except below NOT, IS NULL and the like, and for `NOT IN` as a
/// conjunct of a WHERE, with a column on its left and a subquery that names no outer table.
#[derive(Default)]
pub struct Misread {
    pub found: Vec<String>,
    /// The addresses of expressions that are right in their places.
    right: HashSet<*const Expr>,
}

impl Misread {
    fn conjunct(&mut self, expr: &Expr) {
        match expr {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                self.conjunct(left);
                self.conjunct(right);
            }
            Expr::Nested(inner) => self.conjunct(inner),
            Expr::UnaryOp { op: UnaryOperator::Not, expr: inner } => {
                if let Expr::InSubquery { expr: value, subquery, negated: false } = bare(inner)
                    && is_right(value, subquery)
                {
                    self.right.insert(std::ptr::from_ref(expr));
                }
            }
            Expr::InSubquery { expr: value, subquery, negated: true }
                if is_right(value, subquery) =>
            {
                self.right.insert(std::ptr::from_ref(expr));
            }
            _ => {}
        }
    }
}

impl Visitor for Misread {
    type Break = ();

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        if let Some(condition) = &select.selection {
            self.conjunct(condition);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let tells_unknown = match expr {
            Expr::InSubquery { negated, .. } => *negated,
            Expr::UnaryOp { op: UnaryOperator::Not, .. }
            | Expr::IsNull(_)
            | Expr::IsNotNull(_)
            | Expr::IsFalse(_)
            | Expr::IsNotFalse(_)
            | Expr::IsUnknown(_)
            | Expr::IsNotUnknown(_)
            | Expr::Cast { .. } => Names::of(expr).memberships,
            Expr::Function(function) => Names::of(&function.args).memberships,
            Expr::Case { operand, conditions, else_result, .. } => {
                let results = conditions.iter().map(|when| &when.result);
                let values = operand.as_deref().into_iter().chain(else_result.as_deref());
                results.chain(values).any(|value| Names::of(value).memberships)
            }
            Expr::BinaryOp { left, op, right }
                if !matches!(op, BinaryOperator::And | BinaryOperator::Or) =>
            {
                Names::of(left).memberships || Names::of(right).memberships
            }
            _ => false,
        };
        if tells_unknown && !self.right.contains(&std::ptr::from_ref(expr)) {
            self.found.push(expr.to_string());
        }
        ControlFlow::Continue(())
    }
}

fn bare(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => bare(inner),
        other => other,
    }
}

fn is_right(value: &Expr, subquery: &Query) -> bool {
    Names::of(value).columns && !Names::of(subquery).leads_out()
}

/// The expressions in a part of a query.
#[derive(Default)]
pub struct Names {
    depth: usize,
    /// Whether columns, and memberships, stand outside of its subqueries.
    columns: bool,
    memberships: bool,
    tables: HashSet<String>,
    qualifiers: HashSet<String>,
}

impl Names {
    pub fn of(part: &impl Visit) -> Self {
        let mut names = Self::default();
        let _ = part.visit(&mut names);
        names
    }

    pub fn leads_out(&self) -> bool {
        !self.qualifiers.is_subset(&self.tables)
    }
}

impl Visitor for Names {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        let alias = match factor {
            TableFactor::Table { name, alias, .. } => {
                let last = name.0.last().and_then(|part| part.as_ident());
                self.tables.extend(last.map(normal));
                alias
            }
            TableFactor::Derived { alias, .. }
            | TableFactor::TableFunction { alias, .. }
            | TableFactor::UNNEST { alias, .. }
            | TableFactor::Function { alias, .. }
            | TableFactor::NestedJoin { alias, .. } => alias,
            _ => &None,
        };
        self.tables.extend(alias.iter().map(|alias| normal(&alias.name)));
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(_) => self.columns |= self.depth == 0,
            Expr::CompoundIdentifier(parts) => {
                self.columns |= self.depth == 0;
                self.qualifiers.extend(parts.iter().rev().nth(1).map(normal));
            }
            Expr::InSubquery { .. } => self.memberships |= self.depth == 0,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}
