//! The index of live rows: the place of each key.

use std::hash::BuildHasher;
use std::hint::black_box;
use std::ops::Range;

use hashbrown::DefaultHashBuilder;

use crate::live::CHUNK;
use crate::live::shared::Shared;
use crate::live::slots::Slots;
use crate::rows::encoded::{Key, Keys, word};

/// The keys by place. A new place follows the last one; older places may get other keys.
enum Stored {
    Words(Words),
    Bytes(Texts),
}

#[derive(Default)]
struct Texts {
    /// The bytes of all keys, removed ones included, in the order in which they were set.
    bytes: Vec<u8>,
    /// The start and the length of the key at each place. The length is 0 at a place without a key.
    spans: Vec<(u64, u32)>,
    /// The number of bytes that belong to keys which are not removed.
    live_bytes: usize,
}

impl Texts {
    fn at(&self, place: u32) -> &[u8] {
        let (start, length) = self.spans[place as usize];
        &self.bytes[start as usize..][..length as usize]
    }

    fn set(&mut self, place: u32, key: &[u8]) {
        let span = (self.bytes.len() as u64, key.len() as u32);
        self.bytes.extend_from_slice(key);
        self.live_bytes += key.len();
        match self.spans.get_mut(place as usize) {
            Some(old) => *old = span,
            None => self.spans.push(span),
        }
    }

    fn remove(&mut self, place: u32) {
        self.live_bytes -= std::mem::take(&mut self.spans[place as usize]).1 as usize;
    }

    /// Drop the bytes of removed keys if most bytes are theirs. As many bytes as are copied were removed
    /// since the last time, so each removal pays for a little of it.
    fn compact(&mut self) {
        if self.bytes.len() <= 2 * self.live_bytes + self.spans.len() {
            return;
        }
        let mut bytes = Vec::with_capacity(self.live_bytes);
        for (start, length) in &mut self.spans {
            let key = &self.bytes[*start as usize..][..*length as usize];
            *start = bytes.len() as u64;
            bytes.extend_from_slice(key);
        }
        self.bytes = bytes;
    }
}

struct Words {
    /// The chunks of the column whose values are the keys.
    chunks: Vec<Shared>,
    /// The number of bytes of a key.
    width: usize,
    /// The number of places in `chunks`. The keys of later places are in `added`, as it takes as long
    /// as all else to find out that nobody else has a chunk.
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
            Self::Bytes(texts) => Key::Bytes(texts.at(place)),
        }
    }

    fn set(&mut self, place: u32, key: Key<'_>) {
        match (self, key) {
            (Self::Words(words), Key::Word(word)) => words.set(place as usize, word),
            (Self::Bytes(texts), Key::Bytes(key)) => texts.set(place, key),
            _ => unreachable!("keys of one table have one form"),
        }
    }
}

/// One place for each key.
pub struct Index {
    hasher: DefaultHashBuilder,
    places: Slots,
    stored: Stored,
}

impl Index {
    /// An empty index. `width` is the number of bytes of a key that is an integer; None for other keys.
    pub fn new(width: Option<usize>) -> Self {
        let stored = match width {
            Some(width) => Stored::Words(Words { chunks: vec![], width, count: 0, added: vec![] }),
            None => Stored::Bytes(Texts::default()),
        };
        Self { hasher: DefaultHashBuilder::default(), places: Slots::default(), stored }
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn nbytes(&self) -> usize {
        let stored = match &self.stored {
            Stored::Words(words) => words.chunks.iter().map(Shared::capacity).sum(),
            Stored::Bytes(texts) => texts.bytes.capacity() + texts.spans.capacity() * 16,
        };
        self.places.nbytes() + stored
    }

    /// The chunks of the key column; None if the keys are stored in another form than that column's.
    pub fn column(&self) -> Option<&[Shared]> {
        match &self.stored {
            Stored::Words(words) => Some(&words.chunks),
            Stored::Bytes(..) => None,
        }
    }

    /// Whether these keys have the form of the stored ones.
    pub fn takes(&self, keys: &Keys) -> bool {
        match (&self.stored, keys) {
            (Stored::Words(words), Keys::Words(_, width)) => words.width == *width,
            (Stored::Bytes(..), Keys::Bytes(..)) => true,
            _ => false,
        }
    }

    /// Load what a search for these keys reads into the processor's caches. For all keys together it
    /// takes hardly longer than for a single one.
    pub fn touch(&self, keys: &Keys, rows: Range<usize>) {
        let hashes = rows.map(|row| hash(&self.hasher, keys.at(row)));
        let first: Vec<_> = hashes.filter_map(|hash| self.places.first(hash)).collect();
        let places = first.iter().map(|&place| place as usize);
        black_box(match &self.stored {
            Stored::Words(words) => places.fold(0, |all, place| all ^ words.at(place)),
            Stored::Bytes(texts) => places.fold(0, |all, place| all ^ texts.spans[place].0),
        });
    }

    pub fn find(&self, key: Key<'_>) -> Option<u32> {
        let hash = hash(&self.hasher, key);
        self.places.find(hash, |place| self.stored.at(place) == key)
    }

    /// The place of the key. A key without a place gets the place `free`.
    pub fn find_or_insert(&mut self, key: Key<'_>, free: u32) -> u32 {
        let Self { hasher, places, stored } = self;
        let of_key = hash(hasher, key);
        if let Some(place) = places.find(of_key, |place| stored.at(place) == key) {
            return place;
        }
        places.insert(of_key, free, |place| hash(hasher, stored.at(place)));
        stored.set(free, key);
        free
    }

    /// Write added keys into the chunks, or drop removed ones; called after changes, before a column
    /// is read.
    pub fn take_in(&mut self) {
        match &mut self.stored {
            Stored::Words(words) => words.take_in(),
            Stored::Bytes(texts) => texts.compact(),
        }
    }

    /// Remove the key; returns the place that it had.
    pub fn remove(&mut self, key: Key<'_>) -> Option<u32> {
        let Self { hasher, places, stored } = self;
        let hash_of = |place| hash(hasher, stored.at(place));
        let place = places.remove(hash(hasher, key), |place| stored.at(place) == key, hash_of)?;
        if let Stored::Bytes(texts) = stored {
            texts.remove(place);
        }
        Some(place)
    }

    /// Make room for this number of further keys.
    pub fn reserve(&mut self, keys: usize) {
        let Self { hasher, places, stored } = self;
        places.reserve(keys, |place| hash(hasher, stored.at(place)));
    }
}

fn hash(hasher: &DefaultHashBuilder, key: Key<'_>) -> u64 {
    match key {
        Key::Word(word) => hasher.hash_one(word),
        Key::Bytes(bytes) => hasher.hash_one(bytes),
    }
}
