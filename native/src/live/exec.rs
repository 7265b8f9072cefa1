//! A scan of live rows, for DataFusion and for Python.

use std::fmt;
use std::sync::{Arc, LazyLock};
use std::thread::available_parallelism;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use datafusion_common::stats::Precision;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Result, Statistics};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties, StatisticsArgs,
};
use futures::stream;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::filters::rows::{filtered, mask_of};
use crate::leaf::leaf_properties;
use crate::python::arrow_bridge::stream_to_python;
use crate::python::buffers::invalid;
use crate::python::errors::guarded;

/// To ask the system takes longer than to plan a scan.
static PROCESSORS: LazyLock<usize> =
    LazyLock::new(|| available_parallelism().map_or(1, usize::from));

/// The rows of some moment: those of the batches that meet all conditions, `limit` of them at most.
pub struct Scan {
    /// The first columns of the batches; conditions read others, too.
    pub schema: SchemaRef,
    pub batches: Vec<RecordBatch>,
    pub conditions: Vec<Arc<dyn PhysicalExpr>>,
    pub limit: Option<usize>,
    pub label: String,
}

impl Scan {
    /// One, which stops as soon as it has enough rows, with a limit.
    fn partitions(&self) -> usize {
        let most = match self.limit {
            Some(_) => 1,
            None => *PROCESSORS,
        };
        self.batches.len().clamp(1, most)
    }

    /// The rows without conditions, and whether there are none.
    fn count(&self) -> (usize, bool) {
        let rows = self.batches.iter().map(RecordBatch::num_rows).sum();
        (self.limit.map_or(rows, |limit| rows.min(limit)), self.conditions.is_empty())
    }

    /// The batches of one partition, which may be empty.
    fn rows(
        self: &Arc<Self>,
        partition: usize,
    ) -> impl Iterator<Item = Result<RecordBatch>> + Send + 'static {
        let (scan, partitions) = (Arc::clone(self), self.partitions());
        let mut left = self.limit.unwrap_or(usize::MAX);
        (partition..self.batches.len()).step_by(partitions).map_while(move |number| {
            (left > 0).then(|| {
                let batch = guarded(|| scan.batch(number))?;
                let batch = batch.slice(0, batch.num_rows().min(left));
                left -= batch.num_rows();
                Ok(batch)
            })
        })
    }

    fn batch(&self, number: usize) -> Result<RecordBatch> {
        let (batch, columns) = (&self.batches[number], self.schema.fields().len());
        filtered(batch, columns, mask_of(&self.conditions, batch)?)
    }
}

/// The scan as a leaf of a plan.
pub struct LiveExec {
    scan: Arc<Scan>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
}

impl LiveExec {
    pub fn new(scan: Arc<Scan>) -> Self {
        let properties = leaf_properties(Arc::clone(&scan.schema), scan.partitions());
        Self { scan, properties, metrics: ExecutionPlanMetricsSet::new() }
    }
}

impl fmt::Debug for LiveExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scan.label)
    }
}

impl DisplayAs for LiveExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.scan.label)
    }
}

impl ExecutionPlan for LiveExec {
    fn name(&self) -> &str {
        &self.scan.label
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![]
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

    fn execute(&self, partition: usize, _: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let metrics = BaselineMetrics::new(&self.metrics, partition);
        let mut rows = self.scan.rows(partition);
        let timed = std::iter::from_fn(move || {
            let timer = metrics.elapsed_compute().timer();
            let batch = rows.next();
            timer.done();
            if let Some(Ok(batch)) = &batch {
                metrics.record_output(batch.num_rows());
            }
            batch
        });
        let schema = Arc::clone(&self.scan.schema);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(timed))))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let mut statistics = Statistics::new_unknown(&self.scan.schema);
        if args.partition().is_none() || self.scan.partitions() == 1 {
            statistics.num_rows = match self.scan.count() {
                (rows, true) => Precision::Exact(rows),
                (rows, false) => Precision::Inexact(rows),
            };
        }
        Ok(Arc::new(statistics))
    }
}

/// A scan as Python has it.
#[pyclass(frozen, module = "memwal_native")]
pub struct LiveScan(pub Arc<Scan>);

#[pymethods]
impl LiveScan {
    #[getter]
    fn label(&self) -> &str {
        &self.0.label
    }

    #[getter]
    fn partitions(&self) -> usize {
        self.0.partitions()
    }

    /// The rows without conditions, and whether there are none.
    #[getter]
    fn count(&self) -> (usize, bool) {
        self.0.count()
    }

    fn partition(&self, number: usize) -> PyResult<LiveStream> {
        if number >= self.0.partitions() {
            return Err(invalid("there is no such partition"));
        }
        Ok(LiveStream { scan: Arc::clone(&self.0), partition: number })
    }
}

/// The rows of a partition of a scan, which Python reads through `__arrow_c_stream__`.
#[pyclass(frozen, module = "memwal_native")]
pub struct LiveStream {
    scan: Arc<Scan>,
    partition: usize,
}

#[pymethods]
impl LiveStream {
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let _ = requested_schema;
        let batches = self
            .scan
            .rows(self.partition)
            .filter(|batch| batch.as_ref().map_or(true, |batch| batch.num_rows() > 0));
        let batches = batches.map(|batch| batch.map_err(ArrowError::from));
        stream_to_python(py, Arc::clone(&self.scan.schema), batches)
    }
}
