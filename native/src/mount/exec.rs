//! A Python node as a DataFusion execution plan.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Schema, SchemaRef};
use datafusion_common::stats::Precision;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_common::{Result, Statistics};
use datafusion_execution::{SendableRecordBatchStream, TaskContext};
use datafusion_physical_plan::metrics::MetricsSet;
use datafusion_physical_plan::stream::RecordBatchStreamAdapter;
use datafusion_physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, PhysicalExpr, PlanProperties, StatisticsArgs,
};
use pyo3::prelude::*;

use crate::leaf::leaf_properties;
use crate::live::exec::{LiveExec, LiveScan};
use crate::mount::held::Held;
use crate::mount::metrics::metrics_of;
use crate::mount::partition::batches;
use crate::python::arrow_bridge::{ArrowStream, schema_from_python};
use crate::python::errors::with_python;

/// One node of a mounted tree. The tree's shape is fixed: EXPLAIN shows the nodes that Python runs
/// among themselves, and only the root streams through DataFusion.
pub struct MountedExec {
    provider: Option<Arc<Held>>,
    /// The result of the provider's `scan`, if that has `matches`.
    scan: Option<Held>,
    node: Arc<Held>,
    label: String,
    properties: Arc<PlanProperties>,
    children: Vec<Arc<dyn ExecutionPlan>>,
    statistics: OnceLock<Arc<Statistics>>,
}

impl MountedExec {
    /// Mount a Python node with `schema`, `partitions`, `children`, `label()`, `statistics`,
    /// `metrics` and `hand_over(partition)`, or an object with a `node`: a scan of `provider`.
    ///
    /// A node with live rows, as its `rows`, is a plan of its own.
    pub fn mount(
        scan: &Bound<'_, PyAny>,
        provider: &Arc<Held>,
    ) -> PyResult<Arc<dyn ExecutionPlan>> {
        let may_match = scan.hasattr("matches")?;
        let node = &if may_match { scan.getattr("node")? } else { scan.clone() };
        if let Some(rows) = node.getattr_opt("rows")?
            && let Ok(live) = rows.cast::<LiveScan>()
        {
            return Ok(Arc::new(LiveExec::new(Arc::clone(&live.get().0))));
        }
        let schema = schema_from_python(&node.getattr("schema")?)?;
        let partitions = node.getattr("partitions")?.extract()?;
        // Nobody asks the nodes below the root for rows: they are only shown. So they share
        // properties that are cheap to hand over.
        let unused = leaf_properties(Arc::new(Schema::empty()), 1);
        let root = Self::with_properties(node, &leaf_properties(schema, partitions), &unused)?;
        let scan = may_match.then(|| Held::new(scan.clone()));
        Ok(Arc::new(Self { provider: Some(Arc::clone(provider)), scan, ..root }))
    }

    fn with_properties(
        node: &Bound<'_, PyAny>,
        own: &Arc<PlanProperties>,
        below: &Arc<PlanProperties>,
    ) -> PyResult<Self> {
        let children = node.getattr("children")?.try_iter()?;
        let children = children
            .map(|child| {
                Ok(Arc::new(Self::with_properties(&child?, below, below)?)
                    as Arc<dyn ExecutionPlan>)
            })
            .collect::<PyResult<Vec<_>>>()?;
        Ok(Self {
            provider: None,
            scan: None,
            node: Arc::new(Held::new(node.clone())),
            label: node.call_method0("label")?.extract()?,
            properties: Arc::clone(own),
            children,
            statistics: OnceLock::new(),
        })
    }

    /// Whether the provider is to be asked before the host applies conditions to these rows.
    pub fn asks_of_conditions(&self) -> Result<bool> {
        let Some(provider) = &self.provider else {
            return Ok(false);
        };
        with_python(|py| provider.bind(py).hasattr("left_over"))
    }

    /// The plan with this schema that the provider wants to run instead of one in which the host
    /// applies conditions to these rows.
    pub fn instead(
        &self,
        conditions: Vec<String>,
        schema: SchemaRef,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(provider) = &self.provider else {
            return Ok(None);
        };
        with_python(|py| {
            let no_rows = ArrowStream { schema, batches: vec![] };
            let node = provider.bind(py).call_method1("left_over", (conditions, no_rows))?;
            Self::mount(&node, provider).map(Some)
        })
    }

    /// Whether conditions mean something else in other scans: see `check_beside`.
    pub fn matches_texts(&self) -> Result<bool> {
        let Some(scan) = &self.scan else {
            return Ok(false);
        };
        with_python(|py| scan.bind(py).getattr("matches")?.is_truthy())
    }

    /// An error if a condition of this scan may be a copy of one of the other's, or the reverse, and
    /// would mean something else there.
    pub fn check_beside(&self, other: &Self) -> Result<()> {
        let (Some(scan), Some(other)) = (&self.scan, &other.scan) else {
            return Ok(());
        };
        with_python(|py| scan.bind(py).call_method1("check_beside", (other.bind(py),)).map(drop))
    }

    fn read_statistics(&self) -> Result<Statistics> {
        let schema = self.properties.eq_properties.schema();
        let mut statistics = Statistics::new_unknown(schema);
        let (rows, exact, bytes) = with_python(|py| {
            let found = self.node.bind(py).getattr("statistics")?;
            let rows: Option<usize> = found.getattr("num_rows")?.extract()?;
            let exact: bool = found.getattr("exact")?.extract()?;
            let bytes: Option<usize> = found.getattr("total_bytes")?.extract()?;
            Ok((rows, exact, bytes))
        })?;
        statistics.num_rows = match rows {
            Some(rows) if exact => Precision::Exact(rows),
            Some(rows) => Precision::Inexact(rows),
            None => Precision::Absent,
        };
        statistics.total_byte_size = bytes.map_or(Precision::Absent, Precision::Inexact);
        Ok(statistics)
    }
}

impl fmt::Debug for MountedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl DisplayAs for MountedExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label)
    }
}

impl ExecutionPlan for MountedExec {
    fn name(&self) -> &str {
        &self.label
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        self.children.iter().collect()
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
        let schema = Arc::clone(self.properties.eq_properties.schema());
        let batches = batches(Arc::clone(&self.node), partition, Arc::clone(&schema));
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, batches)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        with_python(|py| metrics_of(self.node.bind(py))).ok()
    }

    fn statistics_from_inputs(
        &self,
        _: &[Arc<Statistics>],
        args: &StatisticsArgs,
    ) -> Result<Arc<Statistics>> {
        let one_of_many =
            args.partition().is_some() && self.properties.partitioning.partition_count() > 1;
        if one_of_many {
            let schema = self.properties.eq_properties.schema();
            return Ok(Arc::new(Statistics::new_unknown(schema)));
        }
        if let Some(known) = self.statistics.get() {
            return Ok(Arc::clone(known));
        }
        let read = Arc::new(self.read_statistics()?);
        Ok(Arc::clone(self.statistics.get_or_init(|| read)))
    }
}
