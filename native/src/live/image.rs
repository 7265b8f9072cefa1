//! Live rows as Python has them: together with the state of the table to which they belong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, RwLock};

use arrow::array::{AsArray, BooleanArray, RecordBatch, make_array};
use arrow::datatypes::{DataType, Field, SchemaRef};
use arrow::error::ArrowError;
use datafusion_common::Result;
use pyo3::prelude::*;

use crate::filters::predicate::{Predicate, matches};
use crate::live::conditions::{keys_of, range_of};
use crate::live::exec::{LiveScan, Scan};
use crate::live::questions::Questions;
use crate::live::rows::{Range, Rows};
use crate::python::arrow_bridge::{any_batch_from_python, array_from_python, schema_from_python};
use crate::python::buffers::invalid;
use crate::python::errors::{guarded, python_error};
use crate::rows::encoded::{Keys, keys_from_python};

/// The rows of a table, one for each key, and the state of the table to which they belong. Rows and
/// state change in one call.
#[pyclass(frozen, module = "memwal_native")]
pub struct LiveImage {
    pub inner: Arc<Inner>,
}

pub struct Inner {
    pub schema: SchemaRef,
    /// The number of the key column, if there is only one.
    key: Option<usize>,
    image: RwLock<Image>,
    /// The questions that tell if the state is still the newest one. They are replaced while `image`
    /// is locked. They have a lock of their own, so that reading them does not wait for that.
    questions: Mutex<Option<Arc<Questions>>>,
}

struct Image {
    rows: Rows,
    state: Arc<Py<PyAny>>,
}

/// Rows that were written: a batch of all columns, the keys, and flags of the deleted rows.
type Change<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>);

#[pymethods]
impl LiveImage {
    /// No rows. `key` is the number of the key column, if there is only one.
    #[new]
    fn new(schema: &Bound<'_, PyAny>, key: Option<usize>, state: Py<PyAny>) -> PyResult<Self> {
        let schema = schema_from_python(schema)?;
        if key.is_some_and(|key| key >= schema.fields().len()) {
            return Err(invalid("there is no such column"));
        }
        let rows = Rows::new(Arc::clone(&schema), key);
        let image = RwLock::new(Image { rows, state: Arc::new(state) });
        Ok(Self { inner: Arc::new(Inner { schema, key, image, questions: Mutex::default() }) })
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.read(py, |image| Ok(image.rows.len()))
    }

