//! The union of sorted row addresses.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::python::buffers::{Numbers, bytes_of};
use crate::rows::places::place;

/// The distinct numbers of all parts, ascending, as the bytes of uint64. Each part is ascending.
#[pyfunction]
pub fn union<'py>(py: Python<'py>, parts: Vec<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyBytes>> {
    let parts = parts.iter().map(Numbers::<u64>::new).collect::<PyResult<Vec<_>>>()?;
    let slices: Vec<&[u64]> = parts.iter().map(Numbers::slice).collect();
    Ok(bytes_of(py, &py.detach(|| merged(&slices))))
}

fn merged(parts: &[&[u64]]) -> Vec<u64> {
    match parts {
        [] => vec![],
        [part] => {
            let mut distinct = part.to_vec();
            distinct.dedup();
            distinct
        }
        _ => {
            let (left, right) = parts.split_at(parts.len() / 2);
            both(&merged(left), &merged(right))
        }
    }
}

fn both(left: &[u64], right: &[u64]) -> Vec<u64> {
    let (few, many) = if left.len() < right.len() { (left, right) } else { (right, left) };
    let mut merged = Vec::with_capacity(few.len() + many.len());
    let mut from = 0;
    for &number in few {
        let to = place(many, from, number);
        merged.extend_from_slice(&many[from..to]);
        if many.get(to) != Some(&number) {
            merged.push(number);
        }
        from = to;
    }
    merged.extend_from_slice(&many[from..]);
    merged
}
