//! Answers scans and lookups from live rows without the interpreter, as long as these are current.

use std::cell::Cell;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use pyo3::prelude::*;

use crate::live::image::{Inner, LiveImage};
use crate::live::questions::{LiveQuestions, Questions};
use crate::python::arrow_bridge::ArrowStream;
use crate::python::errors::{guarded, python_error};
use crate::rows::encoded::keys_from_python;

thread_local! {
    /// Whether Python sees the scans that this thread plans.
    static NOTED: Cell<bool> = const { Cell::new(false) };
}

/// Set whether Python sees the scans that this thread plans; returns whether it did until now.
#[pyfunction]
pub fn note_scans(noted: bool) -> bool {
    NOTED.replace(noted)
}

/// A flag that Python code and native code share.
#[pyclass(frozen, module = "memwal_native")]
#[derive(Default)]
pub struct Flag(Arc<AtomicBool>);

#[pymethods]
impl Flag {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn set(&self, is_set: bool) {
        self.0.store(is_set, Ordering::SeqCst);
    }
}

/// Answers from the live rows of a table handle, without a look. It does not keep the rows from being
/// dropped.
#[pyclass(frozen, module = "memwal_native")]
pub struct LiveAnswers(Arc<Answers>);

struct Answers {
    /// The process that made it: in a fork of that, locks may stay locked for good.
    pid: u32,
    image: Mutex<Weak<Inner>>,
    /// The number of scans and lookups that were answered.
    count: AtomicU64,
}

impl Answers {
    /// The rows, and the questions that tell if they are current.
    fn image(&self) -> Option<(Arc<Inner>, Arc<Questions>)> {
        if self.pid != process::id() {
            return None;
        }
        let image = self.image.lock().ok()?.upgrade()?;
        let questions = image.questions()?;
        (!questions.are_void()).then_some((image, questions))
    }
}

#[pymethods]
impl LiveAnswers {
    #[new]
    fn new() -> Self {
        Self(Arc::new(Answers {
            pid: process::id(),
            image: Mutex::default(),
            count: AtomicU64::new(0),
        }))
    }

    /// Answer from `image` from now on, as long as the questions of the look that found `state` say
    /// that nothing has changed. Does nothing if the image has another state by now.
    fn leave(
        &self,
        py: Python<'_>,
        image: &LiveImage,
        state: &Bound<'_, PyAny>,
        questions: &LiveQuestions,
    ) {
        let (state, questions) = (state.as_ptr() as usize, Arc::clone(&questions.0));
        py.detach(|| {
            if image.inner.use_questions(state, questions)
                && let Ok(mut own) = self.0.image.lock()
            {
                *own = Arc::downgrade(&image.inner);
            }
        });
    }

    /// The number of scans and lookups that were answered.
    #[getter]
    fn count(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Whether there are live rows that may be current.
    #[getter]
    fn are_likely(&self) -> bool {
        self.0.image().is_some()
    }

    /// The rows with these keys: the named columns, a row for each key that has one, in the order of
    /// the keys. None if a look is needed.
    fn get(
        &self,
        py: Python<'_>,
        keys: &Bound<'_, PyAny>,
        columns: Vec<String>,
    ) -> PyResult<Option<ArrowStream>> {
        let Some((image, questions)) = self.0.image() else {
            return Ok(None);
        };
        let keys = keys_from_python(keys)?;
        let found = || {
            let numbers = columns.iter().map(|name| image.schema.index_of(name).ok());
            let numbers: Vec<_> = numbers.collect::<Option<_>>()?;
            if questions.nothing_is_new() { image.take(&keys, &numbers) } else { None }
        };
        let batch = py.detach(|| guarded(|| Ok(found()))).map_err(python_error)?;
        let stream =
            |batch: RecordBatch| ArrowStream { schema: batch.schema(), batches: vec![batch] };
        self.0.count.fetch_add(u64::from(batch.is_some()), Ordering::Relaxed);
        Ok(batch.map(stream))
    }
}

/// Live rows for a mounted table.
#[pyclass(frozen, skip_from_py_object, module = "memwal_native")]
#[derive(Clone)]
pub struct LiveAccess {
    answers: Arc<Answers>,
    /// Whether the session has an open transaction.
    within: Arc<AtomicBool>,
    ids: Arc<[i64]>,
}

#[pymethods]
impl LiveAccess {
    /// `ids` are the field ids of the columns of the mounted table.
    #[new]
    fn new(answers: &LiveAnswers, within: &Flag, ids: Vec<i64>) -> Self {
        let (answers, within) = (Arc::clone(&answers.0), Arc::clone(&within.0));
        Self { answers, within, ids: ids.into() }
    }
}

impl LiveAccess {
    /// The live rows, if they are likely to answer a scan of any columns.
    pub fn likely(&self, schema: &SchemaRef) -> Option<Arc<Inner>> {
        self.open(schema).map(|(image, _)| image).filter(|image| image.is_whole())
    }

    /// The live rows, if they are current, and the number of regions.
    pub fn rows(&self, schema: &SchemaRef) -> Option<(Arc<Inner>, usize)> {
        let (image, questions) = self.open(schema)?;
        questions.nothing_is_new().then(|| (image, questions.regions.len()))
    }

    pub fn note_answer(&self) {
        self.answers.count.fetch_add(1, Ordering::Relaxed);
    }

    fn open(&self, schema: &SchemaRef) -> Option<(Arc<Inner>, Arc<Questions>)> {
        if self.within.load(Ordering::SeqCst) || NOTED.get() {
            return None;
        }
        let (image, questions) = self.answers.image()?;
        let same = image.schema == *schema && questions.ids[..] == self.ids[..];
        same.then_some((image, questions))
    }
}
