//! Finds live rows: kernels that a scan runs for every row of a batch, and whose intermediate
//! arrays would cost more than the work, and the versions of a MemTable's keys.

pub mod encoded;
mod keys;
pub mod live;
mod places;
mod union;
mod versions;

use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<versions::KeyVersions>()?;
    module.add_function(wrap_pyfunction!(live::flag_live, module)?)?;
    module.add_function(wrap_pyfunction!(union::union, module)?)?;
    module.add_function(wrap_pyfunction!(places::places_of, module)?)?;
    module.add_function(wrap_pyfunction!(keys::mark, module)?)?;
    module.add_function(wrap_pyfunction!(keys::find_marked, module)?)?;
    module.add_function(wrap_pyfunction!(keys::superseded, module)?)
}
