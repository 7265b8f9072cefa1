//! Conditions that DataFusion shows to no table, such as those with `random()`: they stand as filters
//! above the scan, and the table is told of them when the plan is complete. It may give another plan
//! to run instead. Joins, semi-joins among them, act on the rows that a table yields.

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_ffi::execution_plan::FFI_ExecutionPlan;
use datafusion_ffi::physical_expr::FFI_PhysicalExpr;
use datafusion_ffi::util::FFI_Result;
use datafusion_physical_plan::ExecutionPlan;
use stabby::vec::Vec as FfiVec;

use crate::host::plan::{WITH_SUBQUERIES, children_of, expressions_of, name_of, own, schema_of};
use crate::mount::exec::MountedExec;

/// Nodes that yield each row of their children as it is, or computed from: a filter above them is
/// one on the rows below. Not those that choose rows themselves (limits, sorts for the best few,
/// joins, aggregates, windows): what stands above these is about their choice.
const ROW_BY_ROW: [&str; 10] = [
    "BufferExec",
    "CoalesceBatchesExec",
    "CoalescePartitionsExec",
    "CooperativeExec",
    "InterleaveExec",
    "ProjectionExec",
    "RepartitionExec",
    "SortExec",
    "SortPreservingMergeExec",
    "UnionExec",
];
const FILTER: &str = "FilterExec";

/// A filter above a node, and what is above it.
#[derive(Clone, Copy)]
pub struct Above<'a> {
    node: &'a FFI_ExecutionPlan,
    rest: Option<&'a Above<'a>>,
}

/// The plan to run instead of `whole`, if a table in `part` of it, which has these nodes above, does
/// not take their conditions.
pub fn substitute(
    whole: &FFI_ExecutionPlan,
    part: &FFI_ExecutionPlan,
    above: Option<&Above>,
) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if let Some(own) = own(part)?
        && let Some(scan) = own.downcast_ref::<MountedExec>()
    {
        if above.is_none() || !scan.asks_of_conditions()? {
            return Ok(None);
        }
        let conditions = conditions(above)?;
        if conditions.is_empty() {
            return Ok(None);
        }
        return scan.instead(conditions, schema_of(whole)?);
    }
    let name = name_of(part);
    for (place, child) in children_of(part).iter().enumerate() {
        let here = Above { node: part, rest: above };
        let above = match name.as_str() {
            FILTER => Some(&here),
            WITH_SUBQUERIES if place > 0 => None,
            WITH_SUBQUERIES => above,
            name if ROW_BY_ROW.contains(&name) => above,
            _ => None,
        };
        let found = substitute(whole, child, above)?;
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// The conditions as SQL would write them, the lowest first.
fn conditions(mut above: Option<&Above>) -> Result<Vec<String>> {
    let mut found = vec![];
    while let Some(Above { node, rest }) = above {
        expressions_of(node)?.iter().for_each(|expression| write(expression, &mut found));
        above = *rest;
    }
    Ok(found)
}

/// Filters that joins and sorts learn as they run do not count: they only leave out rows that would
/// not be used. They may stand in a conjunction with others.
fn write(expression: &FFI_PhysicalExpr, to: &mut Vec<String>) {
    if learned(expression) {
        return;
    }
    let children = children(expression);
    if children.iter().any(learned) {
        children.iter().for_each(|child| write(child, to));
        return;
    }
    // SAFETY: the function that the expression was made with.
    if let FFI_Result::Ok(text) = unsafe { (expression.fmt_sql)(expression) } {
        to.push(text.as_str().to_owned());
    }
}

fn learned(expression: &FFI_PhysicalExpr) -> bool {
    // SAFETY: as above. What changes as a query runs counts its changes, from 1 on.
    let changes = unsafe { (expression.snapshot_generation)(expression) } > 0;
    let children = children(expression);
    changes || (!children.is_empty() && children.iter().all(learned))
}

fn children(expression: &FFI_PhysicalExpr) -> FfiVec<FFI_PhysicalExpr> {
    // SAFETY: as above.
    unsafe { (expression.children)(expression) }
}
