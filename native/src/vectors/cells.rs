//! Coded vectors in an order in which near ones lie together, in cells. A cell that is too far away
//! as a whole is never read.

use std::ops::Range;

use crate::vectors::bounds::Bounds;
use crate::vectors::centres::nearest_centres;
use crate::vectors::codes::{Codes, Metric};
use crate::vectors::products::LANES;

/// What computing a cell's middle and extent in numbers of 64 bits may be wrong by.
const ROUNDING: f64 = 1.0 + 1e-6;
/// A place in the order that no row has.
const NONE: u32 = u32::MAX;

/// Which rows each cell has, and what ball they are in.
pub struct Cells {
    /// By place in the order: the row.
    rows: Vec<u32>,
    /// By cell.
    pub blocks: Vec<Range<usize>>,
    /// By cell: its middle, in elements that have the codes' centre taken off.
    middles: Vec<f32>,
    /// By cell: how far from the middle its vectors are at most.
    extents: Vec<f64>,
    /// By cell: how long its vectors are at most, with the codes' centre taken off.
    lengths: Vec<f64>,
}

impl Cells {
    fn add(&mut self, from: &Codes, rows: &[u32], to: &mut Codes) {
        let start = to.scales.len() / LANES;
        to.copy(from, rows);
        self.rows.extend(rows);
        self.rows.resize(to.scales.len(), NONE);
        self.blocks.push(start..to.scales.len() / LANES);
    }

    /// The row at a place in the order; more than any row if there is none.
    #[inline]
    pub fn row(&self, place: usize) -> usize {
        self.rows[place] as usize
    }

    pub fn nbytes(&self) -> usize {
        size_of_val(&*self.rows)
            + size_of_val(&*self.middles)
            + self.blocks.len() * (size_of::<Range<usize>>() + 2 * size_of::<f64>())
    }

    /// By cell.
    ///
    /// With a middle `m`, `|x - m| <= e` and a query `q`: `|q - x| >= |q - m| - e`, and
    /// `qx <= qm + |q| e`. Of vectors of length 1 the cosine distance is half of `|q - x|^2`.
    pub fn seen_from(&self, query: &Bounds, metric: Metric) -> Vec<Ball> {
        let middles = self.middles.chunks_exact(query.centred.len());
        let cells = middles.zip(&self.extents).zip(&self.lengths);
        let seen = cells.map(|((middle, &extent), length)| {
            let (middle, least) = match metric {
                Metric::Dot => {
                    let distance = query.without_product - product(&query.centred, middle);
                    (distance, distance - query.length * extent)
                }
                Metric::L2 | Metric::Cosine => {
                    let distance = between(&query.centred, middle);
                    let gap = f64::max(0.0, distance / ROUNDING - extent);
                    (distance, if metric == Metric::L2 { gap * gap } else { gap * gap / 2.0 })
                }
            };
            let margin = query.margin_of(length * length);
            Ball { middle: middle as f32, least: (least - margin) as f32 }
        });
        seen.collect()
    }
}

/// A cell as seen from a query.
pub struct Ball {
    /// How far the middle is: smaller is nearer.
    pub middle: f32,
    /// What the distances of the cell's vectors are at least.
    pub least: f32,
}

fn between(query: &[f64], middle: &[f32]) -> f64 {
    let mut sums = [0.0; 4];
    for (query, middle) in query.chunks(4).zip(middle.chunks(4)) {
        for ((sum, query), middle) in sums.iter_mut().zip(query).zip(middle) {
            let difference = query - f64::from(*middle);
            *sum += difference * difference;
        }
    }
    sums.iter().sum::<f64>().sqrt()
}

fn product(query: &[f64], middle: &[f32]) -> f64 {
    query.iter().zip(middle).map(|(query, middle)| query * f64::from(*middle)).sum()
}

/// The same vectors in cells, in an order of their own.
pub fn arranged(codes: &Codes) -> (Codes, Cells) {
    let (count, own) = nearest_centres(codes);
    let (mut members, mut unknown) = (vec![Vec::new(); count], Vec::new());
    for (row, (&centre, &error)) in own.iter().zip(&codes.errors).enumerate() {
        if error.is_finite() {
            members[centre as usize].push(row as u32);
        } else if error > 0.0 {
            unknown.push(row as u32); // not coded: whoever searches has to measure it
        }
    }
    let mut ordered = codes.empty();
    let mut cells = Cells {
        rows: Vec::new(),
        blocks: Vec::new(),
        middles: Vec::new(),
        extents: Vec::new(),
        lengths: Vec::new(),
    };
    for rows in members.iter().filter(|rows| !rows.is_empty()) {
        let (middle, extent) = ball(codes, rows);
        let longest = rows.iter().map(|&row| codes.squares[row as usize]).fold(0.0, f32::max);
        cells.add(codes, rows, &mut ordered);
        cells.middles.extend(middle);
        cells.extents.push(extent);
        cells.lengths.push(f64::from(longest).sqrt() * ROUNDING);
    }
    if !unknown.is_empty() {
        cells.add(codes, &unknown, &mut ordered);
        cells.middles.extend(vec![0.0; codes.dimension]);
        cells.extents.push(f64::INFINITY);
        cells.lengths.push(0.0);
    }
    (ordered, cells)
}

/// The middle of some rows, and how far from it they are at most.
fn ball(codes: &Codes, rows: &[u32]) -> (Vec<f32>, f64) {
    let vectors: Vec<Vec<f64>> = rows.iter().map(|&row| codes.vector(row as usize)).collect();
    let mut sums = vec![0.0; codes.dimension];
    for vector in &vectors {
        sums.iter_mut().zip(vector).for_each(|(sum, element)| *sum += element);
    }
    let middle: Vec<f32> = sums.iter().map(|sum| (sum / rows.len() as f64) as f32).collect();
    let extents = vectors
        .iter()
        .zip(rows)
        .map(|(vector, &row)| between(vector, &middle) + f64::from(codes.errors[row as usize]));
    let extent = extents.fold(0.0, f64::max) * ROUNDING;
    (middle, extent)
}
