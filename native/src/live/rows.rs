//! The rows of a table, one a key, each at a place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use arrow::array::{
    ArrayData, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, make_array, new_empty_array,
};
use arrow::buffer::{BooleanBuffer, Buffer};
use arrow::compute::interleave;
use arrow::datatypes::{DataType, SchemaRef};
use arrow::error::{ArrowError, Result};
use arrow::util::bit_util::{set_bit, unset_bit};
use hashbrown::HashSet;

use crate::live::CHUNK;
use crate::live::column::{Column, copied_bytes, without_holes};
use crate::live::index::Index;
use crate::live::log::{Log, copied, parts};
use crate::rows::encoded::{Key, Keys};

const NONE: u32 = u32::MAX;
/// The number of places that share a range of keys.
const BLOCK: usize = 1 << 12;
/// The number of keys that are looked for together: what that reads fits into the first cache.
const TOGETHER: usize = 128;

pub struct Rows {
    schema: SchemaRef,
    /// The key column, if the index has its values.
    key: Option<usize>,
    index: Index,
    /// Columns by their numbers in the schema; None for those that are not kept.
    columns: Vec<Option<Column>>,
    chunks: Vec<Chunk>,
    /// The number of places, with those in `holes`, which have no row.
    count: usize,
    holes: Vec<u32>,
    /// Bytes that the log holds.
    logged: Arc<AtomicUsize>,
}

/// What a chunk has besides its values.
#[derive(Default)]
struct Chunk {
    log: Log,
    holes: usize,
    /// Which places have a row, from the first hole on.
    live: Vec<u8>,
    /// How often a hole was made or filled.
    changes: usize,
    /// The key column as it was lent last.
    keys: OnceLock<ArrayRef>,
    /// For each block of places a range with all keys that it has or has had.
    ranges: [Range; CHUNK / BLOCK],
}

/// The least and the greatest of some keys, as `Rows::ordered` has them.
#[derive(Clone, Copy)]
pub struct Range {
    pub least: u64,
    pub greatest: u64,
}

impl Default for Range {
    fn default() -> Self {
        Self { least: u64::MAX, greatest: 0 }
    }
}

impl Range {
    pub const ALL: Self = Self { least: 0, greatest: u64::MAX };

    fn widen(&mut self, key: u64) {
        self.least = self.least.min(key);
        self.greatest = self.greatest.max(key);
    }

    /// The keys in both ranges.
    pub fn within(self, other: Self) -> Self {
        let least = self.least.max(other.least);
        Self { least, greatest: self.greatest.min(other.greatest) }
    }

    fn meets(self, other: Self) -> bool {
        self.least <= other.greatest && other.least <= self.greatest
    }
}

impl Rows {
    /// No rows. `key`: the key column, if there is only one.
    pub fn new(schema: SchemaRef, key: Option<usize>) -> Self {
        let kind = key.map(|key| schema.field(key).data_type());
        let kind = kind.filter(|kind| kind.is_integer() || kind.is_temporal());
        let width = kind.and_then(DataType::primitive_width);
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

    /// Bytes of keys, of each column, and of rows that some column has not taken in.
    pub fn nbytes(&self) -> (usize, BTreeMap<usize, usize>, usize) {
        let columns = self.columns.iter().enumerate();
        let columns =
            columns.filter_map(|(number, column)| Some((number, column.as_ref()?.nbytes())));
        let beside = self.chunks.iter().enumerate().map(|(number, chunk)| {
            let lent = chunk.keys.get();
            let lent = lent.map_or(0, |lent| copied_bytes(lent, self.places_in(number)));
            lent + chunk.live.capacity()
        });
        let keys = self.index.nbytes() + beside.sum::<usize>();
        (keys, columns.collect(), self.logged.load(Ordering::Relaxed))
    }

    /// Whether the values of a column can be read.
    pub fn has(&self, column: usize) -> bool {
        self.key == Some(column) || matches!(&self.columns[column], Some(column) if column.loaded)
    }

    /// Keep the values of a column from now on; those of existing rows are to be loaded. Returns
    /// whether columns of its type are kept.
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
        let numbers = (0..self.columns.len()).filter(|&number| self.columns[number].is_some());
        let copy = |number| Ok((number, copied(batch.column(number))?));
        let columns = numbers.map(copy).collect::<Result<_>>()?;
        let mut places = Vec::with_capacity(keys.len());
        for row in 0..keys.len() {
            self.touch(keys, row);
            let key = keys.at(row);
            if gone.is_some_and(|gone| gone.value(row)) {
                let place = self.index.remove(key);
                place.into_iter().for_each(|place| self.free(place));
                places.push(NONE);
                continue;
            }
            places.push(self.place(key));
        }
        self.index.take_in();
        for (chunk, part) in parts(columns, self.sets(&places), &self.logged) {
            self.chunks[chunk].log.push(part);
            self.forget(chunk);
        }
        Ok(())
    }

