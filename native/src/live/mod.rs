//! Rows of a table in memory, one a key, changed by key: what a query right after a write reads.

pub mod column;
pub mod image;
pub mod index;
pub mod log;
pub mod rows;
mod shared;

/// The places that are brought up to date, copied and locked together.
pub const CHUNK: usize = 1 << 16;
