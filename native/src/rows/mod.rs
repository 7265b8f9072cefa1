//! Kernels that tell which rows of a batch are live: loops over numbers that a scan runs for every
//! row, and whose intermediate arrays would cost more than the work.

mod keys;
mod live;

use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(live::flag_live, module)?)?;
    module.add_function(wrap_pyfunction!(live::compress, module)?)?;
    module.add_function(wrap_pyfunction!(keys::mark, module)?)?;
    module.add_function(wrap_pyfunction!(keys::find_marked, module)?)?;
    module.add_function(wrap_pyfunction!(keys::superseded, module)?)
}
