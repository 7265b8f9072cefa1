//! The best documents of one source for a few tokens, by BM25.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::thread;

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::python::buffers::{Numbers, bytes_of, invalid};
use crate::text::postings::{BLOCK, Cursor, Postings};
use crate::threads::threads_for;

/// Documents whose scores are summed up at once: few enough for the processor's nearer caches.
const WINDOW: usize = 1 << 14;
/// Less than one posting to so many documents: then those that hold a token are listed and sorted,
/// instead of looking at the scores of all.
const SPARSE: usize = 64;
/// Less than one posting to so many documents: then the other tokens are looked up for these.
const RARE: usize = 16;
/// Postings that take longer than to start a thread.
const POSTINGS_A_THREAD: usize = 1 << 16;
const K1_PLUS_1: f32 = 2.2;
/// More than the rounding of a few sums.
const SLACK: f32 = 1.0001;

/// The `k` best documents, and those with the score of the last of these: their numbers and scores
/// as the bytes of int32 and float32 arrays, the best first, of equal ones the lower number first.
///
/// A document's score is the sum over the tokens, in their order, of `weight * (2.2 f / (f + norm))`
/// with `norm = fixed + per_token * length`. It counts if it holds at least `required` of the
/// tokens (at least one) and `allowed` (one byte a document) is not 0. No document that holds any
/// is shorter than `shortest`.
#[pyfunction]
#[pyo3(signature = (
    postings, weights, lengths, allowed, *, k, required, fixed, per_token, shortest
))]
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
    shortest: i32,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let (lengths, allowed) = (Numbers::<i32>::new(lengths)?, Numbers::<u8>::new(allowed)?);
    let (lengths, allowed) = (lengths.slice(), allowed.slice());
    if lengths.len() != allowed.len() || postings.len() != weights.len() {
        return Err(invalid("the arrays must have the same length"));
    }
    let lists: Vec<&Postings> = postings.iter().map(Py::get).collect();
    let least = fixed + per_token * shortest as f32;
    let search = Search { lists, weights, lengths, allowed, fixed, per_token, least, required, k };
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
    /// The norm of the shortest document.
    least: f32,
    required: usize,
    k: usize,
}

impl Search<'_> {
    /// The documents are shared out to threads; which ones are the best does not depend on how.
    fn run(&self) -> Vec<Hit> {
        let (documents, postings) = (self.lengths.len(), self.postings());
        let threads = threads_for(postings, POSTINGS_A_THREAD);
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
        });
        best.sort_unstable();
        if let Some(&Hit { score, .. }) = self.k.checked_sub(1).and_then(|last| best.get(last)) {
            best.truncate(best.partition_point(|hit| hit.score >= score));
        }
        best
    }

    fn postings(&self) -> usize {
        self.lists.iter().map(|list| list.len()).sum()
    }

    /// The highest score, for a token, of documents that hold it at most so often.
    fn bound(&self, weight: f32, most: u32) -> f32 {
        let most = most as i32 as f32;
        SLACK * weight * (K1_PLUS_1 * most / (most + self.least))
    }

    /// The score of a token in one document.
    fn worth_of(&self, weight: f32, document: u32, often: u32) -> f32 {
        let often = often as i32 as f32;
        let norm = self.fixed + self.per_token * self.lengths[document as usize] as f32;
        weight * (K1_PLUS_1 * often / (often + norm))
    }

    /// The scores of one token in the documents of a run.
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
///
/// Once the best are known to be better than what some *minor* tokens can add up to, only documents
/// that hold another one are looked at, and the minor tokens are looked up for those that may still
/// be among the best (MaxScore, Turtle and Flood 1995).
struct Scores<'a> {
    search: &'a Search<'a>,
    /// By place in the window; 0 outside of `add` and `keep`.
    scores: Vec<f32>,
    /// How many of the tokens each document holds; empty where one is enough.
    tokens: Vec<u16>,
    /// The places that hold any token, if they are listed; a place may be there several times.
    touched: Vec<u32>,
    /// Less than one posting to `SPARSE` documents.
    sparse: bool,
    /// The tokens, those first whose documents can be left to the others first, and what each of
    /// them is worth at most.
    order: Vec<(usize, f32)>,
    best: BinaryHeap<Hit>,
    /// The others with the score of the worst of these.
    ties: Vec<Hit>,
}