    /// Bytes of keys, of each column, and of rows that some column has not taken in yet.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> PyResult<(usize, BTreeMap<usize, usize>, usize)> {
        self.read(py, |image| Ok(image.rows.nbytes()))
    }

    #[getter]
    fn state(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        Ok(self.read(py, |image| Ok(Arc::clone(&image.state)))?.clone_ref(py))
    }

    /// Apply changes in their order. The rows belong to `state` afterwards.
    fn apply(&self, py: Python<'_>, changes: Vec<Change<'_>>, state: Py<PyAny>) -> PyResult<()> {
        let changes: Vec<_> =
            changes.iter().map(|change| self.change(change)).collect::<PyResult<_>>()?;
        // Dropping them may have to wait for the interpreter, so it happens after the change.
        let (changes, state) = (&changes, Arc::new(state));
        let before = self.write(py, move |image| {
            changes.iter().try_for_each(|(_, keys, _)| image.rows.check(keys))?;
            self.inner.set_questions(None);
            for (batch, keys, gone) in changes {
                image.rows.apply(batch, keys, gone.as_ref())?;
            }
            Ok(std::mem::replace(&mut image.state, state))
        });
        before.map(drop)
    }

    /// Make room for this number of further rows.
    fn reserve(&self, py: Python<'_>, rows: usize) -> PyResult<()> {
        self.write(py, |image| {
            image.rows.reserve(rows);
            Ok(())
        })
    }

    /// Keep the column of a number from now on; `load` takes the values of rows that exist already.
    /// False if columns of its type can't be kept.
    fn admit(&self, py: Python<'_>, column: usize) -> PyResult<bool> {
        self.check(&[column])?;
        self.write(py, |image| Ok(image.rows.admit(column)))
    }

    fn evict(&self, py: Python<'_>, column: usize) -> PyResult<()> {
        self.check(&[column])?;
        self.write(py, |image| {
            image.rows.evict(column);
            Ok(())
        })
    }

    /// Whether the values of a column can be read.
    fn has(&self, py: Python<'_>, column: usize) -> PyResult<bool> {
        self.check(&[column])?;
        self.read(py, |image| Ok(image.rows.has(column)))
    }

    /// Add rows with these keys; `load` takes their values.
    fn insert(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = keys_from_python(keys)?;
        self.write(py, |image| image.rows.insert(&keys))
    }

    /// Take values of rows that existed when their columns were admitted: a batch of these columns,
    /// and the keys of its rows.
    fn load(
        &self,
        py: Python<'_>,
        columns: Vec<usize>,
        values: &Bound<'_, PyAny>,
        keys: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.check(&columns)?;
        let (values, keys) = (any_batch_from_python(values)?, keys_from_python(keys)?);
        let kinds = columns.iter().map(|&column| self.inner.schema.field(column).data_type());
        if !kinds.eq(values.columns().iter().map(|values| values.data_type()))
            || values.num_rows() != keys.len()
        {
            return Err(invalid("the values must be of the columns, one for each key"));
        }
        self.read(py, |image| image.rows.load(&columns, &values, &keys))
    }

    /// Let columns be read from now on, as all their values are loaded.
    fn loaded(&self, py: Python<'_>, columns: Vec<usize>) -> PyResult<()> {
        self.check(&columns)?;
        self.write(py, |image| {
            columns.iter().for_each(|&column| image.rows.loaded(column));
            Ok(())
        })
    }

    /// Let all columns take in all rows.
    fn settle(&self, py: Python<'_>) -> PyResult<()> {
        self.write(py, |image| image.rows.settle())
    }

    /// A scan of some columns of the rows that meet conditions, or of those among them with some keys;
    /// None if the image has another state by now, or lacks a column.
    #[pyo3(signature = (state, columns, keys, conditions, limit, regions))]
    #[expect(clippy::too_many_arguments, reason = "the parts of a request, as Python gives them")]
    fn scan(
        &self,
        py: Python<'_>,
        state: &Bound<'_, PyAny>,
        columns: Vec<usize>,
        keys: Option<Bound<'_, PyAny>>,
        conditions: Vec<Bound<'_, Predicate>>,
        limit: Option<usize>,
        regions: usize,
    ) -> PyResult<Option<LiveScan>> {
        self.check(&columns)?;
        let keys = keys.as_ref().map(keys_from_python).transpose()?;
        let conditions: Vec<_> = conditions.iter().map(|condition| condition.get()).collect();
        let state = Some(state.as_ptr() as usize);
        let request =
            ScanRequest { columns: &columns, keys, conditions: &conditions, limit, regions };
        let scan = py.detach(|| guarded(|| self.inner.scan(state, request)));
        Ok(scan.map_err(python_error)?.map(|scan| LiveScan(Arc::new(scan))))
    }
}

impl LiveImage {
    fn check(&self, columns: &[usize]) -> PyResult<()> {
        let fields = self.inner.schema.fields().len();
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
        if types(&batch.schema()) != types(&self.inner.schema) {
            return Err(invalid("the rows must have the columns of the table"));
        }
        Ok((batch, keys, gone.map(|gone| gone.as_boolean().clone())))
    }

    /// Call a function with the image, without the interpreter's lock.
    fn read<T: Send>(
        &self,
        py: Python<'_>,
        read: impl FnOnce(&Image) -> Result<T, ArrowError> + Send,
    ) -> PyResult<T> {
        let result = py.detach(|| {
            self.inner.image.read().map_err(|_| broken()).and_then(|image| read(&image))
        });
        result.map_err(python_error)
    }

    /// The same with a function that changes it.
    fn write<T: Send>(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut Image) -> Result<T, ArrowError> + Send,
    ) -> PyResult<T> {
        let result = py.detach(|| {
            self.inner.image.write().map_err(|_| broken()).and_then(|mut image| change(&mut image))
        });
        result.map_err(python_error)
    }
}

/// The columns, rows and label of a scan.
pub struct ScanRequest<'a> {
    pub columns: &'a [usize],
    /// If there are any, the scan has only rows with these keys.
    pub keys: Option<Keys>,
    pub conditions: &'a [&'a Predicate],
    pub limit: Option<usize>,
    /// The number of the table's regions, for the label.
    pub regions: usize,
}

