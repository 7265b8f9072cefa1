//! Live rows as Python has them: with the state of the table that they are the rows of.

use std::sync::{Arc, RwLock};

use arrow::array::{AsArray, BooleanArray, RecordBatch, make_array};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::ArrowError;
use pyo3::prelude::*;

use crate::live::index::Keys;
use crate::live::rows::Rows;
use crate::python::arrow_bridge::{
    ArrowStream, any_batch_from_python, array_from_python, schema_from_python,
};
use crate::python::buffers::invalid;
use crate::python::errors::python_error;

/// One row a key, changed by key, and the state that these are the rows of: both change in one call.
#[pyclass(frozen, module = "memwal_native")]
pub struct LiveImage {
    schema: SchemaRef,
    image: RwLock<Image>,
}

struct Image {
    rows: Rows,
    state: Arc<Py<PyAny>>,
}

/// Rows that were written: all columns, the keys, and which of them are deleted.
type Change<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

#[pymethods]
impl LiveImage {
    /// No rows. `key` is the number of the only key column if its values are integers or times.
    #[new]
    fn new(schema: &Bound<'_, PyAny>, key: Option<usize>, state: Py<PyAny>) -> PyResult<Self> {
        let schema = schema_from_python(schema)?;
        if key.is_some_and(|key| key >= schema.fields().len()) {
            return Err(invalid("there is no such column"));
        }
        let rows = Rows::new(Arc::clone(&schema), key);
        Ok(Self { schema, image: RwLock::new(Image { rows, state: Arc::new(state) }) })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, |image| Ok(image.rows.len()))
    }

    /// Places without a row.
    #[getter]
    fn holes(&self, py: Python<'_>) -> PyResult<usize> {
        self.ask(py, |image| Ok(image.rows.holes()))
    }

    /// Bytes of keys, of columns, and of rows that some column has not taken in yet.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<(usize, usize, usize)> {
        self.ask(py, |image| Ok(image.rows.nbytes()))
    }

    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.ask(py, |image| Ok(Arc::clone(&image.state)))?.clone_ref(py))
    }

    /// Apply changes in their order; the rows are those of `state` then.
    fn apply(&self, py: Python<'_>, changes: Vec<Change<'_>>, state: Py<PyAny>) -> PyResult<()> {
        let changes: Vec<_> =
            changes.iter().map(|change| self.change(change)).collect::<PyResult<_>>()?;
        let state = Arc::new(state);
        let before = self.change_image(py, move |image| {
            changes.iter().try_for_each(|(_, keys, _)| image.rows.check(keys))?;
            for (batch, keys, gone) in &changes {
                image.rows.apply(batch, keys, gone.as_ref())?;
            }
            Ok(std::mem::replace(&mut image.state, state))
        });
        before.map(drop)
    }

    /// Make room for so many more rows.
    fn reserve(&self, py: Python<'_>, rows: usize) -> PyResult<()> {
        self.change_image(py, |image| {
            image.rows.reserve(rows);
            Ok(())
        })
    }

    /// Keep a column from now on, by its number; values of rows that are there already are to be
    /// given to `load`. Whether columns of its type are kept.
    fn admit(&self, py: Python<'_>, column: usize) -> PyResult<bool> {
        self.check(&[column])?;
        self.change_image(py, |image| Ok(image.rows.admit(column)))
    }

    fn evict(&self, py: Python<'_>, column: usize) -> PyResult<()> {
        self.check(&[column])?;
        self.change_image(py, |image| {
            image.rows.evict(column);
            Ok(())
        })
    }

    /// Whether the values of a column can be read.
    fn has(&self, py: Python<'_>, column: usize) -> PyResult<bool> {
        self.check(&[column])?;
        self.ask(py, |image| Ok(image.rows.has(column)))
    }

    /// Values of a column of rows that were there when it was admitted: batches of this one column,
    /// and their keys. The column can be read afterwards.
    fn load(
        &self,
        py: Python<'_>,
        column: usize,
        values: Vec<(Bound<'_, PyAny>, Bound<'_, PyAny>)>,
    ) -> PyResult<()> {
        self.check(&[column])?;
        let kind = self.schema.field(column).data_type();
        let values: Vec<_> = values
            .iter()
            .map(|(batch, keys)| {
                let (batch, keys) = (any_batch_from_python(batch)?, keys_from_python(keys)?);
                let fits = batch.num_columns() == 1 && batch.column(0).data_type() == kind;
                if !fits || batch.num_rows() != keys.len() {
                    return Err(invalid("the values must be of the column, one for each key"));
                }
                Ok((batch, keys))
            })
            .collect::<PyResult<_>>()?;
        for (batch, keys) in &values {
            self.ask(py, |image| image.rows.load(column, batch, keys))?;
        }
        self.change_image(py, |image| {
            image.rows.loaded(column);
            Ok(())
        })
    }

    /// Let all columns take in all rows.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        self.change_image(py, |image| image.rows.settle())
    }

    /// Some columns of all rows, and the state that these are the rows of.
    fn read(&self, py: Python<'_>, columns: Vec<usize>) -> PyResult<(ArrowStream, Py<PyAny>)> {
        self.check(&columns)?;
        self.stream(py, &columns, |rows| rows.batches(&columns))
    }

    /// Some columns of the rows of those keys that have one, in the order of the keys, and the state.
    fn take(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        columns: Vec<usize>,
    ) -> PyResult<(ArrowStream, Py<PyAny>)> {
        self.check(&columns)?;
        let keys = keys_from_python(keys)?;
        self.stream(py, &columns, |rows| rows.take(&keys, &columns).map(|batch| vec![batch]))
    }
}

