//! Python tables and nodes as tables and plans of DataFusion.

pub mod exec;
pub mod ffi_plan;
pub mod ffi_table;
mod held;
mod insert;
mod metrics;
pub mod mounted_table;
mod null_columns;
mod partition;
mod provider;
pub mod resident;
