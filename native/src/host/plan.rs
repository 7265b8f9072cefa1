//! The visible parts of the host's plans: names, children, expressions and schemas of nodes.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use datafusion_ffi::execution_plan::FFI_ExecutionPlan;
use datafusion_ffi::physical_expr::FFI_PhysicalExpr;
use datafusion_ffi::{df_result, get_library_marker_id};
use datafusion_physical_plan::{ExecutionPlan, PlanProperties};
use stabby::vec::Vec as FfiVec;

pub const PROJECTION: &str = "ProjectionExec";
/// Yields its first child's rows; the others are queries of their own.
pub const WITH_SUBQUERIES: &str = "ScalarSubqueryExec";

/// A node as it is in this library, if it is one of this library's.
pub fn own(plan: &FFI_ExecutionPlan) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    if (plan.library_marker_id)() != get_library_marker_id() {
        return Ok(None);
    }
    <Arc<dyn ExecutionPlan>>::try_from(plan).map(Some)
}

pub fn name_of(plan: &FFI_ExecutionPlan) -> String {
    // SAFETY: the function that the plan was made with, here and below.
    unsafe { (plan.name)(plan) }.as_str().to_owned()
}

pub fn children_of(plan: &FFI_ExecutionPlan) -> Vec<FFI_ExecutionPlan> {
    // SAFETY: as above.
    unsafe { (plan.children)(plan) }.into_iter().collect()
}

pub fn expressions_of(plan: &FFI_ExecutionPlan) -> Result<FfiVec<FFI_PhysicalExpr>> {
    // SAFETY: as above.
    df_result!(unsafe { (plan.apply_expressions)(plan) })
}

pub fn schema_of(plan: &FFI_ExecutionPlan) -> Result<SchemaRef> {
    // SAFETY: as above.
    let properties = PlanProperties::try_from(unsafe { (plan.properties)(plan) })?;
    Ok(Arc::clone(properties.eq_properties.schema()))
}
