//! The Python face of coded vectors.

use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::python::buffers::{Numbers, bytes_of, invalid};
use crate::vectors::bounds::Bounds;
use crate::vectors::codes::{Codes, Metric};
use crate::vectors::distances::{Matrix, Measure};
use crate::vectors::search::{Wanted, candidates};

/// A quarter of the bytes of float32 vectors, and no more than a few vectors too many.
#[pyclass(frozen, module = "memwal_native")]
pub struct VectorCodes {
    codes: RwLock<Codes>,
}

#[pymethods]
impl VectorCodes {
    #[new]
    fn new(dimension: usize, metric: &str) -> PyResult<Self> {
        if dimension == 0 {
            return Err(invalid("a vector must have at least one element"));
        }
        Ok(Self { codes: RwLock::new(Codes::new(Metric::named(metric)?, dimension)) })
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.read(py, Codes::len)
    }

    /// Bytes held.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        self.read(py, Codes::nbytes)
    }

    /// The length of the longest vector, of those that are not `unmeasured`; 1 for cosine distances.
    #[getter]
    fn longest(&self, py: Python<'_>) -> f64 {
        self.read(py, |codes| codes.longest)
    }

    /// Of the first `rows`, as the bytes of int64, ascending: those that have no distance, and those
    /// whose distance may be anything, as they are very long or short, or hold infinities or what is
    /// not a number.
    fn unmeasured<'py>(
        &self,
        py: Python<'py>,
        rows: usize,
    ) -> (Bound<'py, PyBytes>, Bound<'py, PyBytes>) {
        let first = |found: &[i64]| {
            let end = found.partition_point(|&row| (row as usize) < rows);
            found[..end].to_vec()
        };
        let (void, uncoded) = self.read(py, |codes| (first(&codes.void), first(&codes.uncoded)));
        (bytes_of(py, &void), bytes_of(py, &uncoded))
    }

    /// Code the vectors of a matrix of float32 or float64 whose first row is row `first`; those that
    /// are coded already are passed over. `valid` (one byte a row) is 0 for rows without a vector.
    fn extend(
        &self,
        py: Python<'_>,
        vectors: &Bound<'_, PyAny>,
        first: usize,
        valid: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let valid = valid.map(Numbers::<u8>::new).transpose()?;
        let valid = valid.as_ref().map(Numbers::slice);
        match Numbers::<f32>::new(vectors) {
            Ok(vectors) => py.detach(|| self.append(vectors.slice(), first, valid)),
            Err(_) => {
                let vectors = Numbers::<f64>::new(vectors)?;
                py.detach(|| self.append(vectors.slice(), first, valid))
            }
        }
    }

    /// By query, as the bytes of int64: ascending rows that hold the `most` nearest by exact
    /// distance, as float32, of those that are among the first `rows`, whose `allowed` (one byte a
    /// row) is not 0 and whose distance is at least `least` and less than `below`. `queries` are
    /// of float64. Rows that have no distance may be among them.
    #[pyo3(signature = (queries, most, *, rows, allowed, least, below))]
    #[allow(clippy::too_many_arguments)]
    fn candidates<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'py, PyAny>,
        most: usize,
        rows: usize,
        allowed: Option<&Bound<'py, PyAny>>,
        least: Option<f64>,
        below: Option<f64>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let asked = Asked::new(queries, most, rows, allowed, least, below)?;
        let found = self.read(py, |codes| asked.candidates(codes)).ok_or_else(misfit)?;
        Ok(found.iter().map(|rows| bytes_of(py, rows)).collect())
    }

    /// By query, as the bytes of int64 and of float32: the `most` nearest rows as `candidates` has
    /// them, those that are as near as the last of these, and their distances, by distance and then
    /// row. `chunks` are the matrices of float32 or
    /// float64 whose rows were coded.
    #[pyo3(signature = (queries, most, *, chunks, rows, allowed, least, below))]
    #[allow(clippy::too_many_arguments)]
    fn nearest<'py>(
        &self,
        py: Python<'py>,
        queries: &Bound<'py, PyAny>,
        most: usize,
        chunks: Vec<Bound<'py, PyAny>>,
        rows: usize,
        allowed: Option<&Bound<'py, PyAny>>,
        least: Option<f64>,
        below: Option<f64>,
    ) -> PyResult<Vec<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)>> {
        let asked = Asked::new(queries, most, rows, allowed, least, below)?;
        let chunks = chunks.iter().map(Matrix::new).collect::<PyResult<Vec<_>>>()?;
        let found = self.read(py, |codes| asked.nearest(codes, &chunks)).ok_or_else(misfit)?;
        let bytes = |(rows, distances): &(Vec<i64>, Vec<f32>)| {
            (bytes_of(py, rows), bytes_of(py, distances))
        };
        Ok(found.iter().map(bytes).collect())
    }
}

