//! SQL text as DataFusion reads it.

pub mod depth;
pub mod memberships;
pub mod parser;
pub mod tables;
pub mod text;
pub mod tokens;
