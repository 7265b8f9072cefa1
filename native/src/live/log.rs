//! What has happened to the rows of a chunk and is not in all of its columns yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayData, RecordBatch};

/// Rows as they were written, in all columns of the table.
pub struct Source {
    pub columns: Vec<ArrayData>,
    size: usize,
    held: Arc<AtomicUsize>,
}

impl Source {
    /// `held` has the bytes of all sources that are in memory.
    pub fn new(batch: &RecordBatch, held: &Arc<AtomicUsize>) -> Self {
        let columns: Vec<_> = batch.columns().iter().map(|column| column.to_data()).collect();
        let sizes = columns.iter().map(|column| column.get_slice_memory_size().unwrap_or(0));
        let size = sizes.sum::<usize>() + batch.num_rows() * size_of::<(u16, u32)>();
        held.fetch_add(size, Ordering::Relaxed);
        Self { columns, size, held: Arc::clone(held) }
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

    /// Those from `cursor` on.
    pub fn since(&self, cursor: usize) -> &[Part] {
        &self.parts[cursor - self.first..]
    }

    pub fn push(&mut self, part: Part) {
        self.parts.push(part);
    }

    /// Forget those before `cursor`.
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
