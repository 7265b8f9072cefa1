//! The values of one column, by place.

use std::iter;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::Array;
use arrow::array::{
    ArrayData, ArrayRef, BooleanArray, MutableArrayData, make_array, new_empty_array,
    new_null_array,
};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::filter;
use arrow::datatypes::DataType;
use arrow::error::Result;
use arrow::util::bit_util::{ceil, get_bit, set_bit, unset_bit};

use crate::live::CHUNK;
use crate::live::log::{Log, Part, newest};
use crate::live::shared::Shared;

/// The most rows of a log that are searched for a value; if it has more, the chunk takes them in.
const SEARCHED: usize = 4_096;

/// How values are kept.
#[derive(Clone, Copy)]
enum Form {
    Bits,
    /// This many bytes a value.
    Bytes(usize),
    /// Arrow arrays, which are made again for each change.
    Arrays,
}

impl Form {
    /// The form of a type's values; None for types whose columns are not kept.
    fn of(kind: &DataType) -> Option<Self> {
        let kept = |kind: &DataType| Self::of(kind).is_some();
        let nested = match kind {
            DataType::Boolean => return Some(Self::Bits),
            DataType::FixedSizeBinary(width @ 1..=32) => {
                return Some(Self::Bytes(*width as usize));
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => true,
            DataType::FixedSizeBinary(_) | DataType::Null => true,
            DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
                kept(item.data_type())
            }
            DataType::Struct(fields) => fields.iter().all(|field| kept(field.data_type())),
            other => return other.primitive_width().map(Self::Bytes),
        };
        nested.then_some(Self::Arrays)
    }
}

pub struct Column {
    /// Its number in the schema, and in sources.
    number: usize,
    kind: DataType,
    form: Form,
    /// Whether it has all values that are not in the log.
    pub loaded: bool,
    chunks: Vec<Mutex<Chunk>>,
}

/// The values of the first places of a chunk after the first parts of its log.
struct Chunk {
    cursor: usize,
    rows: usize,
    values: Values,
    /// The array that was lent last, and how many holes had been made and filled by then.
    lent: Option<(usize, ArrayRef)>,
}

enum Values {
    /// Numbers or bits, and which are not NULL, from the first NULL on.
    Plain(Shared, Option<Shared>),
    Arrays(ArrayData),
}

impl Column {
    /// A column whose values are in logs from these places on. None if columns of its type are not
    /// kept.
    pub fn new(
        number: usize,
        kind: &DataType,
        cursors: impl Iterator<Item = usize>,
        loaded: bool,
    ) -> Option<Self> {
        let form = Form::of(kind)?;
        let mut column = Self { number, kind: kind.clone(), form, loaded, chunks: vec![] };
        column.chunks = cursors.map(|cursor| column.chunk(cursor)).collect();
        Some(column)
    }

    fn chunk(&self, cursor: usize) -> Mutex<Chunk> {
        let values = match self.form {
            Form::Arrays => Values::Arrays(new_empty_array(&self.kind).to_data()),
            _ => Values::Plain(Shared::default(), None),
        };
        Mutex::new(Chunk { cursor, rows: 0, values, lent: None })
    }

    /// Add chunks without values until there are this many.
    pub fn grow(&mut self, chunks: usize) {
        while self.chunks.len() < chunks {
            self.chunks.push(self.chunk(0));
        }
    }

    /// Set values as they were before those of the log.
    pub fn load(&self, chunk: usize, part: &Part, rows: usize) -> Result<()> {
        self.set(&mut locked(&self.chunks[chunk]), slice::from_ref(part), rows)
    }

    pub fn nbytes(&self) -> usize {
        let size = |chunk: &Mutex<Chunk>| {
            let chunk = locked(chunk);
            let lent = chunk.lent.as_ref().map_or(0, |(_, lent)| copied_bytes(lent, chunk.rows));
            lent + match &chunk.values {
                Values::Plain(values, valid) => {
                    values.capacity() + valid.as_ref().map_or(0, Shared::capacity)
                }
                Values::Arrays(data) => data.get_array_memory_size(),
            }
        };
        self.chunks.iter().map(size).sum()
    }

    /// The first part of the chunk's log that it lacks.
    pub fn cursor(&mut self, chunk: usize) -> usize {
        self.chunks[chunk].get_mut().unwrap_or_else(PoisonError::into_inner).cursor
    }

