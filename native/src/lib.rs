//! Mounts Python plans in DataFusion. What a plan means is Python's business; nothing here knows
//! of regions or generations.

mod arrow_bridge;
mod buffers;
mod errors;
mod exec;
mod filter_text;
mod insert;
mod join_effect;
mod leftovers;
mod metrics;
mod predicate;
mod priority;
mod provider;
mod rows;
mod runtime;
mod sealed;
mod sealed_table;
mod text;
mod threads;
mod vectors;

use pyo3::prelude::*;

#[pymodule]
#[pyo3(name = "_native")]
fn memwal_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("DATAFUSION_MAJOR", datafusion_ffi::version())?;
    module.add_class::<provider::MountedTable>()?;
    module.add_class::<predicate::Predicate>()?;
    module.add_class::<leftovers::LeftoverRule>()?;
    module.add_class::<arrow_bridge::ArrowStream>()?;
    module.add_function(wrap_pyfunction!(priority::take_long_turns, module)?)?;
    module.add_function(wrap_pyfunction!(priority::take_turns_often, module)?)?;
    rows::register(module)?;
    text::register(module)?;
    vectors::register(module)?;
    module.add_function(wrap_pyfunction!(errors::remember_raised, module)?)?;
    module.add_function(wrap_pyfunction!(errors::recall, module)?)
}
