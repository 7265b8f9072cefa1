//! Mounts Python plans in DataFusion. What a plan means is Python's business; nothing here knows
//! of regions or generations.

mod arrow_bridge;
mod attached;
mod buffers;
mod distance_key;
mod errors;
mod exec;
mod expressions;
mod ffi_plan;
mod ffi_table;
mod filter_text;
mod filter_tree;
mod hashing;
mod host_plan;
mod insert;
mod metrics;
mod mounted_table;
mod nearest_rows;
mod null_columns;
mod predicate;
mod provider;
mod python_memory;
mod rows;
mod runtime;
mod session_rule;
mod shallow;
mod sql_text;
mod sql_tokens;
mod text;
mod threads;
mod unpushed_filters;
mod vectors;

use pyo3::prelude::*;

#[pymodule]
#[pyo3(name = "_native")]
fn memwal_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    attached::open();
    module.add_function(wrap_pyfunction!(attached::shut_down, module)?)?;
    module.add("DATAFUSION_MAJOR", datafusion_ffi::version())?;
    module.add_class::<mounted_table::MountedTable>()?;
    module.add_class::<predicate::Predicate>()?;
    module.add_class::<session_rule::SessionRule>()?;
    module.add_class::<arrow_bridge::ArrowStream>()?;
    module.add_function(wrap_pyfunction!(sql_text::calls_functions, module)?)?;
    module.add_function(wrap_pyfunction!(sql_text::ignored_clauses, module)?)?;
    module.add_function(wrap_pyfunction!(sql_tokens::sql_tokens, module)?)?;
    module.add_function(wrap_pyfunction!(sql_tokens::table_references, module)?)?;
    hashing::register(module)?;
    rows::register(module)?;
    text::register(module)?;
    vectors::register(module)?;
    module.add_function(wrap_pyfunction!(errors::remember_raised, module)?)?;
    module.add_function(wrap_pyfunction!(errors::recall, module)?)
}
