//! Points that coded vectors gather around, and which of them each vector is nearest to: k-means.

use crate::vectors::bounds::divided;
use crate::vectors::codes::{Codes, square_of};
use crate::vectors::products::{LANES, Parts, fastest};

/// Vectors a centre.
const ROWS: usize = 128;
/// Beyond, finding the nearest would cost more than fewer vectors a centre are worth.
const MOST: usize = 1024;
/// Of so many vectors a centre the centres are taken.
const SAMPLE: usize = 16;
/// How often they are moved to where their vectors are.
const MOVES: usize = 3;
/// Blocks that all centres are compared with before the next ones.
const TILE: usize = 32;
/// A point as it is compared with coded vectors.
struct Centre {
    parts: Parts,
    per_product: f32,
    square: f32,
}

impl Centre {
    fn new(point: &[f64]) -> Self {
        let (parts, unit, _) = divided(point);
        Self { parts, per_product: (-2.0 * unit) as f32, square: square_of(point) as f32 }
    }
}

/// How many centres there are, and by row which one is the nearest.
pub fn nearest_centres(codes: &Codes) -> (usize, Vec<u32>) {
    let centres = centres_of(codes);
    (centres.len(), nearest(codes, &centres).0)
}

fn centres_of(codes: &Codes) -> Vec<Centre> {
    let count = (codes.len() / ROWS).clamp(1, MOST);
    let step = (codes.len() / (count * SAMPLE)).max(1);
    let rows: Vec<u32> = (0..codes.len() as u32).step_by(step).collect();
    let mut sample = codes.empty();
    sample.copy(codes, &rows);
    let mut centres = spread(&sample, count);
    for _ in 0..MOVES {
        let (own, _) = nearest(&sample, &centres);
        centres = moved(&sample, &own, centres.len());
    }
    centres
}

/// Some of the vectors, each taken the more likely the farther it is from those before it.
fn spread(sample: &Codes, count: usize) -> Vec<Centre> {
    let mut random = Random(1);
    let mut centres = vec![Centre::new(&sample.vector(0))];
    let mut away = vec![f32::INFINITY; sample.len()];
    while centres.len() < count {
        let (_, distances) = nearest(sample, &centres[centres.len() - 1..]);
        away.iter_mut().zip(distances).for_each(|(away, new)| *away = away.min(new.max(0.0)));
        let mut left = random.share() * away.iter().map(|&away| f64::from(away)).sum::<f64>();
        let next = away.iter().position(|&away| {
            left -= f64::from(away);
            left < 0.0
        });
        let Some(next) = next else { break }; // all are where a centre is
        centres.push(Centre::new(&sample.vector(next)));
    }
    centres
}

/// The middles of the vectors that have the same centre.
fn moved(sample: &Codes, own: &[u32], count: usize) -> Vec<Centre> {
    let mut sums = vec![vec![0.0; sample.dimension]; count];
    let mut counts = vec![0_usize; count];
    for (row, &centre) in own.iter().enumerate() {
        let sum = &mut sums[centre as usize];
        sum.iter_mut().zip(sample.vector(row)).for_each(|(sum, element)| *sum += element);
        counts[centre as usize] += 1;
    }
    let middles = sums.into_iter().zip(counts).filter(|(_, count)| *count > 0);
    middles
        .map(|(sum, count)| {
            Centre::new(&sum.iter().map(|sum| sum / count as f64).collect::<Vec<_>>())
        })
        .collect()
}

/// By row: the nearest centre, and the square of the distance to it.
fn nearest(codes: &Codes, centres: &[Centre]) -> (Vec<u32>, Vec<f32>) {
    let (mut own, mut away) = (Vec::new(), Vec::new());
    for start in (0..codes.len().div_ceil(LANES)).step_by(TILE) {
        let found = nearest_in(codes, start, centres);
        own.extend(found.0);
        away.extend(found.1);
    }
    own.truncate(codes.len());
    away.truncate(codes.len());
    (own, away)
}

/// Of the places of a tile.
fn nearest_in(codes: &Codes, start: usize, centres: &[Centre]) -> (Vec<u32>, Vec<f32>) {
    let multiply = fastest();
    let end = (start + TILE).min(codes.len().div_ceil(LANES));
    let lines = &codes.lines[start * codes.groups()..end * codes.groups()];
    let (scales, squares) =
        (&codes.scales[start * LANES..end * LANES], &codes.squares[start * LANES..end * LANES]);
    let mut products = vec![[0.0; LANES]; end - start];
    let mut own = vec![0; scales.len()];
    let mut away = vec![f32::INFINITY; scales.len()];
    for (number, centre) in centres.iter().enumerate() {
        multiply(lines, &centre.parts, &mut products);
        let products = products.as_flattened();
        for place in 0..scales.len() {
            let distance = centre.square
                + squares[place]
                + centre.per_product * (scales[place] * products[place]);
            let nearer = distance < away[place];
            away[place] = if nearer { distance } else { away[place] };
            own[place] = if nearer { number as u32 } else { own[place] };
        }
    }
    (own, away)
}

/// The same numbers every time.
struct Random(u64);

impl Random {
    /// At least 0 and below 1.
    fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}
