//! What has happened to the rows of a chunk and is not in all of its columns yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayData, ArrayRef, MutableArrayData};
use arrow::error::Result;

/// What a buffer takes beside its bytes: its owner, and what the allocator adds to both. With it
/// 100,000 rows of ten columns, written one by one, count as 422 MiB and take 443.
const OF_BUFFER: usize = 208;
/// What a part takes beside its sets.
const OF_PART: usize = size_of::<Part>() + 32;

/// Some columns of rows as they were written.
pub struct Source {
    /// The columns, with their numbers in the schema.
    columns: Box<[(usize, ArrayData)]>,
    size: usize,
    held: Arc<AtomicUsize>,
}

impl Source {
    #[expect(clippy::expect_used, reason = "a column sees no source from before it was admitted")]
    pub fn column(&self, number: usize) -> &ArrayData {
        let column = self.columns.iter().find(|(own, _)| *own == number);
        &column.expect("a source has the columns that are kept").1
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.held.fetch_sub(self.size, Ordering::Relaxed);
    }
}

/// Rows of one source: places in the chunk, and rows of the source. Of two with the same place the
/// later one counts.
pub struct Part {
    pub source: Arc<Source>,
    pub sets: Vec<(u16, u32)>,
}

/// The parts of one source that have rows, by chunk. `held` has the bytes of all that are in memory.
pub fn parts(
    columns: Vec<(usize, ArrayData)>,
    sets: Vec<Vec<(u16, u32)>>,
    held: &Arc<AtomicUsize>,
) -> impl Iterator<Item = (usize, Part)> + use<> {
    let of_columns = columns.iter().map(|(_, column)| nbytes(column));
    let rows = |sets: &Vec<_>| OF_PART + size_of_val(sets.as_slice());
    let of_sets = sets.iter().filter(|sets| !sets.is_empty()).map(rows);
    let size = size_of::<Source>() + of_columns.chain(of_sets).sum::<usize>();
    held.fetch_add(size, Ordering::Relaxed);
    let source = Arc::new(Source { columns: columns.into(), size, held: Arc::clone(held) });
    let sets = sets.into_iter().enumerate().filter(|(_, sets)| !sets.is_empty());
    sets.map(move |(chunk, sets)| (chunk, Part { source: Arc::clone(&source), sets }))
}

/// A copy of the values, and of no more. A log has copies: what it holds is counted whole then, and
/// none of it is Python's, which dropping would have to wait for.
pub fn copied(values: &ArrayRef) -> Result<ArrayData> {
    let values = values.to_data();
    let mut copy = MutableArrayData::new(vec![&values], false, values.len());
    copy.try_extend(0, 0, values.len())?;
    Ok(copy.freeze())
}

fn nbytes(column: &ArrayData) -> usize {
    fn buffers(column: &ArrayData) -> usize {
        let children: usize = column.child_data().iter().map(buffers).sum();
        children + column.buffers().len() + usize::from(column.nulls().is_some())
    }
    column.get_array_memory_size() + buffers(column) * OF_BUFFER
}

/// Parts in the order in which they were written, counted from the first one ever.
#[derive(Default)]
pub struct Log {
    first: usize,
    parts: Vec<Part>,
}

impl Log {
    pub fn end(&self) -> usize {
        self.first + self.parts.len()
    }

    /// The parts from `cursor` on.
    pub fn since(&self, cursor: usize) -> &[Part] {
        &self.parts[cursor - self.first..]
    }

    pub fn push(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// Forget the parts before `cursor`.
    pub fn forget(&mut self, cursor: usize) {
        self.parts.drain(..cursor - self.first);
        self.first = cursor;
    }
}

/// The newest row of a place among the parts.
pub fn newest(parts: &[Part], place: u16) -> Option<(&Part, u32)> {
    parts.iter().rev().find_map(|part| {
        let set = part.sets.iter().rev().find(|set| set.0 == place)?;
        Some((part, set.1))
    })
}
