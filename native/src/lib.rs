//! Mounts Python plans in DataFusion. What a plan means is Python's business; nothing here knows
//! of regions or generations.

mod filters;
mod hashing;
mod host;
mod leaf;
mod live;
mod mount;
mod python;
mod rows;
mod rules;
mod sql;
mod text;
mod threads;
mod vectors;

use pyo3::prelude::*;

#[pymodule]
#[pyo3(name = "_native")]
fn memwal_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    python::attached::open();
    module.add_function(wrap_pyfunction!(python::attached::shut_down, module)?)?;
    module.add("DATAFUSION_MAJOR", datafusion_ffi::version())?;
    module.add_class::<mount::mounted_table::MountedTable>()?;
    module.add_class::<mount::resident::ResidentStream>()?;
    module.add_class::<mount::resident::ResidentBatches>()?;
    module.add_class::<mount::resident::StreamCounts>()?;
    module.add_function(wrap_pyfunction!(mount::ffi_table::quick_tables, module)?)?;
    live::register(module)?;
    module.add_class::<filters::predicate::Predicate>()?;
    module.add_function(wrap_pyfunction!(filters::rows::keep_rows, module)?)?;
    module.add_class::<rules::session_rule::SessionRule>()?;
    module.add_class::<python::arrow_bridge::ArrowStream>()?;
    sql::register(module)?;
    hashing::register(module)?;
    rows::register(module)?;
    text::register(module)?;
    vectors::register(module)?;
    module.add_function(wrap_pyfunction!(python::errors::remember_raised, module)?)?;
    module.add_function(wrap_pyfunction!(python::errors::recall, module)?)
}
