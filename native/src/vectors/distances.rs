//! Distances as Lance defines them: computed in numbers of 64 bits and rounded once, so that equal
//! vectors are equally far wherever they are.

use pyo3::buffer::Element;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::python::buffers::{Numbers, bytes_of};
use crate::vectors::codes::{Metric, square_of};

/// A query that vectors are measured against.
pub struct Measure<'a> {
    metric: Metric,
    query: &'a [f64],
    length: f64,
}

impl<'a> Measure<'a> {
    pub fn new(metric: Metric, query: &'a [f64]) -> Self {
        Self { metric, query, length: square_of(query).sqrt() }
    }

    /// NaN for a row without a distance.
    pub fn distance<T: Copy + Into<f64>>(&self, vector: &[T]) -> f32 {
        let distance = match self.metric {
            Metric::L2 => self.sum(vector, |element, query| (element - query) * (element - query)),
            Metric::Dot => 1.0 - self.sum(vector, |element, query| element * query),
            Metric::Cosine => {
                let length = self.sum(vector, |element, _| element * element).sqrt();
                let product = self.sum(vector, |element, query| element * query);
                (1.0 - product / (length * self.length)).clamp(0.0, 2.0)
            }
        };
        distance as f32
    }

    fn sum<T: Copy + Into<f64>>(&self, vector: &[T], part: impl Fn(f64, f64) -> f64) -> f64 {
        let mut sums = [0.0; 4];
        for (elements, queries) in vector.chunks(4).zip(self.query.chunks(4)) {
            for ((sum, &element), &query) in sums.iter_mut().zip(elements).zip(queries) {
                *sum += part(element.into(), query);
            }
        }
        sums.iter().sum()
    }
}

/// A matrix of Python's, readable without the interpreter.
pub enum Matrix {
    Single(Numbers<f32>),
    Double(Numbers<f64>),
}

impl Matrix {
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        match Numbers::new(object) {
            Ok(single) => Ok(Self::Single(single)),
            Err(_) => Ok(Self::Double(Numbers::new(object)?)),
        }
    }

    /// The rows of so many elements.
    pub fn rows(&self, dimension: usize) -> usize {
        match self {
            Self::Single(vectors) => vectors.slice().len() / dimension,
            Self::Double(vectors) => vectors.slice().len() / dimension,
        }
    }

    pub fn distance(&self, row: usize, measure: &Measure<'_>) -> f32 {
        match self {
            Self::Single(vectors) => measured(vectors, row, measure),
            Self::Double(vectors) => measured(vectors, row, measure),
        }
    }
}

fn measured<T: Element + Into<f64>>(of: &Numbers<T>, row: usize, measure: &Measure<'_>) -> f32 {
    let dimension = measure.query.len();
    measure.distance(&of.slice()[row * dimension..][..dimension])
}

/// The distance of each row of a matrix of float32 or float64 to a query, as the bytes of float32.
#[pyfunction]
pub fn distances<'py>(
    py: Python<'py>,
    metric: &str,
    vectors: &Bound<'py, PyAny>,
    query: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (metric, vectors) = (Metric::named(metric)?, Matrix::new(vectors)?);
    let query = Numbers::<f64>::new(query)?;
    let found: Vec<f32> = py.detach(|| {
        let measure = Measure::new(metric, query.slice());
        let rows = vectors.rows(query.slice().len().max(1));
        (0..rows).map(|row| vectors.distance(row, &measure)).collect()
    });
    Ok(bytes_of(py, &found))
}
