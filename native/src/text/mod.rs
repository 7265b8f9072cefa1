//! Kernels of full-text search: posting lists as Lance packs them, their tokens, and ranking.

mod edit_distance;
mod postings;
mod token_list;
mod token_map;
mod top_k;

use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<postings::Postings>()?;
    module.add_class::<token_list::TokenList>()?;
    module.add_class::<token_map::TokenMap>()?;
    module.add_function(wrap_pyfunction!(top_k::top_k, module)?)
}
