//! The best documents of one source for a few tokens, by BM25.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::thread;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::text::buffers::{Numbers, bytes_of, invalid};
use crate::text::postings::{BLOCK, Cursor, Postings};

/// Documents whose scores are summed up at once: few enough for the processor's nearer caches.
const WINDOW: usize = 1 << 14;
/// Less than one posting to so many documents: then those that hold a token are listed.
const SPARSE: usize = 16;
/// Postings that take longer than to start a thread.
const POSTINGS_A_THREAD: usize = 1 << 16;
const K1_PLUS_1: f32 = 2.2;

/// The `k` best documents: their numbers and scores as the bytes of int32 and float32 arrays, the
/// best first, of equal ones the lower number first.
///
/// A document's score is the sum over the tokens, in their order, of `weight * (2.2 f / (f + norm))`
/// with `norm = fixed + per_token * length`. It counts if it holds at least `required` of the
/// tokens (at least one) and `allowed` (one byte a document) is not 0.
#[pyfunction]
#[pyo3(signature = (postings, weights, lengths, allowed, *, k, required, fixed, per_token))]
#[allow(clippy::too_many_arguments)]
pub fn top_k<'py>(
    py: Python<'py>,
    postings: Vec<Py<Postings>>,
    weights: Vec<f32>,
    lengths: &Bound<'py, PyAny>,
    allowed: &Bound<'py, PyAny>,
    k: usize,
    required: usize,
    fixed: f32,
    per_token: f32,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (lengths, allowed) = (Numbers::<i32>::new(lengths)?, Numbers::<u8>::new(allowed)?);
    let (lengths, allowed) = (lengths.slice(), allowed.slice());
    if lengths.len() != allowed.len() || postings.len() != weights.len() {
        return Err(invalid("arrays of one length are needed"));
    }
    let lists: Vec<&Postings> = postings.iter().map(Py::get).collect();
    let search = Search { lists, weights, lengths, allowed, fixed, per_token, required, k };
    let best = py.detach(|| search.run());
    let documents: Vec<i32> = best.iter().map(|hit| hit.document as i32).collect();
    let scores: Vec<f32> = best.iter().map(|hit| hit.score).collect();
    Ok((bytes_of(py, &documents), bytes_of(py, &scores)))
}

#[derive(Clone, Copy)]
struct Hit {
    score: f32,
    document: u32,
}

/// The greatest is the worst, for a heap whose top is the one to lose.
impl Ord for Hit {
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then(self.document.cmp(&other.document))
    }
}

impl PartialOrd for Hit {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Hit {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Hit {}

struct Search<'a> {
    lists: Vec<&'a Postings>,
    weights: Vec<f32>,
    lengths: &'a [i32],
    allowed: &'a [u8],
    fixed: f32,
    per_token: f32,
    required: usize,
    k: usize,
}

impl Search<'_> {
    /// The documents are shared out to threads; which ones are the best does not depend on how.
    fn run(&self) -> Vec<Hit> {
        let (documents, postings) = (self.lengths.len(), self.postings());
        let most = thread::available_parallelism().map_or(1, usize::from);
        let threads = (postings / POSTINGS_A_THREAD).clamp(1, most);
        let share = documents.div_ceil(threads).next_multiple_of(WINDOW).max(WINDOW);
        let part = |start: usize| Scores::new(self).best(start..(start + share).min(documents));
        let part = &part;
        let mut best = thread::scope(|scope| {
            let later = (share..documents).step_by(share);
            let others: Vec<_> = later.map(|start| scope.spawn(move || part(start))).collect();
            let mut best = part(0);
            for other in others {
                match other.join() {
                    Ok(mut found) => best.append(&mut found),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            best
        })
        .into_sorted_vec();
        best.truncate(self.k);
        best
    }

    fn postings(&self) -> usize {
        self.lists.iter().map(|list| list.len()).sum()
    }

    /// What one token is worth to the documents of a run.
    fn worth(&self, weight: f32, documents: &[u32], often: &[u32], worth: &mut [f32; BLOCK]) {
        for (worth, &document) in worth.iter_mut().zip(documents) {
            *worth = self.lengths[document as usize] as f32;
        }
        for (worth, &often) in worth.iter_mut().zip(often) {
            let (often, norm) = (often as i32 as f32, self.fixed + self.per_token * *worth);
            *worth = weight * (K1_PLUS_1 * often / (often + norm));
        }
    }
}

/// The scores of a window of documents, and the best documents of all windows so far.
struct Scores<'a> {
    search: &'a Search<'a>,
    /// By place in the window; 0 outside of `add` and `keep`.
    scores: Vec<f32>,
    /// How many of the tokens each document holds; empty where one is enough.
    tokens: Vec<u16>,
    /// The places that hold any token, if they are few; a place may be there several times.
    touched: Option<Vec<u32>>,
    best: BinaryHeap<Hit>,
}

impl<'a> Scores<'a> {
    fn new(search: &'a Search<'a>) -> Self {
        let sparse = search.postings() * SPARSE < search.lengths.len();
        Self {
            search,
            scores: vec![0.0; WINDOW],
            tokens: vec![0; if search.required > 1 { WINDOW } else { 0 }],
            touched: sparse.then(Vec::new),
            best: BinaryHeap::new(),
        }
    }