impl LiveImage {
    fn check(&self, columns: &[usize]) -> PyResult<()> {
        let fields = self.schema.fields().len();
        let known = columns.iter().all(|&column| column < fields);
        if known { Ok(()) } else { Err(invalid("there is no such column")) }
    }

    fn change(
        &self,
        (batch, keys, gone): &Change<'_>,
    ) -> PyResult<(RecordBatch, Keys, Option<BooleanArray>)> {
        let (batch, keys) = (any_batch_from_python(batch)?, keys_from_python(keys)?);
        let gone = gone.as_ref().map(array_from_python).transpose()?.map(make_array);
        let lengths = [Some(keys.len()), gone.as_ref().map(|gone| gone.len())];
        let types = |schema: &SchemaRef| -> Vec<DataType> {
            schema.fields().iter().map(|field| field.data_type().clone()).collect()
        };
        let is_flag = gone.as_ref().is_none_or(|gone| *gone.data_type() == DataType::Boolean);
        if !is_flag || lengths.into_iter().flatten().any(|length| length != batch.num_rows()) {
            return Err(invalid("every row must have a key, and a flag if there are flags"));
        }
        if types(&batch.schema()) != types(&self.schema) {
            return Err(invalid("the rows must have the columns of the table"));
        }
        Ok((batch, keys, gone.map(|gone| gone.as_boolean().clone())))
    }

    fn stream(
        &self,
        py: Python<'_>,
        columns: &[usize],
        read: impl FnOnce(&Rows) -> Result<Vec<RecordBatch>, ArrowError> + Send,
    ) -> PyResult<(ArrowStream, Py<PyAny>)> {
        let schema = Arc::new(self.schema.project(columns).map_err(python_error)?);
        let (batches, state) =
            self.ask(py, |image| Ok((read(&image.rows)?, Arc::clone(&image.state))))?;
        Ok((ArrowStream { schema, batches }, state.clone_ref(py)))
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        ask: impl FnOnce(&Image) -> Result<T, ArrowError> + Send,
    ) -> PyResult<T> {
        let answer = py.detach(|| self.image.read().map_err(|_| broken()).and_then(|i| ask(&i)));
        answer.map_err(python_error)
    }

    fn change_image<T: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut Image) -> Result<T, ArrowError> + Send,
    ) -> PyResult<T> {
        let done =
            py.detach(|| self.image.write().map_err(|_| broken()).and_then(|mut i| change(&mut i)));
        done.map_err(python_error)
    }
}

fn keys_from_python(keys: &Bound<'_, PyAny>) -> PyResult<Keys> {
    let keys = make_array(array_from_python(keys)?);
    let kind = keys.data_type().clone();
    Keys::of(keys).ok_or_else(|| invalid(&format!("a column of type {kind} can't be a key")))
}

/// After a panic within a change.
fn broken() -> ArrowError {
    ArrowError::ComputeError("the live rows are broken: drop them".to_owned())
}
