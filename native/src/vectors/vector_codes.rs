//! The Python face of coded vectors.

use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffers::{Numbers, bytes_of, invalid};
use crate::vectors::bounds::Bounds;
use crate::vectors::codes::{Codes, Metric};
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
        let metric = match metric {
            "l2" => Metric::L2,
            "dot" => Metric::Dot,
            "cosine" => Metric::Cosine,
            _ => return Err(invalid("the metric is l2, dot or cosine")),
        };
        if dimension == 0 {
            return Err(invalid("a vector has at least one element"));
        }
        Ok(Self { codes: RwLock::new(Codes::new(metric, dimension)) })
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.read(py, Codes::len)
    }

    /// Bytes held.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        self.read(py, Codes::nbytes)
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
    /// row) is not 0, and whose distance is `least` or more and below `below`. `queries` is a matrix
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
        let queries = Numbers::<f64>::new(queries)?;
        let allowed = allowed.map(Numbers::<u8>::new).transpose()?;
        let wanted = Wanted {
            most,
            rows,
            allowed: allowed.as_ref().map(Numbers::slice),
            least: least.map_or(f32::NEG_INFINITY, |least| least as f32),
            below: below.map_or(f32::INFINITY, |below| below as f32),
        };
        let found = self.read(py, |codes| {
            let short = wanted.allowed.is_some_and(|allowed| allowed.len() < rows);
            if short || codes.len() < rows || queries.slice().len() % codes.dimension != 0 {
                return None;
            }
            let queries = queries.slice().chunks_exact(codes.dimension);
            let bounds: Vec<_> = queries.map(|query| Bounds::new(query, codes)).collect();
            Some(candidates(codes, &bounds, &wanted))
        });
        let found =
            found.ok_or_else(|| invalid("arrays of as many rows and elements are needed"))?;
        Ok(found.iter().map(|rows| bytes_of(py, rows)).collect())
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
        let whole = vectors.len() % codes.dimension == 0;
        if !whole || known < first || valid.is_some_and(|valid| valid.len() != count) {
            return Err(invalid("whole vectors are needed, after those that are known"));
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
