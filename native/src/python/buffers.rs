//! Arrays of numbers that cross the border: numpy's in, bytes for `numpy.frombuffer` out.

use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A contiguous array of Python's, readable without the interpreter. One that Python code could write
/// to meanwhile is copied.
pub struct Numbers<T: Element> {
    array: PyBuffer<T>,
    copy: Option<Vec<T>>,
}

impl<T: Element> Numbers<T> {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = PyBuffer::<T>::get(object)?;
        if !array.is_c_contiguous() {
            return Err(PyBufferError::new_err("an array must be contiguous"));
        }
        let copy = (!array.readonly()).then(|| array.to_vec(object.py())).transpose()?;
        Ok(Self { array, copy })
    }

    pub fn slice(&self) -> &[T] {
        if let Some(copy) = &self.copy {
            return copy;
        }
        if self.array.item_count() == 0 {
            return &[];
        }
        // SAFETY: the buffer is contiguous, of this type, held as long as the slice, and read-only:
        // its owner promises that nobody writes to it.
        unsafe {
            std::slice::from_raw_parts(self.array.buf_ptr().cast::<T>(), self.array.item_count())
        }
    }
}

/// A contiguous array of Python's to be written without the interpreter.
pub struct NumbersMut<T: Element>(PyBuffer<T>);

impl<T: Element> NumbersMut<T> {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyBuffer::<T>::get(object)?;
        if !buffer.is_c_contiguous() || buffer.readonly() {
            return Err(PyBufferError::new_err("an array must be contiguous and writable"));
        }
        Ok(Self(buffer))
    }

    pub fn slice(&mut self) -> &mut [T] {
        if self.0.item_count() == 0 {
            return &mut [];
        }
        // SAFETY: the buffer is contiguous, writable, of this type and held as long as the slice.
        // Callers give arrays that nobody else reads or writes meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast::<T>(), self.0.item_count()) }
    }
}

pub fn bytes_of<'py, T: Element>(py: Python<'py>, values: &[T]) -> Bound<'py, PyBytes> {
    // SAFETY: elements of buffers are plain numbers; any of their bytes may be read.
    let bytes = unsafe {
        std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), std::mem::size_of_val(values))
    };
    PyBytes::new(py, bytes)
}

pub fn invalid(what: &str) -> PyErr {
    PyValueError::new_err(what.to_owned())
}
