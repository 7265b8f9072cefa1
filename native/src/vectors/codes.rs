//! Vectors as one byte an element, with how far each is from what its bytes stand for.
//!
//! What is coded is the difference to a vector in the middle of the first ones, as vectors of one
//! model often lie to one side of the origin; for cosine distances, that of vectors of length 1.

use pyo3::PyResult;

use crate::python::buffers::invalid;
use crate::vectors::dot_products::{GROUP, LANES, Line, ZERO};

/// Shorter and longer vectors (by their squares) are not coded: numbers of 32 bits might under- or
/// overflow. Whoever searches has to measure them.
const SHORTEST: f64 = 1e-30;
const LONGEST: f64 = 1e30;
/// The steps from zero to the largest element.
const STEPS: f64 = 127.0;
/// The number of vectors whose middle is taken, without those so many times as long as most.
const SAMPLE: usize = 1024;
const OUTLIER: f64 = 16.0;

#[derive(Clone, Copy, PartialEq)]
pub enum Metric {
    L2,
    Dot,
    Cosine,
}

impl Metric {
    pub fn named(name: &str) -> PyResult<Self> {
        match name {
            "l2" => Ok(Self::L2),
            "dot" => Ok(Self::Dot),
            "cosine" => Ok(Self::Cosine),
            _ => Err(invalid("the metric must be l2, dot or cosine")),
        }
    }
}

/// By row, in blocks of `LANES` rows; what is beyond the last row counts as nothing.
pub struct Codes {
    pub metric: Metric,
    pub dimension: usize,
    /// The vector that is subtracted from all others.
    pub centre: Vec<f64>,
    /// By block, and in it by `GROUP` elements.
    pub lines: Vec<Line>,
    /// The size of a step of a row's codes.
    pub scales: Vec<f32>,
    /// The square of a row's length.
    pub squares: Vec<f32>,
    /// The length of what the codes leave over, at most. Infinite for rows that are not coded, and
    /// minus infinity for rows that have no distance.
    pub errors: Vec<f32>,
    /// Rows that have no distance, ascending.
    pub void: Vec<i64>,
    /// Rows that are not coded and may have one, ascending.
    pub uncoded: Vec<i64>,
    /// The length of the longest vector that is coded.
    pub longest: f64,
    rows: usize,
}

