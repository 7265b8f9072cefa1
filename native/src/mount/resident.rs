//! Rows in memory that a Python node hands over, streamed without the interpreter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use std::vec::IntoIter;

use arrow::array::{Array, RecordBatch, RecordBatchOptions, StructArray};
use arrow::buffer::BooleanBuffer;
use arrow::datatypes::SchemaRef;
use datafusion_common::Result;
use datafusion_physical_plan::PhysicalExpr;
use pyo3::prelude::*;

use crate::filters::predicate::Predicate;
use crate::filters::rows::{filtered, mask_of};
use crate::python::arrow_bridge::{ArrowArray, any_batch_from_python, schema_from_python};
use crate::python::buffers::{Numbers, invalid};
use crate::python::errors::{guarded, python_error};
use crate::rows::live::alive;

/// Batches that fit into the processor's caches.
const BATCH_ROWS: usize = 65_536;
const BATCH_BYTES: usize = 4 << 20;

/// Counts of what one stream of a node has yielded, which others read while it goes on.
#[pyclass(frozen, module = "memwal_native")]
#[derive(Default)]
pub struct StreamCounts(Arc<Counts>);

/// Rows, batches, bytes, nanoseconds and stale rows.
#[derive(Default)]
struct Counts([AtomicU64; 5]);

#[pymethods]
impl StreamCounts {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// Rows, batches, bytes, nanoseconds and stale rows.
    fn values(&self) -> [u64; 5] {
        self.0.0.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Add a batch of so many rows, if there are any, that took so many nanoseconds.
    fn add(&self, rows: u64, size: u64, ns: u64) {
        self.0.add([rows, u64::from(rows > 0), size, ns, 0]);
    }
}

impl Counts {
    fn add(&self, more: [u64; 5]) {
        for (count, more) in self.0.iter().zip(more) {
            count.fetch_add(more, Ordering::Relaxed);
        }
    }

    fn add_batch(&self, rows: usize, size: usize, start: Instant, stale: usize) {
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.add([rows as u64, u64::from(rows > 0), size as u64, ns, stale as u64]);
    }
}

/// The rows of one source: the output's columns first, then others that the conditions read.
struct Piece {
    rows: RecordBatch,
    conditions: Vec<Arc<dyn PhysicalExpr>>,
    /// Which rows live; None if all do.
    live: Option<BooleanBuffer>,
    /// The rows of a batch.
    size: usize,
    /// The counts of the node that reads the source.
    counts: Arc<Counts>,
}

/// The rows of one partition of a node: the live rows of some sources that meet conditions, in
/// batches, and no more than `limit`.
#[pyclass(module = "memwal_native")]
pub struct ResidentStream {
    columns: usize,
    limit: Option<usize>,
    pieces: Vec<Piece>,
    /// The counts of the node that puts sources together, and of the one that drops stale rows.
    union: Arc<Counts>,
    live: Arc<Counts>,
}

#[pymethods]
impl ResidentStream {
    #[new]
    fn new(
        columns: usize,
        limit: Option<usize>,
        union: &StreamCounts,
        live: &StreamCounts,
    ) -> Self {
        let (union, live) = (Arc::clone(&union.0), Arc::clone(&live.0));
        Self { columns, limit, pieces: vec![], union, live }
    }

    /// Add the rows of `batch`, a `pyarrow.RecordBatch` of the output's columns and of those that the
    /// conditions read, which are at `addresses`, less those in `stale`; both ascend.
    fn add(
        &mut self,
        py: Python<'_>,
        batch: &Bound<'_, PyAny>,
        addresses: &Bound<'_, PyAny>,
        stale: &Bound<'_, PyAny>,
        conditions: Vec<Bound<'_, Predicate>>,
        counts: &StreamCounts,
    ) -> PyResult<()> {
        let rows = any_batch_from_python(batch)?;
        let (addresses, stale) = (Numbers::<u64>::new(addresses)?, Numbers::<u64>::new(stale)?);
        let (addresses, stale) = (addresses.slice(), stale.slice());
        if addresses.len() != rows.num_rows() {
            return Err(invalid("every row must have an address"));
        }
        let compiled =
            conditions.iter().map(|condition| condition.get().compile(rows.schema_ref()));
        self.pieces.push(Piece {
            conditions: compiled.collect::<Result<_>>().map_err(python_error)?,
            live: py.detach(|| alive(addresses, stale)),
            size: batch_rows(&rows),
            counts: Arc::clone(&counts.0),
            rows,
        });
        Ok(())
    }

