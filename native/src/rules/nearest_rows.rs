//! `ORDER BY` a distance `LIMIT k` above a scan, where the table may yield just the rows that can be
//! among the first `k`.
//!
//! The host's sort, limit and projections stay in the plan, and whatever they say of ties, further
//! keys and offsets. Only the scan below them is replaced, where its rows get there as they are.

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_ffi::execution_plan::FFI_ExecutionPlan;
use datafusion_physical_plan::work_table::WorkTableExec;
use datafusion_physical_plan::{ExecutionPlan, PhysicalExpr, StatisticsArgs, StatisticsContext};

use crate::host::plan::{
    PROJECTION, children_of, expressions_of, is_own, name_of, only_child, own, properties_of,
    schema_of, with_children,
};
use crate::mount::exec::{MountedExec, Nearest};
use crate::mount::ffi_plan::make_lean;
use crate::rules::distance_key::{Distance, Key, Metric};

const TOP_K: &str = "SortExec(TopK)";
/// Nodes that yield all of their child's rows as they are. Not those that bring partitions or batches
/// together: they may stop after some rows, which can't be seen.
const PASSING: [&str; 3] = ["BufferExec", "CooperativeExec", "RepartitionExec"];

/// The plan with scans replaced; None where there is nothing to replace.
pub fn with_nearest_rows(plan: &FFI_ExecutionPlan) -> Result<Option<FFI_ExecutionPlan>> {
    if is_own(plan) {
        return Ok(None);
    }
    if name_of(plan) == TOP_K
        && let Some(sort) = over_nearest_rows(plan)?
    {
        return Ok(Some(sort));
    }
    let (mut children, mut found) = (vec![], false);
    for child in children_of(plan) {
        let other = with_nearest_rows(&child)?;
        found |= other.is_some();
        children.push(other.unwrap_or(child));
    }
    if found { with_children(plan, children).map(Some) } else { Ok(None) }
}

/// A sort for the first few, over the nearest rows in place of a scan.
fn over_nearest_rows(sort: &FFI_ExecutionPlan) -> Result<Option<FFI_ExecutionPlan>> {
    let Some(Ordered { scan, distance, between }) = ordered_scan(sort)? else {
        return Ok(None);
    };
    let Some(mounted) = scan.downcast_ref::<MountedExec>() else {
        return Ok(None);
    };
    let properties = properties_of(sort)?;
    let Some(first) = properties.output_ordering().map(|ordering| ordering.first()) else {
        return Ok(None);
    };
    let keys = physical_expressions(sort)?;
    let is_key = keys.first().is_some_and(|key| key.to_string() == first.expr.to_string());
    let least_first = first.options.descending == distance.negated;
    if !is_key || least_first != (distance.metric != Metric::Dot) {
        return Ok(None);
    }
    let Some(k) = fetch_of(sort)? else {
        return Ok(None);
    };
    let asked = Nearest {
        column: scan.schema().field(distance.column).name().clone(),
        metric: distance.metric.name(),
        query: distance.query,
        k,
        nulls_first: first.options.nulls_first,
    };
    let Some(nearest) = mounted.nearest(&asked)? else {
        return Ok(None);
    };
    let mut plan = make_lean(nearest);
    for node in between.iter().rev() {
        plan = with_children(node, vec![plan])?;
    }
    with_children(sort, vec![plan]).map(Some)
}

/// A scan that a sort's first key is a distance of.
struct Ordered {
    scan: Arc<dyn ExecutionPlan>,
    /// By the scan's columns.
    distance: Distance,
    /// The nodes between the sort and the scan, the highest first.
    between: Vec<FFI_ExecutionPlan>,
}

fn ordered_scan(sort: &FFI_ExecutionPlan) -> Result<Option<Ordered>> {
    let (mut between, mut node) = (vec![], only_child(sort));
    let mut key = match (physical_expressions(sort)?.first(), &node) {
        (Some(key), Some(child)) => Key::of(key, &schema_of(child)?),
        _ => None,
    };
    while let (Some(known), Some(plan)) = (key.take(), node.take()) {
        if let Some(scan) = own(&plan)? {
            let Key::Distance(distance) = known else {
                return Ok(None);
            };
            return Ok(Some(Ordered { scan, distance, between }));
        }
        let name = name_of(&plan);
        node = only_child(&plan);
        if name == PROJECTION {
            if let Some(child) = &node {
                key = known.below(&physical_expressions(&plan)?, &schema_of(child)?);
            }
        } else if PASSING.contains(&name.as_str()) {
            key = Some(known);
        }
        between.push(plan);
    }
    Ok(None)
}

fn physical_expressions(plan: &FFI_ExecutionPlan) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    Ok(expressions_of(plan)?.iter().map(<Arc<dyn PhysicalExpr>>::from).collect())
}

/// How many rows a sort keeps; None if it keeps all. A foreign plan does not show its `fetch`, but
/// over an input of unknown length the sort expects as many rows.
fn fetch_of(sort: &FFI_ExecutionPlan) -> Result<Option<usize>> {
    let Some(child) = only_child(sort) else {
        return Ok(None);
    };
    let unknown = WorkTableExec::new("unknown".to_owned(), schema_of(&child)?, None)?;
    let unknown = FFI_ExecutionPlan::new(Arc::new(unknown), None);
    let sort = <Arc<dyn ExecutionPlan>>::try_from(&with_children(sort, vec![unknown])?)?;
    let expected = StatisticsContext::new().compute(sort.as_ref(), &StatisticsArgs::new())?;
    Ok(expected.num_rows.get_value().copied())
}
