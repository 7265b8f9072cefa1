//! The posting list of one token: documents, ascending, and how often each holds the token.

use bitpacking::{BitPacker, BitPacker4x};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::python::buffers::{Numbers, bytes_of, invalid};

pub const BLOCK: usize = BitPacker4x::BLOCK_LEN;
// A block begins with an f32, the highest score of its documents, and a u32, the first document.
const SCORE_BYTES: usize = 4;
const FIRST_BYTES: usize = 4;

/// Blocks of 128 as Lance's index format 2 packs them, and fewer than 128 numbers that are plain.
#[pyclass(frozen, module = "memwal_native")]
pub struct Postings {
    packed: Vec<u8>,
    blocks: Vec<Block>,
    /// Documents and frequencies.
    tail: Vec<(u32, u32)>,
    /// The highest frequency.
    most: u32,
}

struct Block {
    /// The offset at which it begins in `packed`.
    start: usize,
    /// Its first document.
    first: u32,
    /// Its highest frequency.
    most: u32,
}

#[pymethods]
impl Postings {
    /// From the blocks of Lance's `_posting` column: block `i` is `data[offsets[i]:offsets[i + 1]]`,
    /// and all of them hold `length` documents below `documents`. Anything else is a ValueError.
    #[staticmethod]
    fn packed(
        data: &Bound<'_, PyAny>,
        offsets: &Bound<'_, PyAny>,
        length: usize,
        documents: usize,
    ) -> PyResult<Self> {
        let (data, offsets) = (Numbers::<u8>::new(data)?, Numbers::<i64>::new(offsets)?);
        Self::parse(data.slice(), offsets.slice(), length)
            .ok_or_else(|| invalid("the posting blocks are not in Lance's index format 2"))?
            .checked(documents)
    }

    /// From arrays of int32: documents, ascending and below `documents`, and frequencies.
    #[staticmethod]
    fn plain(
        held: &Bound<'_, PyAny>,
        frequencies: &Bound<'_, PyAny>,
        documents: usize,
    ) -> PyResult<Self> {
        let (held, often) = (Numbers::<i32>::new(held)?, Numbers::<i32>::new(frequencies)?);
        if held.slice().len() != often.slice().len() {
            return Err(invalid("every document must have a frequency"));
        }
        let pairs = held.slice().iter().zip(often.slice());
        let tail = pairs.map(|(&document, &often)| (document as u32, often as u32)).collect();
        Self { packed: Vec::new(), blocks: Vec::new(), tail, most: 0 }.checked(documents)
    }

    fn __len__(&self) -> usize {
        self.len()
    }

    /// Bytes held.
    #[getter]
    fn nbytes(&self) -> usize {
        self.packed.len() + size_of_val(&*self.blocks) + size_of_val(&*self.tail)
    }

    /// The documents and the frequencies, as the bytes of int32 arrays.
    fn decode<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let (documents, frequencies) = py.detach(|| {
            let mut found = (Vec::new(), Vec::new());
            self.each_run(|documents, frequencies| {
                found.0.extend_from_slice(documents);
                found.1.extend_from_slice(frequencies);
                true
            });
            found
        });
        (bytes_of(py, &documents), bytes_of(py, &frequencies))
    }

    /// How many of these documents, int32 and ascending, hold the token.
    fn count_among(&self, py: Python<'_>, documents: &Bound<'_, PyAny>) -> PyResult<usize> {
        let wanted = Numbers::<i32>::new(documents)?;
        Ok(py.detach(|| self.common(wanted.slice())))
    }
}