impl Inner {
    /// Use the questions about a state from now on; false if the image has another state by now.
    pub fn use_questions(&self, state: usize, questions: Arc<Questions>) -> bool {
        self.image.read().is_ok_and(|image| {
            let is_same = image.state.as_ptr() as usize == state;
            is_same && self.set_questions(Some(questions))
        })
    }

    fn set_questions(&self, questions: Option<Arc<Questions>>) -> bool {
        self.questions.lock().map(|mut current| *current = questions).is_ok()
    }

    pub fn questions(&self) -> Option<Arc<Questions>> {
        self.questions.lock().ok()?.clone()
    }

    /// The key column, if there is only one.
    pub fn key(&self) -> Option<&Field> {
        self.key.map(|key| self.schema.field(key))
    }

    /// Whether all columns can be read.
    pub fn is_whole(&self) -> bool {
        let all = 0..self.schema.fields().len();
        self.image.read().is_ok_and(|image| all.into_iter().all(|column| image.rows.has(column)))
    }

    /// Some columns of the rows with these keys; None if a column can't be read.
    pub fn take(&self, keys: &Keys, columns: &[usize]) -> Option<RecordBatch> {
        let image = self.image.read().ok()?;
        let has_all = columns.iter().all(|&column| image.rows.has(column));
        if has_all { image.rows.take(keys, columns).ok() } else { None }
    }

    /// A scan of the current rows, or of those of `state`; None if the image has another state by now,
    /// if a column can't be read, or if a condition can't be evaluated here.
    pub fn scan(&self, state: Option<usize>, request: ScanRequest<'_>) -> Result<Option<Scan>> {
        let mut conditions = request.conditions.to_vec();
        let mut keys = request.keys;
        if let (None, Some(key)) = (&keys, self.key()) {
            let keys_in = |condition: &&Predicate| keys_of(condition.expr()?, key);
            let mut numbered = conditions.iter().enumerate();
            let first =
                numbered.find_map(|(number, condition)| Some((number, keys_in(condition)?)));
            if let Some((number, values)) = first {
                conditions.remove(number);
                keys = Some(values);
            }
        }
        let names = conditions.iter().flat_map(|condition| &condition.columns);
        let Ok(inputs) =
            names.map(|name| self.schema.index_of(name)).collect::<Result<Vec<_>, _>>()
        else {
            return Ok(None);
        };
        let mut columns = request.columns.to_vec();
        for input in inputs {
            if !columns.contains(&input) {
                columns.push(input);
            }
        }
        let Ok(image) = self.image.read() else {
            return Ok(None);
        };
        let (rows, is_same) = (&image.rows, |state| image.state.as_ptr() as usize == state);
        if !state.is_none_or(is_same) || !columns.iter().all(|&column| rows.has(column)) {
            return Ok(None);
        }
        let batches = match &keys {
            Some(keys) => vec![rows.take(keys, &columns)?],
            None => {
                let range = conditions.iter().fold(Range::ALL, |range, condition| {
                    let key = self.key().zip(condition.expr());
                    let own = key.and_then(|(key, expr)| range_of(expr, key, rows));
                    own.map_or(range, |own| range.within(own))
                });
                let most = request.limit.filter(|_| conditions.is_empty());
                rows.batches(&columns, range, most)?
            }
        };
        let schema = Arc::new(self.schema.project(request.columns)?);
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let shown: Vec<_> = request.conditions.iter().map(|condition| condition.shown()).collect();
        let label = format!(
            "LiveRowsExec: rows={}, columns=[{}], regions={}, chunks={}/{}, filter=[{}]",
            rows.len(),
            names.join(", "),
            request.regions,
            batches.len(),
            rows.chunks(),
            shown.join(", "),
        );
        let whole = Arc::new(self.schema.project(&columns)?);
        let conditions = conditions.iter().map(|condition| condition.compile(&whole));
        let conditions = conditions.collect::<Result<Vec<_>>>()?;
        // Float16 comes from the host as Float32, which no kernel compares it with.
        let none = RecordBatch::new_empty(whole);
        if conditions.iter().any(|condition| matches(condition.as_ref(), &none).is_err()) {
            return Ok(None);
        }
        Ok(Some(Scan { schema, batches, conditions, limit: request.limit, label }))
    }
}

/// The error after a panic within a change.
fn broken() -> ArrowError {
    ArrowError::ComputeError("the live rows are broken: drop them".to_owned())
}
