//! The best documents of one source for a few tokens, by BM25.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::text::buffers::{Numbers, bytes_of, invalid};
use crate::text::postings::{BLOCK, Cursor, Postings};

/// Documents whose scores are summed up at once: few enough for the processor's nearer caches.
const WINDOW: usize = 1 << 14;
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
    let search = Search { lengths, allowed, fixed, per_token, required };
    let best = py.detach(|| search.run(&lists, &weights, k));
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
    lengths: &'a [i32],
    allowed: &'a [u8],
    fixed: f32,
    per_token: f32,
    required: usize,
}

impl Search<'_> {
    fn run(&self, lists: &[&Postings], weights: &[f32], k: usize) -> Vec<Hit> {
        let mut cursors: Vec<Cursor<'_>> = lists.iter().map(|list| Cursor::new(list)).collect();
        let mut scores = vec![0_f32; WINDOW];
        let mut tokens = vec![0_u16; if self.required > 1 { WINDOW } else { 0 }];
        let mut best = BinaryHeap::with_capacity(k.min(self.lengths.len()) + 1);
        for start in (0..self.lengths.len()).step_by(WINDOW) {
            let end = (start + WINDOW).min(self.lengths.len());
            let mut any = false;
            for (cursor, &weight) in cursors.iter_mut().zip(weights) {
                any |= self.add(cursor, weight, start, end, &mut scores, &mut tokens);
            }
            if any {
                self.collect(start, end, &mut scores, &mut tokens, k, &mut best);
            }
        }
        best.into_sorted_vec()
    }

    /// Add what one token is worth to the scores of the window; false if it is in none of it.
    fn add(
        &self,
        cursor: &mut Cursor<'_>,
        weight: f32,
        start: usize,
        end: usize,
        scores: &mut [f32],
        tokens: &mut [u16],
    ) -> bool {
        let mut any = false;
        let mut worth = [0_f32; BLOCK];
        while cursor.load() {
            let (documents, frequencies) = cursor.rest();
            let count = if (documents[documents.len() - 1] as usize) < end {
                documents.len()
            } else {
                documents.partition_point(|&document| (document as usize) < end)
            };
            let inside = &documents[..count];
            for (place, &document) in inside.iter().enumerate() {
                worth[place] = self.lengths[document as usize] as f32;
            }
            for (worth, &often) in worth[..count].iter_mut().zip(frequencies) {
                let (often, norm) = (often as i32 as f32, self.fixed + self.per_token * *worth);
                *worth = weight * (K1_PLUS_1 * often / (often + norm));
            }
            for (&document, &worth) in inside.iter().zip(&worth) {
                scores[document as usize - start] += worth;
            }
            if self.required > 1 {
                for &document in inside {
                    tokens[document as usize - start] += 1;
                }
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
    fn collect(
        &self,
        start: usize,
        end: usize,
        scores: &mut [f32],
        tokens: &mut [u16],
        k: usize,
        best: &mut BinaryHeap<Hit>,
    ) {
        const STEP: usize = 64;
        let mut worst = threshold(best, k);
        for from in (0..end - start).step_by(STEP) {
            let to = (from + STEP).min(end - start);
            // Without a branch a score: most groups have nothing to keep.
            let highest = scores[from..to]
                .iter()
                .fold(0_f32, |high, &score| if score > high { score } else { high });
            if highest <= worst {
                continue;
            }
            for place in from..to {
                let (score, document) = (scores[place], start + place);
                if score > worst
                    && self.allowed[document] != 0
                    && (self.required < 2 || usize::from(tokens[place]) >= self.required)
                {
                    best.push(Hit { score, document: document as u32 });
                    if best.len() > k {
                        best.pop();
                    }
                    worst = threshold(best, k);
                }
            }
        }
        scores.fill(0.0);
        tokens.fill(0);
    }
}

/// What a score must exceed to be kept.
fn threshold(best: &BinaryHeap<Hit>, k: usize) -> f32 {
    match best.peek() {
        _ if k == 0 => f32::INFINITY,
        Some(worst) if best.len() >= k => worst.score,
        _ => 0.0,
    }
}
