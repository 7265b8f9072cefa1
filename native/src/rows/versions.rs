//! Positions of the versions of each key of a MemTable.

use std::sync::{PoisonError, RwLock, TryLockError};

use hashbrown::HashMap;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes};

use crate::python::buffers::bytes_of;
use crate::rows::encoded::{Key, Keys, keys_from_python};

const NONE: i64 = -1;
const NEVER: i64 = i64::MAX;
/// Bytes of the map for each slot beside the key, and of the two links of a row.
const SLOT_BYTES: usize = 9;
const ROW_BYTES: usize = 16;

/// Maps keys to the positions of their rows, which count from 0. Append-only: whatever comes later,
/// an answer that is bounded by an earlier number of rows stays the same.
#[pyclass(frozen, module = "memwal_native")]
#[derive(Default)]
pub struct KeyVersions {
    rows: RwLock<Rows>,
}

#[derive(Default)]
struct Rows {
    words: HashMap<u64, i64>,
    /// The bytes of a word.
    width: usize,
    texts: HashMap<Box<[u8]>, i64>,
    text_bytes: usize,
    links: Links,
}

/// By position: the key's previous position and its next one.
#[derive(Default)]
struct Links {
    previous: Vec<i64>,
    next: Vec<i64>,
}

#[pymethods]
impl KeyVersions {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.ask(py, |rows| rows.links.previous.len())
    }

    /// Bytes held.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        self.ask(py, |rows| {
            rows.words.capacity() * (size_of::<u64>() + SLOT_BYTES)
                + rows.texts.capacity() * (size_of::<Box<[u8]>>() + SLOT_BYTES)
                + rows.text_bytes
                + rows.links.previous.capacity() * ROW_BYTES
        })
    }

    /// Add the keys of the next rows.
    fn append(&self, py: Python<'_>, keys: &Bound<'_, PyAny>) -> PyResult<()> {
        let keys = keys_from_python(keys)?;
        py.detach(|| {
            let mut rows = self.rows.write().unwrap_or_else(PoisonError::into_inner);
            if let Keys::Words(_, width) = keys {
                rows.width = width;
            }
            let Rows { words, texts, text_bytes, links, .. } = &mut *rows;
            for row in 0..keys.len() {
                let end = links.end();
                let before = match keys.at(row) {
                    Key::Word(key) => words.insert(key, end),
                    Key::Bytes(key) => {
                        let before = texts.get_mut(key).map(|place| std::mem::replace(place, end));
                        if before.is_none() {
                            *text_bytes += key.len();
                            texts.insert(key.into(), end);
                        }
                        before
                    }
                };
                links.push(before);
            }
        });
        Ok(())
    }

    /// The highest position of a key that is below `below`; -1 if there is none.
    fn last(&self, py: Python<'_>, key: &Bound<'_, PyAny>, below: i64) -> PyResult<i64> {
        if let Ok(key) = key.cast::<PyBool>() {
            let key = [u8::from(key.is_true())];
            return Ok(self.ask(py, |rows| rows.last(Key::Bytes(&key), below)));
        }
        let word = key.extract::<i64>().map(|key| key as u64).or_else(|_| key.extract::<u64>());
        if let Ok(word) = word {
            return Ok(self.ask(py, |rows| rows.last(Key::Word(rows.shortened(word)), below)));
        }
        let key = match key.extract::<&str>() {
            Ok(key) => key.as_bytes(),
            Err(_) => key.extract::<&[u8]>()?,
        };
        Ok(self.ask(py, |rows| rows.last(Key::Bytes(key), below)))
    }

    /// `last` of every key, as the bytes of int64.
    fn last_of<'py>(
        &self,
        py: Python<'py>,
        keys: &Bound<'py, PyAny>,
        below: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let keys = keys_from_python(keys)?;
        let found: Vec<_> = py.detach(|| {
            self.read(|rows| (0..keys.len()).map(|row| rows.last(keys.at(row), below)).collect())
        });
        Ok(bytes_of(py, &found))
    }

    /// The positions below `below`, ascending, that a later one below it replaces, as the bytes of
    /// int64.
    fn superseded<'py>(&self, py: Python<'py>, below: i64) -> Bound<'py, PyBytes> {
        let found = py.detach(|| {
            self.read(|rows| {
                let next = rows.links.next.iter().take(below.max(0) as usize);
                let places = next.enumerate().filter(|&(_, &next)| next < below);
                places.map(|(place, _)| place as i64).collect::<Vec<_>>()
            })
        });
        bytes_of(py, &found)
    }
}

impl KeyVersions {
    /// The interpreter is let go only to wait: having it again takes longer than an answer.
    fn ask<T: Send>(&self, py: Python<'_>, ask: impl FnOnce(&Rows) -> T + Send) -> T {
        match self.rows.try_read() {
            Ok(rows) => ask(&rows),
            Err(TryLockError::Poisoned(poisoned)) => ask(&poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => py.detach(|| self.read(ask)),
        }
    }

    fn read<T>(&self, ask: impl FnOnce(&Rows) -> T) -> T {
        ask(&self.rows.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Rows {
    fn last(&self, key: Key<'_>, below: i64) -> i64 {
        let newest = match key {
            Key::Word(key) => self.words.get(&key),
            Key::Bytes(key) => self.texts.get(key),
        };
        self.links.below(newest, below)
    }

    /// An integer as a word of the keys.
    fn shortened(&self, word: u64) -> u64 {
        word & u64::MAX >> (64 - 8 * self.width.clamp(1, 8))
    }
}

impl Links {
    fn end(&self) -> i64 {
        self.previous.len() as i64
    }

    fn push(&mut self, before: Option<i64>) {
        if let Some(before) = before {
            self.next[before as usize] = self.end();
        }
        self.previous.push(before.unwrap_or(NONE));
        self.next.push(NEVER);
    }

    fn below(&self, newest: Option<&i64>, below: i64) -> i64 {
        let mut place = newest.copied().unwrap_or(NONE);
        while place >= below.max(0) {
            place = self.previous[place as usize];
        }
        place
    }
}
