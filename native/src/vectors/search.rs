//! The rows that may be among the nearest to a query, by the bounds on their distances.

use std::collections::BinaryHeap;
use std::ops::Range;

use crate::threads::{shared, threads_for};
use crate::vectors::bounds::Bounds;
use crate::vectors::cells::{Ball, Cells};
use crate::vectors::codes::Codes;
use crate::vectors::products::{LANES, fastest};

/// Lines that are read for all queries before the next ones: they stay in the nearer caches.
const TILE_LINES: usize = 1 << 10;
/// Lines that take longer than to start a thread.
const LINES_A_THREAD: usize = 1 << 16;
/// In how many cells is looked for a distance beyond which none need be read.
const FIRST_CELLS: usize = 8;
/// By so many searches for so many of the nearest is found out what cells are worth.
const TRIED: usize = 16;
const TRIED_MOST: usize = 10;

/// Which rows count.
pub struct Wanted<'a> {
    /// How many of the nearest.
    pub most: usize,
    /// Only the rows before this one.
    pub rows: usize,
    /// By row, not 0 if it counts; None if all do.
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
    let tiles = match &codes.cells {
        Some(cells) => near_tiles(codes, cells, queries, wanted),
        None => all_tiles(codes, queries.len(), wanted),
    };
    let lines: usize = tiles.iter().map(|tile| tile.blocks.len() * tile.queries.len()).sum();
    let threads = threads_for(lines * codes.groups(), LINES_A_THREAD);
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

/// Blocks that are read for some queries before the next ones.
struct Tile {
    blocks: Range<usize>,
    /// The places of the queries.
    queries: Vec<usize>,
}

/// Those of all rows, for all queries.
fn all_tiles(codes: &Codes, queries: usize, wanted: &Wanted<'_>) -> Vec<Tile> {
    let blocks = wanted.rows.div_ceil(LANES);
    let step = (TILE_LINES / codes.groups()).max(1);
    let tile = |start: usize| Tile {
        blocks: start..(start + step).min(blocks),
        queries: (0..queries).collect(),
    };
    (0..blocks).step_by(step).map(tile).collect()
}

/// The cells that may hold one of the nearest, each for the queries that it may hold one of.
fn near_tiles(codes: &Codes, cells: &Cells, queries: &[&Bounds], wanted: &Wanted<'_>) -> Vec<Tile> {
    let mut asked = vec![Vec::new(); cells.blocks.len()];
    for (place, query) in queries.iter().enumerate() {
        let balls = cells.seen_from(query, codes.metric);
        let farthest = farthest_near(codes, cells, query, &balls, wanted);
        for (asked, ball) in asked.iter_mut().zip(&balls) {
            let beyond = ball.least > farthest; // not so of what is not a number
            if !beyond {
                asked.push(place);
            }
        }
    }
    let tiles = cells.blocks.iter().zip(asked).filter(|(_, queries)| !queries.is_empty());
    tiles.map(|(blocks, queries)| Tile { blocks: blocks.clone(), queries }).collect()
}

/// A distance that as many rows as are wanted don't exceed, by the cells around the query.
fn farthest_near(
    codes: &Codes,
    cells: &Cells,
    query: &Bounds,
    balls: &[Ball],
    wanted: &Wanted<'_>,
) -> f32 {
    let mut nearest: Vec<usize> = (0..balls.len()).collect();
    let nearer = |one: &usize, other: &usize| balls[*one].middle.total_cmp(&balls[*other].middle);
    if nearest.len() > FIRST_CELLS {
        nearest.select_nth_unstable_by(FIRST_CELLS, nearer);
        nearest.truncate(FIRST_CELLS);
    }
    nearest.sort_unstable_by(nearer);
    let mut hits = [Hits::new(wanted)];
    for cell in nearest {
        if balls[cell].least > hits[0].farthest() {
            break;
        }
        let tile = Tile { blocks: cells.blocks[cell].clone(), queries: vec![0] };
        scan(codes, &[query], &[tile], &mut hits);
    }
    hits[0].farthest()
}

/// What share of the rows in cells is read for the nearest ones of some of them.
pub fn share_read(codes: &Codes, cells: &Cells) -> f64 {
    let step = codes.errors.len().div_ceil(TRIED).max(1);
    let coded = |place: &usize| codes.errors[*place].is_finite();
    let places = (0..codes.errors.len()).step_by(step).filter(coded);
    let queries: Vec<Bounds> =
        places.filter_map(|place| Bounds::new(&codes.whole(place), codes)).collect();
    let wanted = Wanted {
        most: TRIED_MOST,
        rows: codes.len(),
        allowed: None,
        least: f32::NEG_INFINITY,
        below: f32::INFINITY,
    };
    let tiles = near_tiles(codes, cells, &queries.iter().collect::<Vec<_>>(), &wanted);
    let read: usize = tiles.iter().map(|tile| tile.blocks.len() * tile.queries.len()).sum();
    let all: usize = cells.blocks.iter().map(|blocks| blocks.len() * queries.len()).sum();
    read as f64 / all.max(1) as f64
}

fn scan(codes: &Codes, queries: &[&Bounds], tiles: &[Tile], hits: &mut [Hits<'_>]) {
    let (groups, multiply) = (codes.groups(), fastest());
    let longest = tiles.iter().map(|tile| tile.blocks.len()).max().unwrap_or_default();
    let mut products = vec![[0.0; LANES]; longest];
    for tile in tiles {
        let lines = &codes.lines[tile.blocks.start * groups..tile.blocks.end * groups];
        for &place in &tile.queries {
            let (query, hits) = (queries[place], &mut hits[place]);
            multiply(lines, &query.parts, &mut products);
            for (block, products) in tile.blocks.clone().zip(&products) {
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
            let place = block * LANES + lane;
            let row = codes.row(place);
            if least > self.farthest() || !self.wanted.counts(row) {
                continue;
            }
            let most = query.most(codes, place, products[lane]);
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

    /// What is certainly farther away than this is not among the nearest. Finite: rows without a
    /// distance are infinitely far away.
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
        let near = self.rows.into_iter().filter(|(least, _)| !(*least > farthest));
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
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Most {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Most {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Most {}
