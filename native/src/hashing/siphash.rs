//! SipHash-1-3 with zero keys, Rust's `DefaultHasher`, which native's bloom filters are built from.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use siphasher::sip::SipHasher13;

use crate::hashing::{Encode, columns_of, unknown};
use crate::python::buffers::bytes_of;

/// The hash of every row, as the bytes of uint64: for each column a zero, and the value as Rust
/// hashes it, of which a column of type null has none. There must be no NULLs in others.
#[pyfunction]
pub fn siphash13<'py>(
    py: Python<'py>,
    columns: Vec<Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let columns = columns_of(&columns)?;
    let hashes = py.detach(|| hashes_of(&columns))?;
    Ok(bytes_of(py, &hashes))
}

/// The hash of some bytes.
#[pyfunction]
pub fn siphash13_bytes(data: &[u8]) -> u64 {
    SipHasher13::new().hash(data)
}

fn hashes_of(columns: &[ArrayRef]) -> PyResult<Vec<u64>> {
    let encoders = columns
        .iter()
        .map(|column| encoder(column).ok_or_else(|| unknown(column)))
        .collect::<PyResult<Vec<_>>>()?;
    let mut bytes = Vec::new();
    let hash = |row| {
        bytes.clear();
        for encode in &encoders {
            bytes.push(0);
            encode(row, &mut bytes);
        }
        siphash13_bytes(&bytes)
    };
    Ok((0..columns[0].len()).map(hash).collect())
}

/// None if there is no hash of such a column.
fn encoder(column: &ArrayRef) -> Option<Encode<'_>> {
    Some(match column.data_type() {
        DataType::Null => Box::new(|_, _| ()),
        DataType::Boolean => {
            let values = column.as_boolean();
            Box::new(|row, to| to.push(values.value(row).into()))
        }
        DataType::Utf8 => texts(|row| column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => texts(|row| column.as_string::<i64>().value(row)),
        DataType::Binary => bytes(|row| column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => bytes(|row| column.as_binary::<i64>().value(row)),
        DataType::FixedSizeBinary(_) => bytes(|row| column.as_fixed_size_binary().value(row)),
        kind => {
            let (width, data) = (kind.primitive_width()?, column.to_data());
            let start = data.offset() * width;
            let values = data.buffers()[0].slice(start);
            Box::new(move |row, to| to.extend_from_slice(&values[row * width..][..width]))
        }
    })
}

fn texts<'a>(value: impl Fn(usize) -> &'a str + 'a) -> Encode<'a> {
    Box::new(move |row, to| {
        to.extend_from_slice(value(row).as_bytes());
        to.push(0xFF);
    })
}

fn bytes<'a>(value: impl Fn(usize) -> &'a [u8] + 'a) -> Encode<'a> {
    Box::new(move |row, to| {
        to.extend_from_slice(&(value(row).len() as u64).to_le_bytes());
        to.extend_from_slice(value(row));
    })
}
