//! From tokens to their numbers, as Lance stores them: a finite state transducer.

use fst::{IntoStreamer, Map, Streamer};
use pyo3::prelude::*;

use crate::python::buffers::{Numbers, invalid};
use crate::text::edit_distance::Near;

/// The tokens of one index partition.
#[pyclass(frozen, module = "memwal_native")]
pub struct TokenMap {
    map: Map<Vec<u8>>,
}

#[pymethods]
impl TokenMap {
    /// `data` are the bytes of the transducer; a ValueError unless its version is known.
    #[new]
    fn new(data: &Bound<'_, PyAny>) -> PyResult<Self> {
        let data = Numbers::<u8>::new(data)?.slice().to_vec();
        let map = Map::new(data).map_err(|error| invalid(&error.to_string()))?;
        Ok(Self { map })
    }

    fn __len__(&self) -> usize {
        self.map.len()
    }

    /// Bytes held.
    #[getter]
    fn nbytes(&self) -> usize {
        self.map.as_fst().size()
    }

    /// The token's number; None if it is not there.
    fn get(&self, token: &str) -> Option<u64> {
        self.map.get(token)
    }

    /// The tokens that are at most `distance` from `token` and have the same first `prefix`
    /// characters, or all of them if it has fewer.
    fn near(&self, py: Python<'_>, token: &str, distance: usize, prefix: usize) -> Vec<String> {
        py.detach(|| {
            let mut stream = self.map.search(Near::new(token, distance, prefix)).into_stream();
            let mut found = Vec::new();
            while let Some((token, _)) = stream.next() {
                found.push(String::from_utf8_lossy(token).into_owned());
            }
            found
        })
    }

    /// Every token with its number, ordered by the token's bytes.
    fn items(&self) -> Vec<(String, u64)> {
        let mut found = Vec::with_capacity(self.map.len());
        let mut stream = self.map.stream();
        while let Some((token, number)) = stream.next() {
            found.push((String::from_utf8_lossy(token).into_owned(), number));
        }
        found
    }
}
