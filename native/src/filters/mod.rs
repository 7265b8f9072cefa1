//! The filters that DataFusion offers a table.

pub mod predicate;
mod shallow;
mod text;
mod tree;
