//! The filters that DataFusion offers a table.

pub mod predicate;
pub mod rows;
pub mod shallow;
mod text;
mod tree;
