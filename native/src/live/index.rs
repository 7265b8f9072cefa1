//! The places of keys.

use std::hash::BuildHasher;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;
use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::live::CHUNK;
use crate::live::shared::Shared;

/// An integer's bytes as a number, or a text's, a binary's or a composite key's.
#[derive(Clone, Copy, PartialEq)]
pub enum Key<'a> {
    Word(u64),
    Bytes(&'a [u8]),
}

/// The keys of some rows, in the form in which `KeyVersions` has them.
pub enum Keys {
    /// And the bytes of one.
    Words(Vec<u64>, usize),
    Bytes(ArrayRef, BytesAt),
}

type BytesAt = fn(&ArrayRef, usize) -> &[u8];

impl Keys {
    /// An Arrow array of integers, booleans, strings or binary, without nulls; None for other types.
    pub fn of(array: ArrayRef) -> Option<Self> {
        let bytes: BytesAt = match array.data_type() {
            DataType::Boolean => |keys, row| &[[0], [1]][usize::from(keys.as_boolean().value(row))],
            DataType::Utf8 => |keys, row| keys.as_string::<i32>().value(row).as_bytes(),
            DataType::LargeUtf8 => |keys, row| keys.as_string::<i64>().value(row).as_bytes(),
            DataType::Binary => |keys, row| keys.as_binary::<i32>().value(row),
            DataType::LargeBinary => |keys, row| keys.as_binary::<i64>().value(row),
            DataType::FixedSizeBinary(_) => |keys, row| keys.as_fixed_size_binary().value(row),
            kind if kind.is_integer() => return Some(Self::words(&array)),
            _ => return None,
        };
        Some(Self::Bytes(array, bytes))
    }

    fn words(array: &ArrayRef) -> Self {
        let (data, width) = (array.to_data(), array.data_type().primitive_width().unwrap_or(8));
        let values = &data.buffers()[0].as_slice()[data.offset() * width..][..data.len() * width];
        Self::Words(values.chunks_exact(width).map(word).collect(), width)
    }

    pub fn len(&self) -> usize {
        match self {
            Self::Words(words, _) => words.len(),
            Self::Bytes(array, _) => array.len(),
        }
    }

    pub fn at(&self, row: usize) -> Key<'_> {
        match self {
            Self::Words(words, _) => Key::Word(words[row]),
            Self::Bytes(array, text) => Key::Bytes(text(array, row)),
        }
    }
}

/// Keys by place. Places come one after the other, or are set again.
enum Stored {
    Words(Words),
    /// One after the other in the order of their coming; of each place, the start and the length.
    Bytes(Vec<u8>, Vec<(u64, u32)>),
}

struct Words {
    /// Of the column whose values are the keys.
    chunks: Vec<Shared>,
    width: usize,
    /// Places in chunks; the keys of later ones are in `added`: to see that nobody else has a chunk
    /// takes as long as all else.
    count: usize,
    added: Vec<u64>,
}

impl Words {
    fn at(&self, place: usize) -> u64 {
        if place >= self.count {
            return self.added[place - self.count];
        }
        let start = place % CHUNK * self.width;
        word(&self.chunks[place / CHUNK].bytes()[start..start + self.width])
    }

    fn set(&mut self, place: usize, word: u64) {
        if place == self.count + self.added.len() {
            self.added.push(word);
        } else if place >= self.count {
            self.added[place - self.count] = word;
        } else {
            let bytes = self.chunks[place / CHUNK].own();
            let start = place % CHUNK * self.width;
            bytes[start..start + self.width].copy_from_slice(&word.to_le_bytes()[..self.width]);
        }
    }

    fn take_in(&mut self) {
        let added = std::mem::take(&mut self.added);
        let mut left = added.as_slice();
        while !left.is_empty() {
            let (now, later) = left.split_at(left.len().min(CHUNK - self.count % CHUNK));
            self.chunks.resize_with(self.count / CHUNK + 1, Shared::default);
            let (start, width) = (self.count % CHUNK * self.width, self.width);
            let end = start + now.len() * width;
            let bytes = self.chunks[self.count / CHUNK].resized(end, 0, CHUNK * width);
            for (to, word) in bytes[start..].chunks_exact_mut(width).zip(now) {
                to.copy_from_slice(&word.to_le_bytes()[..width]);
            }
            self.count += now.len();
            left = later;
        }
    }
}

