//! Keys of rows, as numbers or as bytes.

use arrow::array::{Array, ArrayRef, AsArray, make_array};
use arrow::datatypes::DataType;
use pyo3::prelude::*;

use crate::python::arrow_bridge::array_from_python;
use crate::python::buffers::invalid;

/// An integer's bytes as a number, or a text's, a binary's or a composite key's.
#[derive(Clone, Copy, PartialEq)]
pub enum Key<'a> {
    Word(u64),
    Bytes(&'a [u8]),
}

/// The keys of some rows.
pub enum Keys {
    /// And the bytes of one.
    Words(Vec<u64>, usize),
    Bytes(ArrayRef, BytesAt),
}

type BytesAt = fn(&ArrayRef, usize) -> &[u8];

impl Keys {
    /// An Arrow array of integers, booleans, strings or binary, without nulls; None for other types.
    pub fn of(array: ArrayRef) -> Option<Self> {
        let bytes: BytesAt = match array.data_type() {
            DataType::Boolean => |keys, row| &[[0], [1]][usize::from(keys.as_boolean().value(row))],
            DataType::Utf8 => |keys, row| keys.as_string::<i32>().value(row).as_bytes(),
            DataType::LargeUtf8 => |keys, row| keys.as_string::<i64>().value(row).as_bytes(),
            DataType::Binary => |keys, row| keys.as_binary::<i32>().value(row),
            DataType::LargeBinary => |keys, row| keys.as_binary::<i64>().value(row),
            DataType::FixedSizeBinary(_) => |keys, row| keys.as_fixed_size_binary().value(row),
            kind if kind.is_integer() => return Some(Self::words(&array)),
            _ => return None,
        };
        Some(Self::Bytes(array, bytes))
    }

    fn words(array: &ArrayRef) -> Self {
        let (data, width) = (array.to_data(), array.data_type().primitive_width().unwrap_or(8));
        let values = &data.buffers()[0].as_slice()[data.offset() * width..][..data.len() * width];
        Self::Words(values.chunks_exact(width).map(word).collect(), width)
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Words(words, _) => words.len(),
            Self::Bytes(array, _) => array.len(),
        }
    }

    pub fn at(&self, row: usize) -> Key<'_> {
        match self {
            Self::Words(words, _) => Key::Word(words[row]),
            Self::Bytes(array, text) => Key::Bytes(text(array, row)),
        }
    }
}

pub fn word(bytes: &[u8]) -> u64 {
    if let Ok(bytes) = bytes.try_into() {
        return u64::from_le_bytes(bytes);
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

pub fn keys_from_python(keys: &Bound<'_, PyAny>) -> PyResult<Keys> {
    let keys = make_array(array_from_python(keys)?);
    let kind = keys.data_type().clone();
    Keys::of(keys).ok_or_else(|| invalid(&format!("a column of type {kind} can't be a key")))
}
