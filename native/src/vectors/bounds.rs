//! Bounds of the distance of a coded vector to a query.

use crate::vectors::codes::{Codes, Metric, is_tame, square_of};
use crate::vectors::dot_products::{FINER, GROUP, LANES, LARGEST, MOST_ELEMENTS, Parts};

/// More than what some operations on numbers of 32 bits, the distance as it is reported among them,
/// are wrong by, as a share of what they add up.
const ROUNDING: f64 = 64.0 / (1 << 24) as f64;

/// A query as it is compared with coded vectors.
///
/// A distance is `fixed + per_square * square + per_product * scale * product`, and wrong by
/// `margin + margin_per_square * square + margin_per_error * error` at most.
pub struct Bounds {
    pub parts: Parts,
    fixed: f32,
    per_square: f32,
    per_product: f32,
    margin: f32,
    margin_per_square: f32,
    margin_per_error: f32,
}

impl Bounds {
    /// None if nothing can be said: the query's length is too small or too large, or it has too many
    /// elements.
    ///
    /// With a vector `x` that is `c`, its codes, and `e`; a query `q` that is `p`, its parts, and
    /// `r`: `xq = cp + cr + eq`, so `|xq - cp| <= (|x| + |e|) |r| + |e| |q|`. And `|x| |q|` is at
    /// most half of `xx + qq`.
    pub fn new(query: &[f64], codes: &Codes) -> Option<Self> {
        let centre = |place: usize| codes.centre.get(place).copied().unwrap_or(0.0);
        let mut query = query.to_vec();
        let given = square_of(&query);
        if !is_tame(given) || query.len() > MOST_ELEMENTS {
            return None;
        }
        match codes.metric {
            Metric::L2 => {
                query.iter_mut().enumerate().for_each(|(place, element)| *element -= centre(place));
            }
            Metric::Cosine if given == 0.0 => return None,
            Metric::Cosine => query.iter_mut().for_each(|element| *element /= given.sqrt()),
            Metric::Dot => {}
        }
        let square = square_of(&query);
        if !is_tame(square) {
            return None;
        }
        let (parts, unit, rest) = divided(&query);
        let (length, relative) =
            (square.sqrt(), if rest > 0.0 { rest / square.sqrt() } else { 0.0 });
        let shift: f64 = query.iter().enumerate().map(|(place, q)| q * centre(place)).sum();
        let far = square_of(&codes.centre).sqrt();
        let wrong = relative + ROUNDING;
        let bounds = match codes.metric {
            Metric::L2 => Self {
                parts,
                fixed: square as f32,
                per_square: 1.0,
                per_product: (-2.0 * unit) as f32,
                // Computed in 64 bits, as the centre was subtracted.
                margin: (wrong * square + 1e-14 * far * far) as f32,
                margin_per_square: wrong as f32,
                margin_per_error: (2.0 * (length + rest)) as f32,
            },
            Metric::Dot | Metric::Cosine => Self {
                parts,
                fixed: (1.0 - shift) as f32,
                per_square: 0.0,
                per_product: -unit as f32,
                margin: (wrong * square + ROUNDING * (1.0 + far * length)) as f32,
                margin_per_square: wrong as f32,
                margin_per_error: (length + rest) as f32,
            },
        };
        // Never 0, as the error of a row may be infinite.
        let margin_per_error = bounds.margin_per_error.max(f32::MIN_POSITIVE);
        Some(Self { margin_per_error, ..bounds })
    }

    /// The least that distances may be, of a block whose products these are.
    #[inline(always)]
    pub fn least(&self, codes: &Codes, block: usize, products: &[f32; LANES]) -> [f32; LANES] {
        let rows = block * LANES..(block + 1) * LANES;
        let (squares, errors) = (&codes.squares[rows.clone()], &codes.errors[rows.clone()]);
        let (scales, mut found) = (&codes.scales[rows], [0.0; LANES]);
        let (fixed, per_square) =
            (self.fixed - self.margin, self.per_square - self.margin_per_square);
        for lane in 0..LANES {
            found[lane] = fixed + per_square * squares[lane] - self.margin_per_error * errors[lane]
                + self.per_product * (scales[lane] * products[lane]);
        }
        found
    }

    /// The most that a distance may be whose least is `least`.
    #[inline]
    pub fn most(&self, codes: &Codes, row: usize, product: f32) -> f32 {
        let distance = self.fixed
            + self.per_square * codes.squares[row]
            + self.per_product * (codes.scales[row] * product);
        let margin = self.margin
            + self.margin_per_square * codes.squares[row]
            + self.margin_per_error * codes.errors[row];
        distance + margin
    }
}

/// A query's parts, what one unit of them is, and the length of what they leave over.
fn divided(query: &[f64]) -> (Parts, f64, f64) {
    let largest = query.iter().fold(0.0, |high, element| f64::max(high, element.abs()));
    let step = largest / LARGEST;
    let inverse = if step > 0.0 { 1.0 / step } else { 0.0 };
    let (mut first, mut second, mut left) = (Vec::new(), Vec::new(), 0.0);
    for group in query.chunks(GROUP) {
        let mut parts = [[0_i8; GROUP]; 2];
        for (place, element) in group.iter().enumerate() {
            let one = (element * inverse).round();
            let two = ((element * inverse - one) * f64::from(FINER)).round();
            parts[0][place] = one as i8;
            parts[1][place] = two as i8;
            let rest = element - step * (one + two / f64::from(FINER));
            left += rest * rest;
        }
        first.push(parts[0]);
        second.push(parts[1]);
    }
    (Parts::new(first, second), step / f64::from(FINER), left.sqrt() * (1.0 + 1e-6))
}