impl Codes {
    pub fn new(metric: Metric, dimension: usize) -> Self {
        Self {
            metric,
            dimension,
            centre: Vec::new(),
            lines: Vec::new(),
            scales: Vec::new(),
            squares: Vec::new(),
            errors: Vec::new(),
            void: Vec::new(),
            uncoded: Vec::new(),
            longest: 0.0,
            rows: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.rows
    }

    /// `GROUP`s of a vector.
    pub fn groups(&self) -> usize {
        self.dimension.div_ceil(GROUP)
    }

    pub fn nbytes(&self) -> usize {
        let others = size_of_val(&*self.void) + size_of_val(&*self.uncoded);
        let rows = size_of_val(&*self.lines) + 3 * size_of_val(&*self.scales);
        rows + size_of_val(&*self.centre) + others
    }

    /// Make room for so many blocks, of rows that have no distance.
    fn resize(&mut self, blocks: usize) {
        self.lines.resize(blocks * self.groups(), ZERO);
        self.scales.resize(blocks * LANES, 0.0);
        self.squares.resize(blocks * LANES, 0.0);
        self.errors.resize(blocks * LANES, f32::NEG_INFINITY);
    }

    /// Append vectors, of which those count whose `valid` is not 0.
    pub fn extend<T: Copy + Into<f64>>(&mut self, vectors: &[T], valid: Option<&[u8]>) {
        let count = vectors.len() / self.dimension;
        if self.centre.is_empty() && count > 0 {
            self.centre = self.middle(vectors);
        }
        self.resize((self.rows + count).div_ceil(LANES));
        let mut vector = vec![0.0; self.dimension];
        for (place, elements) in vectors.chunks_exact(self.dimension).enumerate() {
            let row = self.rows + place;
            let valid = valid.is_none_or(|valid| valid[place] != 0);
            if !valid || !self.load(elements, &mut vector) {
                self.void.push(row as i64);
            } else if !self.write(row, &mut vector) {
                self.errors[row] = f32::INFINITY;
                self.uncoded.push(row as i64);
            }
        }
        self.rows += count;
    }

    /// The vector in the middle of some of these.
    fn middle<T: Copy + Into<f64>>(&self, vectors: &[T]) -> Vec<f64> {
        let step = (vectors.len() / self.dimension).div_ceil(SAMPLE);
        let mut sample = Vec::new();
        for elements in vectors.chunks_exact(self.dimension).step_by(step) {
            let mut vector = vec![0.0; self.dimension];
            if self.load(elements, &mut vector) {
                sample.push((square_of(&vector), vector));
            }
        }
        sample.retain(|(square, _)| is_tame(*square));
        sample.sort_by(|one, other| one.0.total_cmp(&other.0));
        let longest = OUTLIER * sample.get(sample.len() / 2).map_or(0.0, |(square, _)| *square);
        sample.retain(|(square, _)| *square <= longest);
        let mut middle = vec![0.0; self.dimension];
        for (_, vector) in &sample {
            for (sum, element) in middle.iter_mut().zip(vector) {
                *sum += element / sample.len() as f64;
            }
        }
        middle
    }

    /// A vector in the form in which it is measured; false if it has no distance to anything.
    fn load<T: Copy + Into<f64>>(&self, elements: &[T], vector: &mut [f64]) -> bool {
        for (place, &element) in vector.iter_mut().zip(elements) {
            *place = element.into();
        }
        if self.metric == Metric::Cosine {
            let square = square_of(vector);
            // Divided by its length, one that is not tame would be of another length than 1.
            let length = if is_tame(square) { square.sqrt() } else { f64::NAN };
            vector.iter_mut().for_each(|element| *element /= length);
            return square != 0.0;
        }
        true
    }

    /// Code a vector in the form in which it is measured; false if it can't be.
    fn write(&mut self, row: usize, vector: &mut [f64]) -> bool {
        let whole = square_of(vector);
        let mut largest = 0.0;
        for (element, centre) in vector.iter_mut().zip(&self.centre) {
            *element -= centre;
            largest = f64::max(largest, element.abs());
        }
        let square = square_of(vector);
        if !is_tame(square) || !is_tame(whole) {
            return false;
        }
        self.longest = self.longest.max(whole.sqrt());
        // The scale as it is kept: the codes are multiples of that.
        let scale = (largest / STEPS) as f32;
        let inverse = if scale > 0.0 { 1.0 / f64::from(scale) } else { 0.0 };
        let (block, lane, mut left) = (row / LANES, row % LANES, 0.0);
        let start = block * self.groups();
        for (group, part) in vector.chunks(GROUP).enumerate() {
            let codes = &mut self.lines[start + group].0[lane * GROUP..];
            for (code, element) in codes.iter_mut().zip(part) {
                // To the nearest: what is converted is never negative.
                *code = (element * inverse + f64::from(ZERO.0[0]) + 0.5) as u8;
                let rest = element - f64::from(scale) * (f64::from(*code) - f64::from(ZERO.0[0]));
                left += rest * rest;
            }
        }
        self.scales[row] = scale;
        self.squares[row] = square as f32;
        // The error that rounding may have added: in 64 bits, and by the conversion to 32.
        self.errors[row] = (left.sqrt() * (1.0 + 1e-6) + 1e-14 * whole.sqrt()) as f32;
        true
    }
}

pub fn square_of(vector: &[f64]) -> f64 {
    vector.iter().map(|element| element * element).sum()
}

/// Whether numbers of 32 bits are safe with a vector of this square; false for NaN.
pub fn is_tame(square: f64) -> bool {
    square == 0.0 || (SHORTEST..LONGEST).contains(&square)
}
