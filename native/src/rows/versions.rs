//! Positions of the versions of each key of a MemTable.

use std::sync::{PoisonError, RwLock, TryLockError};

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, make_array};
use arrow::datatypes::{
    DataType, Int8Type, Int16Type, Int32Type, Int64Type, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use hashbrown::HashMap;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::python::arrow_bridge::array_from_python;
use crate::python::buffers::{bytes_of, invalid};

const NONE: i64 = -1;
const NEVER: i64 = i64::MAX;
/// Bytes of the map for each slot beside the key, and of the two links of a row.
const SLOT_BYTES: usize = 9;
const ROW_BYTES: usize = 16;

/// Maps keys to the positions of their rows, which count from 0. Append-only: whatever comes later,
/// an answer that is bounded by an earlier number of rows stays the same.
#[pyclass(frozen, module = "memwal_native")]
#[derive(Default)]
pub struct KeyVersions {
    rows: RwLock<Rows>,
}

#[derive(Default)]
struct Rows {
    integers: HashMap<i64, i64>,
    texts: HashMap<Box<[u8]>, i64>,
    text_bytes: usize,
    links: Links,
}

/// By position: the key's previous position and its next one.
#[derive(Default)]
struct Links {
    previous: Vec<i64>,
    next: Vec<i64>,
}

#[pymethods]
impl KeyVersions {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.ask(py, |rows| rows.links.previous.len())
    }

    /// Bytes held.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        self.ask(py, |rows| {
            rows.integers.capacity() * (size_of::<i64>() + SLOT_BYTES)
                + rows.texts.capacity() * (size_of::<Box<[u8]>>() + SLOT_BYTES)
                + rows.text_bytes
                + rows.links.previous.capacity() * ROW_BYTES
        })
    }

    /// Add the keys of the next rows.
    fn append(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = Keys::of(keys)?;
        py.detach(|| {
            let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
            let Rows { integers, texts, text_bytes, links } = &mut *rows;
            match &keys {
                Keys::Integers(keys) => keys.iter().for_each(|&key| {
                    links.push(integers.insert(key, links.end()));
                }),
                Keys::Texts(keys) => (0..keys.len()).for_each(|row| {
                    let (key, end) = (text(keys, row), links.end());
                    let before = texts.get_mut(key).map(|place| std::mem::replace(place, end));
                    if before.is_none() {
                        *text_bytes += key.len();
                        texts.insert(key.into(), end);
                    }
                    links.push(before);
                }),
            }
        });
        Ok(())
    }

    /// The highest position of a key that is below `below`; -1 if there is none.
    fn last(&self, py: Python<'_>, key: &Bound<'_, PyAny>, below: i64) -> PyResult<i64> {
        let integer = key.extract::<i64>().or_else(|_| key.extract::<u64>().map(|key| key as i64));
        if let Ok(key) = integer {
            return Ok(self.ask(py, |rows| rows.links.below(rows.integers.get(&key), below)));
        }
        let key = match key.extract::<&str>() {
            Ok(key) => key.as_bytes(),
            Err(_) => key.extract::<&[u8]>()?,
        };
        Ok(self.ask(py, |rows| rows.links.below(rows.texts.get(key), below)))
    }

    /// `last` of every key, as the bytes of int64.
    fn last_of<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        below: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let keys = Keys::of(keys)?;
        let found = py.detach(|| {
            self.read(|rows| match &keys {
                Keys::Integers(keys) => {
                    keys.iter().map(|key| rows.links.below(rows.integers.get(key), below)).collect()
                }
                Keys::Texts(keys) => (0..keys.len())
                    .map(|row| rows.links.below(rows.texts.get(text(keys, row)), below))
                    .collect::<Vec<_>>(),
            })
        });
        Ok(bytes_of(py, &found))
    }

    /// The positions below `below`, ascending, that a later one below it replaces, as the bytes of
    /// int64.
    fn superseded<'py>(&self, py: Python<'py>, below: i64) -> Bound<'py, PyBytes> {
        let found = py.detach(|| {
            self.read(|rows| {
                let next = rows.links.next.iter().take(below.max(0) as usize);
                let places = next.enumerate().filter(|&(_, &next)| next < below);
                places.map(|(place, _)| place as i64).collect::<Vec<_>>()
            })
        });
        bytes_of(py, &found)
    }
}

impl KeyVersions {
    /// The interpreter is let go only to wait: having it again takes longer than an answer.
    fn ask<T: Send>(&self, py: Python<'_>, ask: impl FnOnce(&Rows) -> T + Send) -> T {
        match self.rows.try_read() {
            Ok(rows) => ask(&rows),
            Err(TryLockError::Poisoned(poisoned)) => ask(&poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => py.detach(|| self.read(ask)),
        }
    }

    fn read<T>(&self, ask: impl FnOnce(&Rows) -> T) -> T {
        ask(&self.rows.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Links {
    fn end(&self) -> i64 {
        self.previous.len() as i64
    }

    fn push(&mut self, before: Option<i64>) {
        if let Some(before) = before {
            self.next[before as usize] = self.end();
        }
        self.previous.push(before.unwrap_or(NONE));
        self.next.push(NEVER);
    }

    fn below(&self, newest: Option<&i64>, below: i64) -> i64 {
        let mut place = newest.copied().unwrap_or(NONE);
        while place >= below.max(0) {
            place = self.previous[place as usize];
        }
        place
    }
}

/// Keys as integers or as bytes.
enum Keys {
    Integers(Vec<i64>),
    Texts(ArrayRef),
}

impl Keys {
    /// An Arrow array of integers, booleans, strings or binary, without nulls.
    fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = make_array(array_from_python(object)?);
        Ok(match array.data_type() {
            DataType::Int8 => integers::<Int8Type>(&array, i64::from),
            DataType::Int16 => integers::<Int16Type>(&array, i64::from),
            DataType::Int32 => integers::<Int32Type>(&array, i64::from),
            DataType::Int64 => integers::<Int64Type>(&array, |key| key),
            DataType::UInt8 => integers::<UInt8Type>(&array, i64::from),
            DataType::UInt16 => integers::<UInt16Type>(&array, i64::from),
            DataType::UInt32 => integers::<UInt32Type>(&array, i64::from),
            DataType::UInt64 => integers::<UInt64Type>(&array, |key| key as i64),
            DataType::Boolean => {
                Self::Integers(array.as_boolean().values().iter().map(i64::from).collect())
            }
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::FixedSizeBinary(_) => Self::Texts(array),
            other => return Err(invalid(&format!("a column of type {other} can't be a key"))),
        })
    }
}

fn integers<T: ArrowPrimitiveType>(array: &ArrayRef, number: fn(T::Native) -> i64) -> Keys {
    Keys::Integers(array.as_primitive::<T>().values().iter().map(|&key| number(key)).collect())
}

fn text(keys: &ArrayRef, row: usize) -> &[u8] {
    match keys.data_type() {
        DataType::Utf8 => keys.as_string::<i32>().value(row).as_bytes(),
        DataType::LargeUtf8 => keys.as_string::<i64>().value(row).as_bytes(),
        DataType::Binary => keys.as_binary::<i32>().value(row),
        DataType::LargeBinary => keys.as_binary::<i64>().value(row),
        _ => keys.as_fixed_size_binary().value(row),
    }
}
