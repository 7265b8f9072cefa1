//! What is changed in plans that the host has finished.

mod copied_conditions;
mod distance_key;
mod nearest_rows;
pub mod session_rule;
mod unpushed_filters;