    /// The values of the first places of a chunk after its whole log, without those in holes. The
    /// pair says how many holes were made and filled by now, and which places have a row.
    pub fn array(
        &self,
        chunk: usize,
        log: &Log,
        rows: usize,
        (holes, live): (usize, Option<&BooleanArray>),
    ) -> Result<ArrayRef> {
        let mut chunk = locked(&self.chunks[chunk]);
        self.take_in(&mut chunk, log, rows)?;
        if let Some((_, lent)) = chunk.lent.as_ref().filter(|(of, _)| *of == holes) {
            return Ok(Arc::clone(lent));
        }
        let lent = without_holes(self.lend(&chunk.values, rows)?, live)?;
        chunk.lent = Some((holes, Arc::clone(&lent)));
        Ok(lent)
    }

    /// Take the whole log into a chunk.
    pub fn settle(&self, chunk: usize, log: &Log, rows: usize) -> Result<()> {
        self.take_in(&mut locked(&self.chunks[chunk]), log, rows)
    }

    /// Where the values of some places of a chunk are: arrays, and an array and a row for each.
    pub fn find(
        &self,
        chunk: usize,
        log: &Log,
        rows: usize,
        places: &[u16],
        arrays: &mut Vec<ArrayRef>,
    ) -> Result<Vec<(usize, usize)>> {
        let mut chunk = locked(&self.chunks[chunk]);
        let unseen: usize = log.since(chunk.cursor).iter().map(|part| part.sets.len()).sum();
        if unseen * places.len() > SEARCHED {
            self.take_in(&mut chunk, log, rows)?;
        }
        let parts = log.since(chunk.cursor);
        let own = arrays.len();
        arrays.push(self.lend(&chunk.values, chunk.rows)?);
        Ok(places
            .iter()
            .map(|&place| match newest(parts, place) {
                None => (own, place as usize),
                Some((part, row)) => {
                    arrays.push(make_array(part.source.column(self.number).clone()));
                    (arrays.len() - 1, row as usize)
                }
            })
            .collect())
    }

    fn take_in(&self, chunk: &mut Chunk, log: &Log, rows: usize) -> Result<()> {
        self.set(chunk, log.since(chunk.cursor), rows)?;
        chunk.cursor = log.end();
        Ok(())
    }

    fn set(&self, chunk: &mut Chunk, parts: &[Part], rows: usize) -> Result<()> {
        if parts.is_empty() && rows <= chunk.rows {
            return Ok(());
        }
        chunk.rows = chunk.rows.max(rows);
        chunk.lent = None; // or what it shares would have to be copied
        match &mut chunk.values {
            Values::Plain(values, valid) => {
                self.put(values, parts, chunk.rows);
                self.put_valid(valid, parts, chunk.rows);
            }
            Values::Arrays(data) => *data = self.rewritten(data, parts, chunk.rows)?,
        }
        Ok(())
    }

    fn put(&self, values: &mut Shared, parts: &[Part], rows: usize) {
        let values = values.resized(self.size(rows), 0, self.size(CHUNK));
        for Part { source, sets } in parts {
            let source = source.column(self.number);
            let (from, first) = (source.buffers()[0].as_slice(), source.offset());
            match self.form {
                Form::Bytes(1) => put::<1>(values, &from[first..], sets),
                Form::Bytes(2) => put::<2>(values, &from[first * 2..], sets),
                Form::Bytes(4) => put::<4>(values, &from[first * 4..], sets),
                Form::Bytes(8) => put::<8>(values, &from[first * 8..], sets),
                Form::Bytes(16) => put::<16>(values, &from[first * 16..], sets),
                Form::Bytes(width) => {
                    for &(place, row) in sets {
                        let value = &from[(first + row as usize) * width..][..width];
                        values[place as usize * width..][..width].copy_from_slice(value);
                    }
                }
                _ => put_bits(values, sets, |row| get_bit(from, first + row)),
            }
        }
    }

