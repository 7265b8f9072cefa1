//! The session that this library is called from: what can be seen of it, and what stands for the rest.

pub mod expressions;
pub mod plan;
pub mod runtime;