impl<'a> Scores<'a> {
    fn new(search: &'a Search<'a>) -> Self {
        let bounds = search.lists.iter().zip(&search.weights);
        let bounds = bounds.map(|(list, &weight)| search.bound(weight, list.most()));
        let mut order: Vec<(usize, f32)> = bounds.enumerate().collect();
        if search.required > 1 {
            // Whoever holds enough of them holds one that is not among the longest.
            order.sort_by_key(|&(token, _)| std::cmp::Reverse(search.lists[token].len()));
        } else {
            order.sort_by(|a, b| a.1.total_cmp(&b.1));
        }
        Self {
            search,
            scores: vec![0.0; WINDOW],
            tokens: vec![0; if search.required > 1 { WINDOW } else { 0 }],
            touched: Vec::new(),
            sparse: search.postings() * SPARSE < search.lengths.len(),
            order,
            best: BinaryHeap::new(),
            ties: Vec::new(),
        }
    }

    /// The best documents of a range, in no order.
    fn best(mut self, range: Range<usize>) -> Vec<Hit> {
        let first = range.start as u32;
        let cursors = |lists: &[&'a Postings]| -> Vec<Cursor<'a>> {
            lists.iter().map(|list| Cursor::from(list, first)).collect()
        };
        let mut cursors_of = (cursors(&self.search.lists), None);
        for start in range.clone().step_by(WINDOW) {
            let end = (start + WINDOW).min(range.end);
            let minor = self.minor();
            if minor == 0 {
                let mut any = false;
                for (token, cursor) in cursors_of.0.iter_mut().enumerate() {
                    any |= self.add(cursor, token, start..end, self.sparse);
                }
                if any {
                    self.keep(start, end);
                }
            } else {
                for place in minor..self.order.len() {
                    let token = self.order[place].0;
                    self.add(&mut cursors_of.0[token], token, start..end, true);
                }
                let lookups = cursors_of.1.get_or_insert_with(|| cursors(&self.search.lists));
                self.look_up(start, minor, lookups);
            }
        }
        self.ties.extend(self.best);
        self.ties
    }

    /// How many tokens, in `order`, are minor; none while the others are not rare, as looking
    /// documents up takes longer than adding up all of them.
    fn minor(&self) -> usize {
        let lists = &self.search.lists;
        let held = |(token, _): &(usize, f32)| lists[*token].len();
        let worst = self.threshold();
        let (mut minor, mut sum) = (0, 0.0);
        for &(_, bound) in &self.order[..self.order.len().saturating_sub(1)] {
            sum += bound;
            let is_minor = if self.search.required > 1 {
                minor + 1 < self.search.required
            } else {
                sum < worst
            };
            if !is_minor {
                break;
            }
            minor += 1;
        }
        let others: usize = self.order[minor..].iter().map(held).sum();
        if others * RARE < self.search.lengths.len() { minor } else { 0 }
    }

    /// Add what one token is worth to the scores of the window, and `list` the places; false if it
    /// is in none.
    fn add(
        &mut self,
        cursor: &mut Cursor<'_>,
        token: usize,
        window: Range<usize>,
        list: bool,
    ) -> bool {
        let Range { start, end } = window;
        let (search, weight) = (self.search, self.search.weights[token]);
        let (alone, worst) = (search.lists.len() == 1, self.threshold());
        let (mut any, mut worth) = (false, [0_f32; BLOCK]);
        loop {
            if alone {
                cursor.skip_unless(|most| search.bound(weight, most) >= worst);
            }
            if !cursor.load() {
                break;
            }
            let (documents, often) = cursor.rest();
            let count = if (documents[documents.len() - 1] as usize) < end {
                documents.len()
            } else {
                documents.partition_point(|&document| (document as usize) < end)
            };
            let inside = &documents[..count];
            search.worth(weight, inside, often, &mut worth);
            for (&document, &worth) in inside.iter().zip(&worth) {
                self.scores[document as usize - start] += worth;
            }
            if !self.tokens.is_empty() {
                for &document in inside {
                    self.tokens[document as usize - start] += 1;
                }
            }
            if list {
                self.touched.extend(inside.iter().map(|&document| document - start as u32));
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
        if self.sparse {
            for place in self.listed() {
                let (score, tokens) = (self.scores[place], self.tokens.get(place).copied());
                self.clear(place);
                self.offer(start + place, score, tokens);
            }
            return;
        }
        for from in (0..end - start).step_by(STEP) {
            let to = (from + STEP).min(end - start);
            let higher = |high: f32, &score: &f32| if score > high { score } else { high };
            // Without a branch a score: most groups have nothing to keep.
            let highest = self.scores[from..to].iter().fold(0_f32, higher);
            if highest > 0.0 && highest >= self.threshold() {
                for place in from..to {
                    let (score, tokens) = (self.scores[place], self.tokens.get(place).copied());
                    self.offer(start + place, score, tokens);
                }
            }
        }
        self.scores.fill(0.0);
        self.tokens.fill(0);
    }

    /// Keep the best of the window, of which the minor tokens are not known, and clear it.
    fn look_up(&mut self, start: usize, minor: usize, lookups: &mut [Cursor<'_>]) {
        let search = self.search;
        let more: f32 = self.order[..minor].iter().map(|(_, bound)| bound).sum();
        for place in self.listed() {
            let hope = (self.scores[place] + more) * SLACK;
            self.clear(place);
            let document = (start + place) as u32;
            if hope < self.threshold() || search.allowed[document as usize] == 0 {
                continue;
            }
            // Tokens are summed in their order: sums in another order may differ in their last bit.
            let (mut score, mut tokens) = (0.0, 0);
            for (lookup, &weight) in lookups.iter_mut().zip(&search.weights) {
                if let Some(often) = lookup.seek(document) {
                    score += search.worth_of(weight, document, often);
                    tokens += 1;
                }
            }
            self.offer(document as usize, score, Some(tokens));
        }
    }

    /// The places that hold any token, each once and in order, as of equal scores the one that is
    /// offered first stays.
    fn listed(&mut self) -> Vec<usize> {
        self.touched.sort_unstable();
        self.touched.dedup();
        self.touched.drain(..).map(|place| place as usize).collect()
    }

    fn clear(&mut self, place: usize) {
        self.scores[place] = 0.0;
        if let Some(tokens) = self.tokens.get_mut(place) {
            *tokens = 0;
        }
    }

    /// Keep a document if it is good enough; None stands for enough tokens.
    #[inline]
    fn offer(&mut self, document: usize, score: f32, tokens: Option<u16>) {
        if score > 0.0
            && score >= self.threshold()
            && self.search.allowed[document] != 0
            && tokens.is_none_or(|tokens| usize::from(tokens) >= self.search.required)
        {
            self.best.push(Hit { score, document: document as u32 });
            if self.best.len() > self.search.k {
                self.lose_one();
            }
        }
    }

    /// Take the worst of the best out; it stays beside them while it is as good as one of them.
    fn lose_one(&mut self) {
        let (lost, worst) = (self.best.pop(), self.threshold());
        match lost {
            Some(hit) if hit.score == worst => self.ties.push(hit),
            _ => self.ties.clear(),
        }
    }

    /// The score that a document must reach to be kept.
    #[inline]
    fn threshold(&self) -> f32 {
        match self.best.peek() {
            _ if self.search.k == 0 => f32::INFINITY,
            Some(worst) if self.best.len() >= self.search.k => worst.score,
            _ => 0.0,
        }
    }
}