impl Postings {
    fn parse(data: &[u8], offsets: &[i64], length: usize) -> Option<Self> {
        let full = length / BLOCK;
        if offsets.len() != length.div_ceil(BLOCK) + 1 {
            return None;
        }
        let bounds: Option<Vec<usize>> =
            offsets.iter().map(|&offset| usize::try_from(offset).ok()).collect();
        let bounds = bounds?;
        let start = bounds[0];
        let mut blocks = Vec::with_capacity(full);
        for pair in bounds[..=full].windows(2) {
            let block = data.get(pair[0]..pair[1])?;
            let first = block.get(SCORE_BYTES..SCORE_BYTES + FIRST_BYTES)?.try_into().ok()?;
            if packed_bytes(&block[SCORE_BYTES + FIRST_BYTES..])? != block.len() {
                return None;
            }
            blocks.push(Block {
                start: pair[0] - start,
                first: u32::from_le_bytes(first),
                most: 0,
            });
        }
        let end = bounds[full];
        let mut tail = Vec::new();
        if !length.is_multiple_of(BLOCK) {
            let block = data.get(end..*bounds.last()?)?;
            tail = unpacked_tail(block.get(SCORE_BYTES..)?, length % BLOCK)?;
        }
        Some(Self { packed: data.get(start..end)?.to_vec(), blocks, tail, most: 0 })
    }

    /// With the highest frequencies; an error if documents are not ascending and below `documents`.
    fn checked(mut self, documents: usize) -> PyResult<Self> {
        let (mut next, mut ascending) = (0, true);
        let mut most = Vec::with_capacity(self.blocks.len() + 1);
        self.each_run(|run, frequencies| {
            for &document in run {
                ascending &= u64::from(document) >= next;
                next = u64::from(document) + 1;
            }
            most.push(frequencies.iter().copied().max().unwrap_or(0));
            ascending
        });
        if !ascending || next > documents as u64 {
            return Err(invalid("the documents of a posting list must ascend"));
        }
        for (block, &most) in self.blocks.iter_mut().zip(&most) {
            block.most = most;
        }
        self.most = most.into_iter().max().unwrap_or(0);
        Ok(self)
    }

    fn unpack(&self, block: usize, documents: &mut [u32; BLOCK], often: &mut [u32; BLOCK]) {
        let Block { start, first, .. } = self.blocks[block];
        let data = &self.packed[start + SCORE_BYTES + FIRST_BYTES..];
        let (bits, data) = (data[0], &data[1..]);
        let packer = BitPacker4x::new();
        let used = packer.decompress_sorted(first, data, documents, bits);
        let data = &data[used..];
        packer.decompress(&data[1..], often, data[0]);
    }

    /// Calls `take` with each run of at most 128 documents and their frequencies, until it returns
    /// false.
    fn each_run(&self, mut take: impl FnMut(&[u32], &[u32]) -> bool) {
        let mut cursor = Cursor::new(self);
        while cursor.load() {
            let (documents, frequencies) = cursor.rest();
            if !take(documents, frequencies) {
                return;
            }
            cursor.advance(documents.len());
        }
    }

    /// The highest frequency.
    pub fn most(&self) -> u32 {
        self.most
    }

    pub fn len(&self) -> usize {
        self.blocks.len() * BLOCK + self.tail.len()
    }

    fn common(&self, wanted: &[i32]) -> usize {
        let (mut found, mut rest) = (0, wanted);
        let mut cursor = Cursor::new(self);
        while let Some(&next) = rest.first() {
            cursor.skip_to(next as u32);
            if !cursor.load() {
                break;
            }
            let (documents, _) = cursor.rest();
            let last = documents[documents.len() - 1];
            let near = rest.partition_point(|&document| document as u32 <= last);
            found += count_common(documents, &rest[..near]);
            rest = &rest[near..];
            cursor.advance(documents.len());
        }
        found
    }
}

/// The position of a reader in a posting list.
pub struct Cursor<'a> {
    postings: &'a Postings,
    documents: [u32; BLOCK],
    frequencies: [u32; BLOCK],
    /// The run after the one that is loaded.
    next: usize,
    at: usize,
    end: usize,
}

impl<'a> Cursor<'a> {
    fn new(postings: &'a Postings) -> Self {
        let empty = [0; BLOCK];
        Self { postings, documents: empty, frequencies: empty, next: 0, at: 0, end: 0 }
    }

    /// At the first document from `start` on.
    pub fn from(postings: &'a Postings, start: u32) -> Self {
        let mut cursor = Self::new(postings);
        cursor.seek(start);
        cursor
    }

