//! SQL statements as DataFusion reads them.

pub mod memberships;
pub mod text;
pub mod tokens;