    /// Add rows of these keys, whose values are to be loaded.
    pub fn insert(&mut self, keys: &Keys) -> Result<()> {
        self.check(keys)?;
        for row in 0..keys.len() {
            self.touch(keys, row);
            self.place(keys.at(row));
        }
        self.index.take_in();
        Ok(())
    }

    /// Begin to look for the next keys together.
    fn touch(&self, keys: &Keys, row: usize) {
        if row.is_multiple_of(TOGETHER) {
            self.index.touch(keys, row..keys.len().min(row + TOGETHER));
        }
    }

    /// The places of keys, in their order; None for those without one.
    fn find(&self, keys: &Keys) -> impl Iterator<Item = Option<u32>> {
        (0..keys.len()).map(|row| {
            self.touch(keys, row);
            self.index.find(keys.at(row))
        })
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

    /// For each chunk, places in it, and the rows at these places.
    fn sets(&self, places: &[u32]) -> Vec<Vec<(u16, u32)>> {
        let chunk = |place: u32| (place as usize / CHUNK).min(self.chunks.len());
        let mut counts = vec![0; self.chunks.len() + 1];
        places.iter().for_each(|&place| counts[chunk(place)] += 1);
        let mut sets: Vec<Vec<(u16, u32)>> = counts.into_iter().map(Vec::with_capacity).collect();
        for (row, &place) in places.iter().enumerate() {
            sets[chunk(place)].push((place as u16, row as u32));
        }
        sets.pop(); // those of no place
        sets
    }

    /// The place of the key, which has one from now on.
    fn place(&mut self, key: Key<'_>) -> u32 {
        let free = self.holes.last().copied().unwrap_or(self.count as u32);
        let place = self.index.find_or_insert(key, free);
        if place == free {
            self.occupy(place, key);
        }
        place
    }

    fn occupy(&mut self, place: u32, key: Key<'_>) {
        let is_hole = self.holes.pop().is_some();
        if !is_hole {
            self.count += 1;
            if self.count > self.chunks.len() * CHUNK {
                self.chunks.push(Chunk::default());
                let chunks = self.chunks.len();
                self.columns.iter_mut().flatten().for_each(|column| column.grow(chunks));
            }
        }
        let ordered = self.ordered(key);
        let chunk = &mut self.chunks[place as usize / CHUNK];
        if is_hole {
            chunk.holes -= 1;
            chunk.changes += 1;
            set_bit(&mut chunk.live, place as usize % CHUNK);
        }
        chunk.keys = OnceLock::new();
        chunk.ranges[place as usize % CHUNK / BLOCK].widen(ordered);
    }

    /// The key as a number of the same order; 0 if it is of several columns, or a text.
    pub fn ordered(&self, key: Key<'_>) -> u64 {
        let (Key::Word(word), Some(number)) = (key, self.key) else {
            return 0;
        };
        let kind = self.schema.field(number).data_type();
        if kind.is_unsigned_integer() {
            return word;
        }
        let above = 64 - 8 * kind.primitive_width().unwrap_or(8) as u32;
        ((word << above) as i64 >> above) as u64 ^ 1 << 63
    }

    fn free(&mut self, place: u32) {
        self.holes.push(place);
        let chunk = &mut self.chunks[place as usize / CHUNK];
        chunk.holes += 1;
        chunk.changes += 1;
        chunk.keys = OnceLock::new();
        chunk.live.resize(CHUNK / 8, 0xff);
        unset_bit(&mut chunk.live, place as usize % CHUNK);
    }

    /// Forget the part of a chunk's log that all columns have taken in.
    fn forget(&mut self, chunk: usize) {
        let log = &mut self.chunks[chunk].log;
        let cursors = self.columns.iter_mut().flatten().map(|column| column.cursor(chunk));
        log.forget(cursors.min().unwrap_or(log.end()));
    }

    /// Take values of rows that existed when their columns were admitted, with the keys of the rows.
    pub fn load(&self, numbers: &[usize], values: &RecordBatch, keys: &Keys) -> Result<()> {
        self.check(keys)?;
        let places: Vec<_> = self.find(keys).map(|place| place.unwrap_or(NONE)).collect();
        let values = values.columns().iter().map(|values| values.to_data());
        let columns = numbers.iter().copied().zip(values).collect();
        for (chunk, part) in parts(columns, self.sets(&places), &self.logged) {
            for &number in numbers {
                if let Some(column) = &self.columns[number] {
                    column.load(chunk, &part, self.places_in(chunk))?;
                }
            }
        }
        Ok(())
    }

    /// Note that all values of a column that were to be loaded are there.
    pub fn loaded(&mut self, number: usize) {
        self.columns[number].iter_mut().for_each(|column| column.loaded = true);
    }

    /// Let all columns take in the whole log.
    pub fn settle(&mut self) -> Result<()> {
        for chunk in 0..self.chunks.len() {
            let (log, rows) = (&self.chunks[chunk].log, self.places_in(chunk));
            for column in self.columns.iter().flatten().filter(|column| column.loaded) {
                column.settle(chunk, log, rows)?;
            }
            self.forget(chunk);
        }
        Ok(())
    }

    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Some columns of the rows, by chunk; without chunks whose keys are all outside of a range, as
    /// far as blocks tell, and no more chunks than it takes for so many rows.
    pub fn batches(
        &self,
        columns: &[usize],
        range: Range,
        most: Option<usize>,
    ) -> Result<Vec<RecordBatch>> {
        let schema = Arc::new(self.schema.project(columns)?);
        let (mut batches, mut rows) = (vec![], 0);
        for number in 0..self.chunks.len() {
            if most.is_some_and(|most| rows >= most) {
                break;
            }
            let (chunk, meets) = (&self.chunks[number], |own: &Range| own.meets(range));
            let Some(first) = chunk.ranges.iter().position(meets) else {
                continue;
            };
            let last = chunk.ranges.iter().rposition(meets).unwrap_or(first);
            let mut batch = self.batch(number, columns, &schema)?;
            if chunk.holes == 0 {
                let end = batch.num_rows().min((last + 1) * BLOCK);
                batch = batch.slice(first * BLOCK, end - first * BLOCK);
            }
            rows += batch.num_rows();
            batches.push(batch);
        }
        Ok(batches)
    }

    fn batch(&self, number: usize, columns: &[usize], schema: &SchemaRef) -> Result<RecordBatch> {
        let (chunk, rows) = (&self.chunks[number], self.places_in(number));
        let live = (chunk.holes > 0).then(|| {
            let bits = Buffer::from(chunk.live.as_slice());
            BooleanArray::new(BooleanBuffer::new(bits, 0, rows), None)
        });
        let array = |&of: &usize| match self.columns[of].as_ref().filter(|column| column.loaded) {
            Some(column) => column.array(number, &chunk.log, rows, (chunk.changes, live.as_ref())),
            None => self.keys(of, number, live.as_ref()),
        };
        let arrays = columns.iter().map(array).collect::<Result<_>>()?;
        batch(schema, arrays, rows - chunk.holes)
    }

    fn keys(&self, number: usize, chunk: usize, live: Option<&BooleanArray>) -> Result<ArrayRef> {
        let lent = &self.chunks[chunk].keys;
        if self.key == Some(number)
            && let Some(keys) = lent.get()
        {
            return Ok(Arc::clone(keys));
        }
        let keys = without_holes(self.key_array(number, chunk)?, live)?;
        Ok(Arc::clone(lent.get_or_init(|| keys)))
    }

    /// The rows of those keys that have one, once each, in the order of the keys.
    pub fn take(&self, keys: &Keys, columns: &[usize]) -> Result<RecordBatch> {
        self.check(keys)?;
        let mut found: Vec<_> = self.find(keys).flatten().collect();
        let mut seen = HashSet::with_capacity(found.len());
        found.retain(|&place| seen.insert(place));
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
                    arrays.push(self.key_array(number, chunk(&rows[0]))?);
                    own.iter().map(|&place| (arrays.len() - 1, place as usize)).collect()
                }
            };
            rows.iter().zip(spots).for_each(|(&row, spot)| at[row] = spot);
        }
        interleave(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>(), &at)
    }

    /// The keys of all places of a chunk, as the key column has them.
    fn key_array(&self, number: usize, chunk: usize) -> Result<ArrayRef> {
        let keys = self.index.column().filter(|_| self.key == Some(number));
        let keys = keys.ok_or_else(|| invalid("the column is not in memory"))?;
        let kind = self.schema.field(number).data_type().clone();
        let rows = self.places_in(chunk);
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
