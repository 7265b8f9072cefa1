//! The properties of plans that are leaves.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::{Partitioning, PlanProperties};

/// The properties of a leaf with this many partitions. Nothing else is known of its rows.
pub fn leaf_properties(schema: SchemaRef, partitions: usize) -> Arc<PlanProperties> {
    Arc::new(PlanProperties::new(
        EquivalenceProperties::new(schema),
        Partitioning::UnknownPartitioning(partitions),
        EmissionType::Incremental,
        Boundedness::Bounded,
    ))
}
