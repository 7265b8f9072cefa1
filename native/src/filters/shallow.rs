//! Filters that nest no deeper than they must.
//!
//! A thousand conditions joined by OR arrive as a tree of a thousand levels, and nearly everything
//! that DataFusion offers for expressions walks through trees by recursion: it would overrun the
//! stack, which ends the process.

use std::collections::BTreeSet;

use datafusion_common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion_common::{Column, Result};
use datafusion_expr::{BinaryExpr, Expr, Operator};

/// Levels that are walked through; a level takes some ten kilobytes of stack.
const DEEPEST: usize = 40;

/// A filter whose columns are named without their table, and the names of these, sorted.
pub struct Shallow {
    /// None if it nests too deep even with its chains of AND and OR balanced.
    pub expr: Option<Expr>,
    pub columns: Vec<String>,
}

pub fn shallow(filter: &Expr) -> Result<Shallow> {
    let mut columns = BTreeSet::new();
    let mut deepest = 0;
    let mut pending = vec![(filter, 0)];
    while let Some((expr, depth)) = pending.pop() {
        deepest = deepest.max(depth);
        if let Expr::Column(column) = expr {
            columns.insert(column.name.as_str());
        } else if let Some(op) = connective(expr) {
            let parts = chain(expr, op);
            let depth = depth + levels(parts.len());
            pending.extend(parts.into_iter().map(|part| (part, depth)));
        } else {
            expr.apply_children(|child| {
                pending.push((child, depth + 1));
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
    }
    let expr = if deepest > DEEPEST { None } else { Some(balanced(filter)?) };
    Ok(Shallow { expr, columns: columns.into_iter().map(str::to_owned).collect() })
}

/// Whether `expr` nests no deeper than `most` levels. It is shallow.
pub fn is_within(expr: &Expr, most: usize) -> bool {
    let mut deeper = vec![(expr, 0)];
    while let Some((expr, depth)) = deeper.pop() {
        if depth > most {
            return false;
        }
        let children = expr.apply_children(|child| {
            deeper.push((child, depth + 1));
            Ok(TreeNodeRecursion::Continue)
        });
        if children.is_err() {
            return false;
        }
    }
    true
}

/// AND or OR, if `expr` is one.
pub fn connective(expr: &Expr) -> Option<Operator> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { op: op @ (Operator::And | Operator::Or), .. }) => Some(*op),
        _ => None,
    }
}

/// The arguments of a chain of ANDs, or of ORs, in order.
pub fn chain(expr: &Expr, op: Operator) -> Vec<&Expr> {
    let mut arguments = vec![];
    let mut pending = vec![expr];
    while let Some(part) = pending.pop() {
        match part {
            Expr::BinaryExpr(binary) if binary.op == op => {
                pending.extend([&*binary.right, &*binary.left]);
            }
            other => arguments.push(other),
        }
    }
    arguments
}

fn levels(arguments: usize) -> usize {
    arguments.next_power_of_two().trailing_zeros() as usize
}

/// A chain is not cloned before it is taken apart: that goes by recursion, too.
fn balanced(expr: &Expr) -> Result<Expr> {
    let Some(op) = connective(expr) else {
        return unqualified(expr.clone());
    };
    let parts = chain(expr, op).into_iter().map(balanced).collect::<Result<Vec<_>>>()?;
    Ok(joined(parts, op))
}

fn unqualified(expr: Expr) -> Result<Expr> {
    let rewritten = expr.map_children(|child| {
        let child =
            if connective(&child).is_some() { balanced(&child) } else { unqualified(child) };
        child.map(Transformed::yes)
    })?;
    Ok(match rewritten.data {
        Expr::Column(column) => Expr::Column(Column::new_unqualified(column.name)),
        other => other,
    })
}

fn joined(mut parts: Vec<Expr>, op: Operator) -> Expr {
    while parts.len() > 1 {
        let mut pairs = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => {
                    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
                }
                None => left,
            });
        }
        parts = pairs;
    }
    parts.swap_remove(0)
}
