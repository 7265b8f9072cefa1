//! Rows of a table in memory, one a key, changed by key: what a query right after a write reads.

pub mod answers;
pub mod column;
pub mod conditions;
pub mod exec;
pub mod image;
pub mod index;
pub mod log;
pub mod questions;
pub mod rows;
mod shared;
mod slots;

use pyo3::prelude::*;

/// The places that are brought up to date, copied and locked together.
pub const CHUNK: usize = 1 << 16;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<answers::Flag>()?;
    module.add_class::<answers::LiveAccess>()?;
    module.add_class::<answers::LiveAnswers>()?;
    module.add_class::<exec::LiveScan>()?;
    module.add_class::<image::LiveImage>()?;
    module.add_class::<questions::LiveQuestions>()?;
    module.add_function(wrap_pyfunction!(answers::note_scans, module)?)?;
    module.add_function(wrap_pyfunction!(questions::void_questions, module)?)?;
    module.add_function(wrap_pyfunction!(questions::voided, module)?)
}