    /// The best documents of a range.
    fn best(mut self, range: Range<usize>) -> BinaryHeap<Hit> {
        let lists = self.search.lists.iter();
        let mut cursors: Vec<_> =
            lists.map(|list| Cursor::from(list, range.start as u32)).collect();
        for start in range.clone().step_by(WINDOW) {
            let end = (start + WINDOW).min(range.end);
            let mut any = false;
            for (cursor, &weight) in cursors.iter_mut().zip(&self.search.weights) {
                any |= self.add(cursor, weight, start, end);
            }
            if any {
                self.keep(start, end);
            }
        }
        self.best
    }

    /// Add what one token is worth to the scores of the window; false if it is in none of it.
    fn add(&mut self, cursor: &mut Cursor<'_>, weight: f32, start: usize, end: usize) -> bool {
        let mut any = false;
        let mut worth = [0_f32; BLOCK];
        while cursor.load() {
            let (documents, often) = cursor.rest();
            let count = if (documents[documents.len() - 1] as usize) < end {
                documents.len()
            } else {
                documents.partition_point(|&document| (document as usize) < end)
            };
            let inside = &documents[..count];
            self.search.worth(weight, inside, often, &mut worth);
            for (&document, &worth) in inside.iter().zip(&worth) {
                self.scores[document as usize - start] += worth;
            }
            if !self.tokens.is_empty() {
                for &document in inside {
                    self.tokens[document as usize - start] += 1;
                }
            }
            if let Some(touched) = &mut self.touched {
                touched.extend(inside.iter().map(|&document| document - start as u32));
            }
            any |= count > 0;
            let done = count < documents.len();
            cursor.advance(count);
            if done {
                break;
            }
        }
        any
    }

    /// Keep the best of the window and clear it.
    fn keep(&mut self, start: usize, end: usize) {
        const STEP: usize = 64;
        let mut worst = self.threshold();
        if let Some(mut touched) = self.touched.take() {
            // In order, as of equal scores the first one offered stays.
            touched.sort_unstable();
            for &place in &touched {
                worst = self.offer(start, place as usize, worst);
                self.scores[place as usize] = 0.0;
            }
            touched.clear();
            self.touched = Some(touched);
        } else {
            for from in (0..end - start).step_by(STEP) {
                let to = (from + STEP).min(end - start);
                let higher = |high: f32, &score: &f32| if score > high { score } else { high };
                // Without a branch a score: most groups have nothing to keep.
                if self.scores[from..to].iter().fold(0_f32, higher) > worst {
                    for place in from..to {
                        worst = self.offer(start, place, worst);
                    }
                }
            }
            self.scores.fill(0.0);
        }
        self.tokens.fill(0);
    }

    /// Keep a document if it is good enough; what a score must exceed from now on.
    #[inline]
    fn offer(&mut self, start: usize, place: usize, worst: f32) -> f32 {
        let (score, document) = (self.scores[place], start + place);
        let holds = |tokens: &u16| usize::from(*tokens) >= self.search.required;
        if score > worst
            && self.search.allowed[document] != 0
            && self.tokens.get(place).is_none_or(holds)
        {
            self.best.push(Hit { score, document: document as u32 });
            if self.best.len() > self.search.k {
                self.best.pop();
            }
            return self.threshold();
        }
        worst
    }

    fn threshold(&self) -> f32 {
        match self.best.peek() {
            _ if self.search.k == 0 => f32::INFINITY,
            Some(worst) if self.best.len() >= self.search.k => worst.score,
            _ => 0.0,
        }
    }
}
