//! Kernels of vector search: which of many vectors may be the nearest ones to a query.

mod bounds;
mod codes;
mod distances;
mod dot_products;
mod search;
mod vector_codes;

use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(distances::distances, module)?)?;
    module.add_class::<vector_codes::VectorCodes>()
}
