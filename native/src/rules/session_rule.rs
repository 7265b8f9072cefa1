//! The rule by which a session has this library look at finished plans.
//!
//! Only names, children and expressions of the host's nodes can be seen from here.
//! `datafusion-ffi` would rebuild the whole plan and the whole configuration of the host on this
//! side, and wrap what comes back without what `ffi_plan` does. So the rule's table of functions gets
//! shorter ones, which walk through the host's: some microseconds a query.

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_common::config::ConfigOptions;
use datafusion_ffi::config::FFI_ConfigOptions;
use datafusion_ffi::execution_plan::FFI_ExecutionPlan;
use datafusion_ffi::physical_optimizer::{FFI_PhysicalOptimizerContext, FFI_PhysicalOptimizerRule};
use datafusion_ffi::util::FFI_Result;
use datafusion_physical_plan::ExecutionPlan;
use datafusion_session::PhysicalOptimizerRule;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::mount::ffi_plan::make_lean;
use crate::python::errors::guarded;
use crate::rules::copied_conditions::check_copies;
use crate::rules::unpushed_filters::substitute;

const NAME: &str = "memwal";

/// The rule in the form that `SessionContext.add_physical_optimizer_rule` takes.
#[pyclass(frozen, module = "memwal_native")]
pub struct SessionRule;

#[pymethods]
impl SessionRule {
    #[new]
    fn new() -> Self {
        Self
    }

    fn __datafusion_physical_optimizer_rule__<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let rule = quick(FFI_PhysicalOptimizerRule::new(Arc::new(Rule), None));
        PyCapsule::new_with_value(py, rule, c"datafusion_physical_optimizer_rule")
    }
}

/// The rule as this library itself runs it, over the input of an INSERT.
#[derive(Debug)]
struct Rule;

impl PhysicalOptimizerRule for Rule {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let foreign = FFI_ExecutionPlan::new(Arc::clone(&plan), None);
        match changed(&foreign)? {
            Some(other) => <Arc<dyn ExecutionPlan>>::try_from(&other),
            None => Ok(plan),
        }
    }

    fn name(&self) -> &str {
        NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The rule with the shorter functions, of which `clone` is one: a session keeps a clone.
fn quick(mut rule: FFI_PhysicalOptimizerRule) -> FFI_PhysicalOptimizerRule {
    rule.clone = clone;
    rule.optimize = optimize;
    rule.optimize_with_context = optimize_with_context;
    rule
}

unsafe extern "C" fn clone(_: &FFI_PhysicalOptimizerRule) -> FFI_PhysicalOptimizerRule {
    quick(FFI_PhysicalOptimizerRule::new(Arc::new(Rule), None))
}

unsafe extern "C" fn optimize(
    _: &FFI_PhysicalOptimizerRule,
    plan: &FFI_ExecutionPlan,
    _: FFI_ConfigOptions,
) -> FFI_Result<FFI_ExecutionPlan> {
    optimized(plan)
}

unsafe extern "C" fn optimize_with_context(
    _: &FFI_PhysicalOptimizerRule,
    plan: &FFI_ExecutionPlan,
    _: &FFI_PhysicalOptimizerContext,
) -> FFI_Result<FFI_ExecutionPlan> {
    optimized(plan)
}

fn optimized(plan: &FFI_ExecutionPlan) -> FFI_Result<FFI_ExecutionPlan> {
    match guarded(|| changed(plan)) {
        Ok(None) => FFI_Result::Ok(plan.clone()),
        Ok(Some(other)) => FFI_Result::Ok(other),
        Err(error) => FFI_Result::Err(error.to_string().as_str().into()),
    }
}

/// The plan to run instead, if there is one.
fn changed(plan: &FFI_ExecutionPlan) -> Result<Option<FFI_ExecutionPlan>> {
    check_copies(plan)?;
    Ok(substitute(plan, plan, None)?.map(make_lean))
}
