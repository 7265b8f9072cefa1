//! Kernels that hash the rows of Arrow columns, as region values and the files of Lance need it.

mod murmur3;
mod siphash;

use arrow::array::{ArrayRef, make_array};
use pyo3::prelude::*;

use crate::python::arrow_bridge::array_from_python;
use crate::python::buffers::invalid;

/// Appends the bytes that are hashed for the value of a row.
type Encode<'a> = Box<dyn Fn(usize, &mut Vec<u8>) + 'a>;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(murmur3::murmur3, module)?)?;
    module.add_function(wrap_pyfunction!(murmur3::murmur3_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(siphash::siphash13, module)?)?;
    module.add_function(wrap_pyfunction!(siphash::siphash13_bytes, module)?)
}

/// One or more columns of as many rows.
fn columns_of(objects: &[Bound<'_, PyAny>]) -> PyResult<Vec<ArrayRef>> {
    let columns = objects
        .iter()
        .map(|object| Ok(make_array(array_from_python(object)?)))
        .collect::<PyResult<Vec<_>>>()?;
    match columns.first() {
        Some(first) if columns.iter().all(|column| column.len() == first.len()) => Ok(columns),
        _ => Err(invalid("the columns must have the same length")),
    }
}

fn unknown(column: &ArrayRef) -> PyErr {
    invalid(&format!("a column of type {} can't be hashed", column.data_type()))
}
