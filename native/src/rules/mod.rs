//! Rules that change plans of the host after its own planning.

mod copied_conditions;
pub mod session_rule;
mod unpushed_filters;
