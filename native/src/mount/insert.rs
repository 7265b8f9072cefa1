//! INSERT INTO: the whole input is collected, then handed to Python at once, so that a query that
//! fails on the way writes nothing.

use std::fmt;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_catalog::Session;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{DataFusionError, Result};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_expr::EquivalenceProperties;
use datafusion_physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion_physical_plan::metrics::{
    Count, ExecutionPlanMetricsSet, MetricBuilder, MetricsSet, Time,
};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PhysicalExpr, PlanProperties,
};
use futures::TryStreamExt;
use futures::future::try_join_all;
use pyo3::prelude::*;

use crate::host::runtime::runtime;
use crate::mount::held::Held;
use crate::python::arrow_bridge::ArrowStream;
use crate::python::errors::with_python;

const NAME: &str = "UpsertExec";

/// Yields one row with one column, `count`: the rows written.
///
/// The order of the rows decides which of two equal keys is newer, but a foreign plan can't tell
/// the optimizer what its input must keep: it would drop an ORDER BY and deal the rows out to
/// several partitions. So the input is optimized as a separate plan that may not do that, and stays
/// so.
pub struct UpsertExec {
    provider: Arc<Held>,
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl UpsertExec {
    /// `provider.insert(stream)` takes an object with `__arrow_c_stream__` and returns a count;
    /// `input` is not optimized yet.
    pub fn new(
        provider: Arc<Held>,
        input: Arc<dyn ExecutionPlan>,
        session: &dyn Session,
    ) -> Result<Self> {
        let mut rules = session.physical_optimizers().iter();
        let mut options = session.config_options().clone();
        options.optimizer.enable_round_robin_repartition = false;
        let input = rules.try_fold(input, |plan, rule| rule.optimize(plan, &options))?;
        let schema = Schema::new(vec![Field::new("count", DataType::UInt64, false)]);
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::new(schema)),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        let metrics = ExecutionPlanMetricsSet::new();
        Ok(Self { provider, input, properties: Arc::new(properties), metrics })
    }
}

impl fmt::Debug for UpsertExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

impl DisplayAs for UpsertExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAME)
    }
}

impl ExecutionPlan for UpsertExec {
    fn name(&self) -> &str {
        NAME
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if partition != 0 {
            return Err(DataFusionError::Internal(format!("{NAME} has one partition")));
        }
        let schema = Arc::clone(self.properties.eq_properties.schema());
        let metrics = Written::new(&self.metrics);
        let written = upsert(Arc::clone(&self.provider), Arc::clone(&self.input), context, metrics);
        let counted = Arc::clone(&schema);
        let row = async move { count_row(counted, written.await?) };
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, futures::stream::once(row))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// The output of EXPLAIN ANALYZE for a statement.
struct Written {
    rows: Count,
    input: Time,
    write: Time,
}

impl Written {
    fn new(metrics: &ExecutionPlanMetricsSet) -> Self {
        let metric = || MetricBuilder::new(metrics);
        Self {
            rows: metric().counter("rows_written", 0),
            input: metric().subset_time("input_time", 0),
            write: metric().subset_time("write_time", 0),
        }
    }
}

/// Every partition is drained concurrently, in the caller's task: the input belongs to the host,
/// whose runtime this library can't enter.
async fn upsert(
    provider: Arc<Held>,
    input: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    metrics: Written,
) -> Result<u64> {
    let reading = metrics.input.timer();
    let partitions = input.properties().partitioning.partition_count();
    let streams = (0..partitions).map(|partition| input.execute(partition, Arc::clone(&context)));
    let streams = streams.collect::<Result<Vec<_>>>()?;
    let batches = try_join_all(streams.into_iter().map(TryStreamExt::try_collect)).await?;
    let batches: Vec<RecordBatch> = batches.into_iter().flat_map(|part: Vec<_>| part).collect();
    drop(reading);
    let _writing = metrics.write.timer();
    let schema = input.schema();
    let write = move || insert(&provider, schema, batches);
    let written = runtime()?.spawn_blocking(write).await;
    let rows = written.map_err(|error| DataFusionError::External(Box::new(error)))??;
    metrics.rows.add(usize::try_from(rows).unwrap_or(usize::MAX));
    Ok(rows)
}

fn insert(provider: &Held, schema: SchemaRef, batches: Vec<RecordBatch>) -> Result<u64> {
    with_python(|py| {
        let rows = ArrowStream { schema, batches };
        provider.bind(py).call_method1("insert", (rows,))?.extract()
    })
}

fn count_row(schema: SchemaRef, count: u64) -> Result<RecordBatch> {
    let column = Arc::new(UInt64Array::from(vec![count]));
    RecordBatch::try_new(schema, vec![column]).map_err(Into::into)
}