impl Stored {
    fn at(&self, place: u32) -> Key<'_> {
        match self {
            Self::Words(words) => Key::Word(words.at(place as usize)),
            Self::Bytes(bytes, spans) => {
                let (start, length) = spans[place as usize];
                Key::Bytes(&bytes[start as usize..][..length as usize])
            }
        }
    }

    fn set(&mut self, place: u32, key: Key<'_>) {
        match (self, key) {
            (Self::Words(words), Key::Word(word)) => words.set(place as usize, word),
            (Self::Bytes(bytes, spans), Key::Bytes(key)) => {
                let span = (bytes.len() as u64, key.len() as u32);
                bytes.extend_from_slice(key);
                match spans.get_mut(place as usize) {
                    Some(old) => *old = span,
                    None => spans.push(span),
                }
            }
            _ => unreachable!("keys of one table have one form"),
        }
    }
}

fn word(bytes: &[u8]) -> u64 {
    if let Ok(bytes) = bytes.try_into() {
        return u64::from_le_bytes(bytes);
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}

/// One place for each key.
pub struct Index {
    hasher: DefaultHashBuilder,
    places: HashTable<u32>,
    stored: Stored,
}

impl Index {
    /// `width`: the bytes of a key that is an integer; None for others.
    pub fn new(width: Option<usize>) -> Self {
        let stored = match width {
            Some(width) => Stored::Words(Words { chunks: vec![], width, count: 0, added: vec![] }),
            None => Stored::Bytes(vec![], vec![]),
        };
        Self { hasher: DefaultHashBuilder::default(), places: HashTable::new(), stored }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn nbytes(&self) -> usize {
        let stored = match &self.stored {
            Stored::Words(words) => words.chunks.iter().map(Shared::capacity).sum(),
            Stored::Bytes(bytes, spans) => bytes.capacity() + spans.capacity() * 16,
        };
        self.places.allocation_size() + stored
    }

    /// The chunks of the only key column; None if keys are stored in another form than the column's.
    pub fn column(&self) -> Option<&[Shared]> {
        match &self.stored {
            Stored::Words(words) => Some(&words.chunks),
            Stored::Bytes(..) => None,
        }
    }

    /// Whether keys are of the form of those that are stored.
    pub fn takes(&self, keys: &Keys) -> bool {
        match (&self.stored, keys) {
            (Stored::Words(words), Keys::Words(_, width)) => words.width == *width,
            (Stored::Bytes(..), Keys::Bytes(..)) => true,
            _ => false,
        }
    }

    pub fn find(&self, key: Key<'_>) -> Option<u32> {
        let hash = hash(&self.hasher, key);
        self.places.find(hash, |&place| self.stored.at(place) == key).copied()
    }

    /// The place of the key, which is `free` from now on if it had none.
    pub fn find_or_insert(&mut self, key: Key<'_>, free: u32) -> u32 {
        let Self { hasher, places, stored } = self;
        let is_key = |&place: &u32| stored.at(place) == key;
        match places.entry(hash(hasher, key), is_key, |&place| hash(hasher, stored.at(place))) {
            Entry::Occupied(found) => *found.get(),
            Entry::Vacant(vacant) => {
                vacant.insert(free);
                stored.set(free, key);
                free
            }
        }
    }

    /// After insertions, before a column is asked for.
    pub fn take_in(&mut self) {
        if let Stored::Words(words) = &mut self.stored {
            words.take_in();
        }
    }

    /// The place of the key, which has none any more.
    pub fn remove(&mut self, key: Key<'_>) -> Option<u32> {
        let Self { hasher, places, stored } = self;
        let found = places.find_entry(hash(hasher, key), |&place| stored.at(place) == key);
        found.ok().map(|entry| entry.remove().0)
    }

    /// Make room for so many more keys.
    pub fn reserve(&mut self, keys: usize) {
        let Self { hasher, places, stored } = self;
        places.reserve(keys, |&place| hash(hasher, stored.at(place)));
    }
}

fn hash(hasher: &DefaultHashBuilder, key: Key<'_>) -> u64 {
    match key {
        Key::Word(word) => hasher.hash_one(word),
        Key::Bytes(bytes) => hasher.hash_one(bytes),
    }
}
