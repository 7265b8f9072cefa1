//! SQL statements as DataFusion reads them.

pub mod text;
pub mod tokens;
