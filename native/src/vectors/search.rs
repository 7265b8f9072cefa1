//! The rows that may be among the nearest to a query, by the bounds on their distances.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::threads::{shared, threads_for};
use crate::vectors::bounds::Bounds;
use crate::vectors::codes::Codes;
use crate::vectors::dot_products::{LANES, fastest};

/// Lines that are read for all queries before the next ones: they stay in the nearer caches.
const TILE_LINES: usize = 1 << 10;
/// Lines that take longer than to start a thread.
const LINES_A_THREAD: usize = 1 << 16;

/// The rows that count.
pub struct Wanted<'a> {
    /// How many of the nearest.
    pub most: usize,
    /// Only the rows before this one.
    pub rows: usize,
    /// A byte for each row, not 0 if it counts; None if all rows count.
    pub allowed: Option<&'a [u8]>,
    /// The least distance that counts.
    pub least: f32,
    /// Distances from here on don't count.
    pub below: f32,
}

/// By query, ascending: rows that hold the nearest of those that count.
pub fn candidates(codes: &Codes, queries: &[Option<Bounds>], wanted: &Wanted<'_>) -> Vec<Vec<i64>> {
    let known: Vec<&Bounds> = queries.iter().flatten().collect();
    let mut found = candidates_of_known(codes, &known, wanted).into_iter();
    let all = || (0..wanted.rows).filter(|&row| wanted.counts(row)).map(|row| row as i64).collect();
    let next = |query: &Option<Bounds>| match query {
        Some(_) => found.next().unwrap_or_default(),
        None => all(),
    };
    queries.iter().map(next).collect()
}

fn candidates_of_known(codes: &Codes, queries: &[&Bounds], wanted: &Wanted<'_>) -> Vec<Vec<i64>> {
    let blocks = wanted.rows.div_ceil(LANES);
    let step = (TILE_LINES / codes.groups()).max(1);
    let tiles: Vec<Range<usize>> =
        (0..blocks).step_by(step).map(|start| start..(start + step).min(blocks)).collect();
    let threads = threads_for(blocks * queries.len() * codes.groups(), LINES_A_THREAD);
    let found = shared(&tiles, threads, |tiles| {
        let mut hits: Vec<Hits> = queries.iter().map(|_| Hits::new(wanted)).collect();
        scan(codes, queries, tiles, &mut hits);
        hits
    });
    let mut hits: Vec<Hits> = queries.iter().map(|_| Hits::new(wanted)).collect();
    for found in found {
        hits.iter_mut().zip(found).for_each(|(one, more)| one.merge(more));
    }
    hits.into_iter().map(Hits::rows).collect()
}

/// Each tile is read for all queries before the next one.
fn scan(codes: &Codes, queries: &[&Bounds], tiles: &[Range<usize>], hits: &mut [Hits<'_>]) {
    let (groups, multiply) = (codes.groups(), fastest());
    let longest = tiles.iter().map(Range::len).max().unwrap_or_default();
    let mut products = vec![[0.0; LANES]; longest];
    for tile in tiles {
        let lines = &codes.lines[tile.start * groups..tile.end * groups];
        for (query, hits) in queries.iter().zip(&mut *hits) {
            multiply(lines, &query.parts, &mut products);
            for (block, products) in tile.clone().zip(&products) {
                hits.offer(codes, query, block, products);
            }
        }
    }
}

/// The rows found for one query so far.
struct Hits<'a> {
    wanted: &'a Wanted<'a>,
    /// The least of what the distances are at most; of so many rows as are wanted.
    nearest: BinaryHeap<Most>,
    /// Rows, and what their distances are at least.
    rows: Vec<(f32, u32)>,
}

impl<'a> Hits<'a> {
    fn new(wanted: &'a Wanted<'a>) -> Self {
        Self { wanted, nearest: BinaryHeap::new(), rows: Vec::new() }
    }

    #[inline]
    fn offer(&mut self, codes: &Codes, query: &Bounds, block: usize, products: &[f32; LANES]) {
        let (least, farthest) = (query.least(codes, block, products), self.farthest());
        // Without a branch a row: most blocks have nothing. What is not a number counts.
        if least.iter().fold(true, |none, &least| none & (least > farthest)) {
            return;
        }
        for (lane, &least) in least.iter().enumerate() {
            let row = block * LANES + lane;
            if least > self.farthest() || !self.wanted.counts(row) {
                continue;
            }
            let most = query.most(codes, row, products[lane]);
            if most < self.wanted.least {
                continue;
            }
            self.rows.push((least, row as u32));
            if least >= self.wanted.least {
                self.keep(Most(most));
            }
        }
    }

    fn keep(&mut self, most: Most) {
        self.nearest.push(most);
        if self.nearest.len() > self.wanted.most {
            self.nearest.pop();
        }
    }

    /// Rows that are certainly farther away than this are not among the nearest. Finite: rows without
    /// a distance are infinitely far away.
    #[inline]
    fn farthest(&self) -> f32 {
        let worst = self.nearest.peek().filter(|_| self.nearest.len() >= self.wanted.most);
        worst.map_or(f32::MAX, |worst| worst.0).min(self.wanted.below).min(f32::MAX)
    }

    fn merge(&mut self, other: Self) {
        self.rows.extend(other.rows);
        other.nearest.into_iter().for_each(|most| self.keep(most));
    }

    /// Ascending.
    fn rows(self) -> Vec<i64> {
        let farthest = self.farthest();
        let near = self
            .rows
            .into_iter()
            .filter(|(least, _)| least.partial_cmp(&farthest) != Some(Ordering::Greater));
        let mut rows: Vec<i64> = near.map(|(_, row)| i64::from(row)).collect();
        rows.sort_unstable();
        rows
    }
}

impl Wanted<'_> {
    #[inline]
    fn counts(&self, row: usize) -> bool {
        row < self.rows && self.allowed.is_none_or(|allowed| allowed[row] != 0)
    }
}

/// Ordered as numbers are; what is not a number comes last.
#[derive(Clone, Copy)]
struct Most(f32);

impl Ord for Most {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Most {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Most {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Most {}
