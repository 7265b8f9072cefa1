//! The tokens of rows in memory.

use std::sync::{PoisonError, RwLock};

use pyo3::prelude::*;

use crate::text::edit_distance::Near;

/// Tokens in one text. Grows at its end.
#[pyclass(frozen, module = "memwal_native")]
#[derive(Default)]
pub struct TokenList {
    tokens: RwLock<Tokens>,
}

#[derive(Default)]
struct Tokens {
    text: String,
    /// The bytes and characters of each token. Counted in each search, these took half its time.
    sizes: Vec<(u32, u32)>,
}

#[pymethods]
impl TokenList {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.read(py, |tokens| tokens.sizes.len())
    }

    /// Bytes held.
    #[getter]
    fn nbytes(&self, py: Python<'_>) -> usize {
        self.read(py, |tokens| tokens.text.capacity() + 8 * tokens.sizes.capacity())
    }

    fn extend(&self, py: Python<'_>, more: Vec<String>) {
        py.detach(|| {
            let mut tokens = self.tokens.write().unwrap_or_else(PoisonError::into_inner);
            for token in more {
                tokens.text.push_str(&token);
                tokens.sizes.push((token.len() as u32, token.chars().count() as u32));
            }
        });
    }

    /// See `TokenMap::near`.
    fn near(&self, py: Python<'_>, token: &str, distance: usize, prefix: usize) -> Vec<String> {
        let near = Near::new(token, distance, prefix);
        self.read(py, |tokens| {
            let (mut row, mut found, mut start) = (Vec::new(), Vec::new(), 0);
            for &(bytes, length) in &tokens.sizes {
                let other = &tokens.text[start..start + bytes as usize];
                if near.has(other, length as usize, &mut row) {
                    found.push(other.to_owned());
                }
                start += bytes as usize;
            }
            found
        })
    }
}

impl TokenList {
    /// Readers wait for writers without the interpreter.
    fn read<T: Send>(&self, py: Python<'_>, what: impl FnOnce(&Tokens) -> T + Send) -> T {
        py.detach(|| what(&self.tokens.read().unwrap_or_else(PoisonError::into_inner)))
    }
}