    /// The rows as objects with `__arrow_c_array__`, and none here any more.
    fn batches(&mut self, schema: &Bound<'_, PyAny>) -> PyResult<ResidentBatches> {
        Ok(ResidentBatches(self.take(schema_from_python(schema)?)))
    }
}

/// The batches of a `ResidentStream`, for Python.
#[pyclass(module = "memwal_native")]
pub struct ResidentBatches(Batches);

#[pymethods]
impl ResidentBatches {
    fn __iter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<ArrowArray>> {
        let some = |batch: &Result<RecordBatch>| batch.as_ref().map_or(true, |b| b.num_rows() > 0);
        let batch = py.detach(|| guarded(|| self.0.find(some).transpose()));
        let batch = batch.map_err(python_error)?;
        Ok(batch.map(|batch| ArrowArray(Arc::new(StructArray::from(batch)))))
    }
}

impl ResidentStream {
    /// The rows as batches of `schema`, and none here any more.
    pub fn take(&mut self, schema: SchemaRef) -> Batches {
        Batches {
            pieces: std::mem::take(&mut self.pieces).into_iter(),
            piece: None,
            next: 0,
            columns: self.columns,
            remaining: self.limit,
            union: Arc::clone(&self.union),
            live: Arc::clone(&self.live),
            schema,
        }
    }
}

fn batch_rows(rows: &RecordBatch) -> usize {
    // A slice counts without the rest of its buffers.
    let sizes = rows.columns().iter().map(|column| column.to_data().get_slice_memory_size());
    let bytes: usize = sizes.map(|size| size.unwrap_or(0)).sum();
    (BATCH_BYTES / (bytes / rows.num_rows().max(1)).max(1)).clamp(1, BATCH_ROWS)
}

/// A batch may have no row.
pub struct Batches {
    pieces: IntoIter<Piece>,
    piece: Option<Piece>,
    /// The first row of the piece that was not yielded.
    next: usize,
    columns: usize,
    remaining: Option<usize>,
    union: Arc<Counts>,
    live: Arc<Counts>,
    schema: SchemaRef,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.remaining != Some(0) {
            let done = self.piece.as_ref().is_none_or(|piece| self.next >= piece.rows.num_rows());
            if done {
                self.piece = Some(self.pieces.next()?);
                self.next = 0;
                continue;
            }
            return Some(self.batch());
        }
        None
    }
}

impl Batches {
    fn batch(&mut self) -> Result<RecordBatch> {
        let Some(piece) = &self.piece else {
            return Ok(RecordBatch::new_empty(Arc::clone(&self.schema)));
        };
        let start = Instant::now();
        let count = piece.size.min(piece.rows.num_rows() - self.next);
        let rows = piece.rows.slice(self.next, count);
        let live = piece.live.as_ref().map(|live| live.slice(self.next, count));
        self.next += count;
        let matches = mask_of(&piece.conditions, &rows)?;
        let matching = matches.as_ref().map_or(count, BooleanBuffer::count_set_bits);
        let size: usize =
            rows.columns()[..self.columns].iter().map(Array::get_array_memory_size).sum();
        piece.counts.add_batch(matching, size, start, 0);
        self.union.add_batch(matching, size, start, 0);
        let start = Instant::now();
        let mask = match (matches, live) {
            (Some(matches), Some(live)) => Some(&matches & &live),
            (matches, live) => matches.or(live),
        };
        let mut rows = filtered(&rows, self.columns, mask)?;
        let stale = matching - rows.num_rows();
        if let Some(remaining) = &mut self.remaining {
            rows = rows.slice(0, rows.num_rows().min(*remaining));
            *remaining -= rows.num_rows();
        }
        self.live.add_batch(rows.num_rows(), rows.get_array_memory_size(), start, stale);
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let schema = Arc::clone(&self.schema);
        Ok(RecordBatch::try_new_with_options(schema, rows.columns().to_vec(), &options)?)
    }
}
