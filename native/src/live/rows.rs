//! The rows of a table, one a key, each at a place.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{
    ArrayData, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, make_array, new_empty_array,
};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::compute::{filter, interleave};
use arrow::datatypes::SchemaRef;
use arrow::error::{ArrowError, Result};
use arrow::util::bit_util::{set_bit, unset_bit};

use crate::live::CHUNK;
use crate::live::column::Column;
use crate::live::index::{Index, Keys};
use crate::live::log::{Log, Part, Source};

const NONE: u32 = u32::MAX;

pub struct Rows {
    schema: SchemaRef,
    /// The column that the index has.
    key: Option<usize>,
    index: Index,
    /// By number in the schema; None for those that are not kept.
    columns: Vec<Option<Column>>,
    chunks: Vec<Chunk>,
    /// Places; those without a row are in `holes` too.
    count: usize,
    holes: Vec<u32>,
    /// Bytes that the log holds.
    logged: Arc<AtomicUsize>,
}

/// A chunk beside its values.
#[derive(Default)]
struct Chunk {
    log: Log,
    holes: usize,
    /// Which places have a row, from the first hole on.
    live: Vec<u8>,
}

impl Rows {
    /// No rows. `key`: the only key column, if keys are integers.
    pub fn new(schema: SchemaRef, key: Option<usize>) -> Self {
        let width = key.and_then(|key| schema.field(key).data_type().primitive_width());
        Self {
            index: Index::new(width),
            key: width.and(key),
            columns: schema.fields().iter().map(|_| None).collect(),
            chunks: vec![],
            count: 0,
            holes: vec![],
            logged: Arc::default(),
            schema,
        }
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    pub fn holes(&self) -> usize {
        self.holes.len()
    }

    /// Bytes of keys, of columns, and of rows that some column has not taken in.
    pub fn nbytes(&self) -> (usize, usize, usize) {
        let columns = self.columns.iter().flatten().map(Column::nbytes).sum();
        let live: usize = self.chunks.iter().map(|chunk| chunk.live.capacity()).sum();
        (self.index.nbytes() + live, columns, self.logged.load(Ordering::Relaxed))
    }

    /// Whether the values of a column can be read.
    pub fn has(&self, column: usize) -> bool {
        self.key == Some(column) || matches!(&self.columns[column], Some(column) if column.loaded)
    }

    /// Keep what comes from now on of a column; what is there already is to be loaded. Whether
    /// columns of its type are kept.
    pub fn admit(&mut self, number: usize) -> bool {
        if self.key == Some(number) || self.columns[number].is_some() {
            return true;
        }
        let ends = self.chunks.iter().map(|chunk| chunk.log.end());
        let kind = self.schema.field(number).data_type();
        self.columns[number] = Column::new(number, kind, ends, self.count == 0);
        self.columns[number].is_some()
    }

    pub fn evict(&mut self, number: usize) {
        self.columns[number] = None;
    }

    pub fn reserve(&mut self, rows: usize) {
        self.index.reserve(rows);
    }

    /// Set the rows of a batch, or take those out that are `gone`.
    pub fn apply(
        &mut self,
        batch: &RecordBatch,
        keys: &Keys,
        gone: Option<&BooleanArray>,
    ) -> Result<()> {
        let mut places = Vec::with_capacity(keys.len());
        for row in 0..keys.len() {
            let key = keys.at(row);
            if gone.is_some_and(|gone| gone.value(row)) {
                let place = self.index.remove(key);
                place.into_iter().for_each(|place| self.free(place));
                places.push(NONE);
                continue;
            }
            let free = self.holes.last().copied().unwrap_or(self.count as u32);
            let place = self.index.find_or_insert(key, free);
            if place == free {
                self.occupy(place);
            }
            places.push(place);
        }
        self.index.take_in();
        let source = Arc::new(Source::new(batch, &self.logged));
        for (chunk, part) in self.parts(&source, &places) {
            self.chunks[chunk].log.push(part);
            self.forget(chunk);
        }
        Ok(())
    }

    /// An error if these keys can't be applied, or asked for.
    pub fn check(&self, keys: &Keys) -> Result<()> {
        if self.count + keys.len() > NONE as usize {
            return Err(invalid("there are too many rows"));
        }
        if !self.index.takes(keys) {
            return Err(invalid("the keys are not of the type of the others"));
        }
        Ok(())
    }

    /// The rows of a source by chunk.
    fn parts(&self, source: &Arc<Source>, places: &[u32]) -> Vec<(usize, Part)> {
        let chunk = |place: u32| (place as usize / CHUNK).min(self.chunks.len());
        let mut counts = vec![0; self.chunks.len() + 1];
        places.iter().for_each(|&place| counts[chunk(place)] += 1);
        let mut sets: Vec<Vec<(u16, u32)>> = counts.into_iter().map(Vec::with_capacity).collect();
        for (row, &place) in places.iter().enumerate() {
            sets[chunk(place)].push((place as u16, row as u32));
        }
        sets.pop(); // those of no place
        let parts = sets.into_iter().enumerate().filter(|(_, sets)| !sets.is_empty());
        parts.map(|(chunk, sets)| (chunk, Part { source: Arc::clone(source), sets })).collect()
    }

    fn occupy(&mut self, place: u32) {
        if self.holes.pop().is_some() {
            let chunk = &mut self.chunks[place as usize / CHUNK];
            chunk.holes -= 1;
            set_bit(&mut chunk.live, place as usize % CHUNK);
            return;
        }
        self.count += 1;
        if self.count > self.chunks.len() * CHUNK {
            self.chunks.push(Chunk::default());
            let chunks = self.chunks.len();
            self.columns.iter_mut().flatten().for_each(|column| column.grow(chunks));
        }
    }

    fn free(&mut self, place: u32) {
        self.holes.push(place);
        let chunk = &mut self.chunks[place as usize / CHUNK];
        chunk.holes += 1;
        chunk.live.resize(CHUNK / 8, 0xff);
        unset_bit(&mut chunk.live, place as usize % CHUNK);
    }

    /// Forget what all columns have of a chunk's log.
    fn forget(&mut self, chunk: usize) {
        let log = &mut self.chunks[chunk].log;
        let cursors = self.columns.iter_mut().flatten().map(|column| column.cursor(chunk));
        log.forget(cursors.min().unwrap_or(log.end()));
    }

    /// Values of a column of rows that were there when it was admitted, and their keys.
    pub fn load(&self, number: usize, values: &RecordBatch, keys: &Keys) -> Result<()> {
        self.check(keys)?;
        let places = (0..keys.len()).map(|row| self.index.find(keys.at(row)).unwrap_or(NONE));
        let places: Vec<_> = places.collect();
        // The column has the same place as in other sources.
        let values = values.project(&vec![0; number + 1])?;
        let source = Arc::new(Source::new(&values, &self.logged));
        for (chunk, part) in self.parts(&source, &places) {
            if let Some(column) = &self.columns[number] {
                column.load(chunk, part, self.places_in(chunk))?;
            }
        }
        Ok(())
    }

    /// All values of a column are there that were to be loaded.
    pub fn loaded(&mut self, number: usize) {
        self.columns[number].iter_mut().for_each(|column| column.loaded = true);
    }

    /// Let all columns take in the whole log.
    pub fn settle(&mut self) -> Result<()> {
        for chunk in 0..self.chunks.len() {
            let (log, rows) = (&self.chunks[chunk].log, self.places_in(chunk));
            for column in self.columns.iter().flatten().filter(|column| column.loaded) {
                column.array(chunk, log, rows)?;
            }
            self.forget(chunk);
        }
        Ok(())
    }

    /// The rows, some columns of them.
    pub fn batches(&self, columns: &[usize]) -> Result<Vec<RecordBatch>> {
        let schema = Arc::new(self.schema.project(columns)?);
        (0..self.chunks.len()).map(|chunk| self.batch(chunk, columns, &schema)).collect()
    }

    fn batch(&self, number: usize, columns: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
        let (chunk, rows) = (&self.chunks[number], self.places_in(number));
        let live = (chunk.holes > 0).then(|| {
            BooleanArray::new(
                BooleanBuffer::new(Buffer::from(chunk.live.as_slice()), 0, rows),
                None,
            )
        });
        let array = |&column: &usize| {
            let array = self.array(column, number)?;
            live.as_ref().map_or(Ok(Arc::clone(&array)), |live| filter(&array, live))
        };
        let arrays = columns.iter().map(array).collect::<Result<_>>()?;
        batch(schema, arrays, rows - chunk.holes)
    }

    /// The rows of those keys that have one, in the order of the keys.
    pub fn take(&self, keys: &Keys, columns: &[usize]) -> Result<RecordBatch> {
        self.check(keys)?;
        let found = (0..keys.len()).filter_map(|row| self.index.find(keys.at(row)));
        let found: Vec<_> = found.collect();
        let schema = Arc::new(self.schema.project(columns)?);
        let arrays = columns.iter().map(|&column| self.values(column, &found));
        batch(&schema, arrays.collect::<Result<_>>()?, found.len())
    }

    fn values(&self, number: usize, places: &[u32]) -> Result<ArrayRef> {
        if places.is_empty() {
            return Ok(new_empty_array(self.schema.field(number).data_type()));
        }
        let chunk = |&row: &usize| places[row] as usize / CHUNK;
        let mut order: Vec<_> = (0..places.len()).collect();
        order.sort_by_key(chunk);
        let (mut arrays, mut at) = (vec![], vec![(0, 0); places.len()]);
        for rows in order.chunk_by(|a, b| chunk(a) == chunk(b)) {
            let own: Vec<_> = rows.iter().map(|&row| places[row] as u16).collect();
            let spots = match &self.columns[number] {
                Some(column) if column.loaded => {
                    let chunk = chunk(&rows[0]);
                    let log = &self.chunks[chunk].log;
                    column.find(chunk, log, self.places_in(chunk), &own, &mut arrays)?
                }
                _ => {
                    arrays.push(self.array(number, chunk(&rows[0]))?);
                    own.iter().map(|&place| (arrays.len() - 1, place as usize)).collect()
                }
            };
            rows.iter().zip(spots).for_each(|(&row, spot)| at[row] = spot);
        }
        interleave(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>(), &at)
    }

    /// The values of all places of a chunk.
    fn array(&self, number: usize, chunk: usize) -> Result<ArrayRef> {
        let rows = self.places_in(chunk);
        if let Some(column) = self.columns[number].as_ref().filter(|column| column.loaded) {
            return column.array(chunk, &self.chunks[chunk].log, rows);
        }
        let keys = self.index.column().filter(|_| self.key == Some(number));
        let keys = keys.ok_or_else(|| invalid("the column is not in memory"))?;
        let kind = self.schema.field(number).data_type().clone();
        let values = keys[chunk].lend(usize::MAX);
        Ok(make_array(ArrayData::builder(kind).len(rows).add_buffer(values).build()?))
    }

    fn places_in(&self, chunk: usize) -> usize {
        (self.count - chunk * CHUNK).min(CHUNK)
    }
}

fn invalid(what: &str) -> ArrowError {
    ArrowError::InvalidArgumentError(what.to_owned())
}

fn batch(schema: &SchemaRef, arrays: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), arrays, &options)
}
