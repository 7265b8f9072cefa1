//! The border with Python: data, errors, and who may call in.

pub mod arrow_bridge;
pub mod attached;
pub mod buffers;
pub mod errors;
mod memory;