fn misfit() -> PyErr {
    invalid("the arrays must have the same rows and elements")
}

/// The parameters of a search.
struct Asked {
    queries: Numbers<f64>,
    most: usize,
    rows: usize,
    allowed: Option<Numbers<u8>>,
    least: f32,
    below: Option<f32>,
}

impl Asked {
    fn new(
        queries: &Bound<'_, PyAny>,
        most: usize,
        rows: usize,
        allowed: Option<&Bound<'_, PyAny>>,
        least: Option<f64>,
        below: Option<f64>,
    ) -> PyResult<Self> {
        Ok(Self {
            queries: Numbers::new(queries)?,
            most,
            rows,
            allowed: allowed.map(Numbers::new).transpose()?,
            least: least.map_or(f32::NEG_INFINITY, |least| least as f32),
            below: below.map(|below| below as f32),
        })
    }

    /// None if something does not fit together.
    fn candidates(&self, codes: &Codes) -> Option<Vec<Vec<i64>>> {
        let allowed = self.allowed.as_ref().map(Numbers::slice);
        let short = allowed.is_some_and(|allowed| allowed.len() < self.rows);
        if short
            || codes.len() < self.rows
            || !self.queries.slice().len().is_multiple_of(codes.dimension)
        {
            return None;
        }
        let queries = self.queries.slice().chunks_exact(codes.dimension);
        let bounds: Vec<_> = queries.map(|query| Bounds::new(query, codes)).collect();
        let wanted = Wanted {
            most: self.most,
            rows: self.rows,
            allowed,
            least: self.least,
            below: self.below.unwrap_or(f32::INFINITY),
        };
        Some(candidates(codes, &bounds, &wanted))
    }

    /// The same.
    fn nearest(&self, codes: &Codes, chunks: &[Matrix]) -> Option<Vec<(Vec<i64>, Vec<f32>)>> {
        let rows: usize = chunks.iter().map(|chunk| chunk.rows(codes.dimension)).sum();
        if rows < self.rows {
            return None;
        }
        let candidates = self.candidates(codes)?;
        let queries = self.queries.slice().chunks_exact(codes.dimension);
        let found = queries.zip(candidates);
        Some(found.map(|(query, rows)| self.measured(codes, chunks, query, &rows)).collect())
    }

    fn measured(
        &self,
        codes: &Codes,
        chunks: &[Matrix],
        query: &[f64],
        rows: &[i64],
    ) -> (Vec<i64>, Vec<f32>) {
        let measure = Measure::new(codes.metric, query);
        let (mut chunks, mut start, mut found) = (chunks.iter().peekable(), 0, Vec::new());
        for &row in rows {
            while let Some(chunk) = chunks.peek() {
                let end = start + chunk.rows(codes.dimension);
                if (row as usize) < end {
                    let distance = chunk.distance(row as usize - start, &measure);
                    let below = self.below.is_none_or(|below| distance < below);
                    if distance >= self.least && below {
                        found.push((distance, row));
                    }
                    break;
                }
                start = end;
                chunks.next();
            }
        }
        found.sort_by(|one, other| one.0.total_cmp(&other.0));
        if let Some(&(farthest, _)) = self.most.checked_sub(1).and_then(|last| found.get(last)) {
            found.truncate(found.partition_point(|&(distance, _)| distance <= farthest));
        }
        found.into_iter().map(|(distance, row)| (row, distance)).unzip()
    }
}

impl VectorCodes {
    fn append<T: Copy + Into<f64>>(
        &self,
        vectors: &[T],
        first: usize,
        valid: Option<&[u8]>,
    ) -> PyResult<()> {
        let mut codes = self.codes.write().unwrap_or_else(PoisonError::into_inner);
        let (count, known) = (vectors.len() / codes.dimension, codes.len());
        let whole = vectors.len().is_multiple_of(codes.dimension);
        if !whole || known < first || valid.is_some_and(|valid| valid.len() != count) {
            return Err(invalid("the rows must be whole vectors, and follow those in memory"));
        }
        let known = (known - first).min(count);
        let start = known * codes.dimension;
        codes.extend(&vectors[start..], valid.map(|valid| &valid[known..]));
        Ok(())
    }

    fn read<T: Send>(&self, py: Python<'_>, read: impl FnOnce(&Codes) -> T + Send) -> T {
        py.detach(|| read(&self.codes.read().unwrap_or_else(PoisonError::into_inner)))
    }
}