    fn put_valid(&self, valid: &mut Option<Shared>, parts: &[Part], rows: usize) {
        let nulls = |part: &Part| part.source.column(self.number).nulls().cloned();
        if valid.is_none() && parts.iter().all(|part| nulls(part).is_none()) {
            return;
        }
        let bits = valid.get_or_insert_default().resized(ceil(rows, 8), 0xff, CHUNK / 8);
        for part in parts {
            let nulls = nulls(part);
            put_bits(bits, &part.sets, |row| {
                nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row))
            });
        }
    }

    /// The values and the newest ones of the parts.
    fn rewritten(&self, old: &ArrayData, parts: &[Part], rows: usize) -> Result<ArrayData> {
        let mut news: Vec<(usize, usize, usize)> = vec![];
        for (number, Part { sets, .. }) in parts.iter().enumerate() {
            let own = sets.iter().map(|&(place, row)| (place as usize, number + 1, row as usize));
            news.extend(own);
        }
        news.sort_by_key(|&(place, ..)| place);
        news.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            if same {
                *kept = *later;
            }
            same
        });
        // Values of places that never had a row, or not since the column is here: any will do.
        let none = new_null_array(&self.kind, 1).to_data();
        let added = news.iter().filter(|(place, ..)| *place >= old.len()).count();
        let sources = parts.iter().map(|part| part.source.column(self.number));
        let mut arrays: Vec<_> = iter::once(old).chain(sources).collect();
        arrays.extend((added < rows - old.len()).then_some(&none));
        let last = arrays.len() - 1;
        let mut made = MutableArrayData::new(arrays, false, rows);
        let fill = |made: &mut MutableArrayData<'_>, end: usize| -> Result<()> {
            if made.len() < end.min(old.len()) {
                made.try_extend(0, made.len(), end.min(old.len()))?;
            }
            (made.len()..end).try_for_each(|_| made.try_extend(last, 0, 1))
        };
        for run in news.chunk_by(|a, b| (a.0 + 1, a.1, a.2 + 1) == *b) {
            let (place, number, row) = run[0];
            fill(&mut made, place)?;
            made.try_extend(number, row, row + run.len())?;
        }
        fill(&mut made, rows)?;
        Ok(made.freeze())
    }

    /// The bytes of the values of this many rows.
    fn size(&self, rows: usize) -> usize {
        match self.form {
            Form::Bytes(width) => rows * width,
            _ => ceil(rows, 8),
        }
    }

    fn lend(&self, values: &Values, rows: usize) -> Result<ArrayRef> {
        let (values, valid) = match values {
            Values::Arrays(data) => return Ok(make_array(data.slice(0, rows))),
            Values::Plain(values, valid) => (values, valid),
        };
        let bits = |bits: &Shared| BooleanBuffer::new(bits.lend(ceil(rows, 8)), 0, rows);
        let nulls = valid.as_ref().map(|valid| NullBuffer::new(bits(valid)));
        let data = ArrayData::builder(self.kind.clone())
            .len(rows)
            .add_buffer(values.lend(self.size(rows)));
        let data = data.nulls(nulls.filter(|nulls| nulls.null_count() > 0)).build()?;
        Ok(make_array(data))
    }
}

/// The values of a chunk without those in holes.
pub fn without_holes(values: ArrayRef, live: Option<&BooleanArray>) -> Result<ArrayRef> {
    live.map_or(Ok(Arc::clone(&values)), |live| filter(&values, live))
}

/// The bytes that lent values take besides the column's: none, unless they are fewer than the places
/// and so a copy.
pub fn copied_bytes(lent: &ArrayRef, places: usize) -> usize {
    if lent.len() < places { lent.get_array_memory_size() } else { 0 }
}

fn locked(chunk: &Mutex<Chunk>) -> MutexGuard<'_, Chunk> {
    chunk.lock().unwrap_or_else(PoisonError::into_inner)
}

fn put<const WIDTH: usize>(values: &mut [u8], from: &[u8], sets: &[(u16, u32)]) {
    let (values, _) = values.as_chunks_mut::<WIDTH>();
    let (from, _) = from.as_chunks::<WIDTH>();
    for &(place, row) in sets {
        values[place as usize] = from[row as usize];
    }
}

fn put_bits(bits: &mut [u8], sets: &[(u16, u32)], is_set: impl Fn(usize) -> bool) {
    for &(place, row) in sets {
        let put = if is_set(row as usize) { set_bit } else { unset_bit };
        put(bits, place as usize);
    }
}