    /// Move to the first document from `document` on, which no earlier call went beyond; its
    /// frequency if it is that one.
    #[inline]
    pub fn seek(&mut self, document: u32) -> Option<u32> {
        if self.at < self.end && self.documents[self.end - 1] < document {
            self.at = self.end;
        }
        self.skip_to(document);
        while self.load() {
            let (documents, frequencies) = self.rest();
            let before = documents.partition_point(|&held| held < document);
            if before < documents.len() {
                let found = (documents[before] == document).then(|| frequencies[before]);
                self.advance(before);
                return found;
            }
            self.advance(before);
        }
        None
    }

    /// Leave out packed blocks whose highest frequency is not `wanted`. Only between runs.
    #[inline]
    pub fn skip_unless(&mut self, wanted: impl Fn(u32) -> bool) {
        if self.at == self.end {
            let blocks = self.postings.blocks.iter().skip(self.next);
            self.next += blocks.take_while(|block| !wanted(block.most)).count();
        }
    }

    /// Load the next run if all of the current one is taken; false at the end of the list.
    #[inline]
    pub fn load(&mut self) -> bool {
        if self.at < self.end {
            return true;
        }
        let blocks = self.postings.blocks.len();
        if self.next < blocks {
            self.postings.unpack(self.next, &mut self.documents, &mut self.frequencies);
            self.end = BLOCK;
        } else {
            let start = (self.next - blocks) * BLOCK;
            let Some(rest) = self.postings.tail.get(start..).filter(|rest| !rest.is_empty()) else {
                return false;
            };
            self.end = rest.len().min(BLOCK);
            for (place, &(document, often)) in rest[..self.end].iter().enumerate() {
                self.documents[place] = document;
                self.frequencies[place] = often;
            }
        }
        self.at = 0;
        self.next += 1;
        true
    }

    /// The rest of the run that is loaded.
    #[inline]
    pub fn rest(&self) -> (&[u32], &[u32]) {
        (&self.documents[self.at..self.end], &self.frequencies[self.at..self.end])
    }

    #[inline]
    pub fn advance(&mut self, count: usize) {
        self.at += count;
    }

    /// Leave out packed blocks that end before `document`. Only between runs.
    fn skip_to(&mut self, document: u32) {
        let blocks = &self.postings.blocks;
        if self.at == self.end && self.next < blocks.len() {
            let after = blocks[self.next..].partition_point(|block| block.first <= document);
            // The last block that begins at or before it may hold it.
            self.next += after.saturating_sub(1);
        }
    }
}

fn count_common(documents: &[u32], wanted: &[i32]) -> usize {
    let (mut found, mut at) = (0, 0);
    for &document in wanted {
        while at < documents.len() && documents[at] < document as u32 {
            at += 1;
        }
        found += usize::from(documents.get(at) == Some(&(document as u32)));
    }
    found
}

/// Bytes of a whole block whose packed part is `data`.
fn packed_bytes(data: &[u8]) -> Option<usize> {
    let documents = BitPacker4x::compressed_block_size(width(data.first())?);
    let frequencies = BitPacker4x::compressed_block_size(width(data.get(1 + documents))?);
    Some(SCORE_BYTES + FIRST_BYTES + 2 + documents + frequencies)
}

fn width(bits: Option<&u8>) -> Option<u8> {
    bits.copied().filter(|&bits| bits <= 32)
}

/// The last, unfilled block: differences of documents, then frequencies, as varints.
fn unpacked_tail(data: &[u8], count: usize) -> Option<Vec<(u32, u32)>> {
    let mut data = data.iter();
    let mut varints = |count: usize| -> Option<Vec<u32>> {
        (0..count)
            .map(|_| {
                let mut value = 0_u64;
                for shift in (0..35).step_by(7) {
                    let byte = *data.next()?;
                    value |= u64::from(byte & 127) << shift;
                    if byte < 128 {
                        return u32::try_from(value).ok();
                    }
                }
                None
            })
            .collect()
    };
    let (steps, frequencies) = (varints(count)?, varints(count)?);
    if data.next().is_some() {
        return None;
    }
    let mut document = 0_u32;
    steps
        .iter()
        .zip(frequencies)
        .map(|(&step, often)| {
            document = document.checked_add(step)?;
            Some((document, often))
        })
        .collect()
}
