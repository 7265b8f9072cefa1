//! Arrow data between Python and Rust, through the Arrow PyCapsule interface.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchOptions, StructArray,
};
use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi, to_ffi};
use arrow::ffi_stream::FFI_ArrowArrayStream;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyTuple};

use crate::python::errors::python_error;
use crate::python::memory::kept_at_exit;

/// The schema of a Python object with `__arrow_c_schema__`.
pub fn schema_from_python(object: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let capsule = object.call_method0("__arrow_c_schema__")?;
    let capsule = capsule.cast::<PyCapsule>()?;
    let pointer = capsule.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    // SAFETY: a capsule of this name holds a valid ArrowSchema for as long as it lives.
    let schema = Schema::try_from(unsafe { pointer.as_ref() }).map_err(python_error)?;
    Ok(Arc::new(schema))
}

/// The record batch in a Python object with `__arrow_c_array__`; its schema must be `expected`.
///
/// Metadata and the nullability of columns are taken from `expected`; a null in a column that it
/// calls non-nullable is refused.
pub fn batch_from_python(object: &Bound<'_, PyAny>, expected: &SchemaRef) -> PyResult<RecordBatch> {
    let data = array_from_python(object)?;
    let rows = data.len();
    let DataType::Struct(fields) = data.data_type() else {
        return Err(PyTypeError::new_err("execute() yielded an object that is not a record batch"));
    };
    let names = |fields: &arrow::datatypes::Fields| -> Vec<String> {
        fields.iter().map(|field| field.name().clone()).collect()
    };
    let same = fields.len() == expected.fields().len()
        && fields.iter().zip(expected.fields()).all(|(a, b)| a.name() == b.name());
    if !same {
        return Err(PyTypeError::new_err(format!(
            "a batch has the columns {:?} where {:?} were declared",
            names(fields),
            names(expected.fields()),
        )));
    }
    let (_, columns, _) = StructArray::from(data).into_parts();
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(expected), columns, &options)
        .map_err(|error| PyTypeError::new_err(error.to_string()))
}

/// The record batch in a Python object, whatever its schema.
pub fn any_batch_from_python(object: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    batch_from_python(object, &schema_from_python(&object.getattr("schema")?)?)
}

pub fn array_from_python(object: &Bound<'_, PyAny>) -> PyResult<ArrayData> {
    let capsules = object.call_method0("__arrow_c_array__")?;
    let capsules = capsules.cast::<PyTuple>()?;
    let (schema, array) = (capsules.get_item(0)?, capsules.get_item(1)?);
    let (schema, array) = (schema.cast::<PyCapsule>()?, array.cast::<PyCapsule>()?);
    let schema = schema.pointer_checked(Some(c"arrow_schema"))?.cast::<FFI_ArrowSchema>();
    let array = array.pointer_checked(Some(c"arrow_array"))?.cast::<FFI_ArrowArray>();
    // SAFETY: capsules of these names hold valid C structs; `from_raw` moves the array out and
    // leaves a released one behind, as the PyCapsule interface asks of a consumer.
    unsafe {
        let array = kept_at_exit(FFI_ArrowArray::from_raw(array.as_ptr()));
        from_ffi(array, schema.as_ref()).map_err(python_error)
    }
}

/// An array that Python reads through `__arrow_c_array__`.
#[pyclass(frozen, module = "memwal_native")]
pub struct ArrowArray(pub ArrayRef);

#[pymethods]
impl ArrowArray {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        let _ = requested_schema;
        let (array, schema) = to_ffi(&self.0.to_data()).map_err(python_error)?;
        Ok((
            PyCapsule::new_with_value(py, schema, c"arrow_schema")?,
            PyCapsule::new_with_value(py, array, c"arrow_array")?,
        ))
    }
}

/// A type that Python reads through `__arrow_c_schema__`.
#[pyclass(frozen, module = "memwal_native")]
pub struct ArrowType(pub DataType);

#[pymethods]
impl ArrowType {
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(&self.0).map_err(python_error)?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }
}

/// Record batches that Python reads through `__arrow_c_stream__`, any number of times.
#[pyclass(frozen, module = "memwal_native")]
pub struct ArrowStream {
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
}

#[pymethods]
impl ArrowStream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = self.batches.clone().into_iter().map(Ok);
        stream_to_python(py, Arc::clone(&self.schema), batches)
    }
}

/// What `__arrow_c_stream__` returns.
pub fn stream_to_python(
    py: Python<'_>,
    schema: SchemaRef,
    batches: impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
) -> PyResult<Bound<'_, PyCapsule>> {
    let reader = RecordBatchIterator::new(batches, schema);
    let stream = FFI_ArrowArrayStream::new(Box::new(reader));
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}
