//! Conditions that the host copies over the keys of a join: where `a.body = b.body`, what it filters
//! `a.body` by it filters `b.body` by, too. Tables say which of theirs mean another thing there.

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_ffi::execution_plan::FFI_ExecutionPlan;
use datafusion_physical_plan::ExecutionPlan;

use crate::host::plan::{WITH_SUBQUERIES, children_of, name_of, own};
use crate::mount::exec::MountedExec;

/// Nodes of several children that don't compare the rows of one with those of another.
const SIDE_BY_SIDE: [&str; 3] = ["InterleaveExec", "UnionExec", WITH_SUBQUERIES];

/// The scans in a plan with such conditions. An error if two of them are joined that object.
pub fn check_copies(plan: &FFI_ExecutionPlan) -> Result<Vec<Arc<dyn ExecutionPlan>>> {
    if let Some(own) = own(plan)? {
        let is_one = own.downcast_ref::<MountedExec>().map(MountedExec::matches_texts);
        return Ok(if is_one.transpose()? == Some(true) { vec![own] } else { vec![] });
    }
    let joins = !SIDE_BY_SIDE.contains(&name_of(plan).as_str());
    let mut found: Vec<Arc<dyn ExecutionPlan>> = vec![];
    for child in children_of(plan) {
        let here = check_copies(&child)?;
        let pairs = found.iter().flat_map(|one| here.iter().map(move |other| (one, other)));
        for (one, other) in pairs.filter(|_| joins) {
            let pair = (one.downcast_ref::<MountedExec>(), other.downcast_ref::<MountedExec>());
            if let (Some(one), Some(other)) = pair {
                one.check_beside(other)?;
            }
        }
        found.extend(here);
    }
    Ok(found)
}
