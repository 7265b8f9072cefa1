//! Rules that change plans of the host after its own planning.

mod copied_conditions;
mod distance_key;
mod nearest_rows;
pub mod session_rule;
mod unpushed_filters;
