//! A Python table provider as a DataFusion table.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion_catalog::{Session, TableProvider};
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::dml::InsertOp;
use datafusion_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion_physical_plan::ExecutionPlan;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::filters::predicate::Predicate;
use crate::live::answers::LiveAccess;
use crate::live::conditions::{answer, is_plain};
use crate::live::exec::LiveExec;
use crate::live::image::ScanRequest;
use crate::mount::exec::MountedExec;
use crate::mount::ffi_plan::lean_plan;
use crate::mount::held::Held;
use crate::mount::insert::UpsertExec;
use crate::mount::null_columns::null_columns;
use crate::python::errors::{guarded, with_python};

/// The table behind a `MountedTable`.
pub struct PythonTable {
    pub provider: Arc<Held>,
    pub schema: SchemaRef,
    pub live: Option<LiveAccess>,
}

impl PythonTable {
    /// The plan of a scan of live rows, if they are those of now and have the columns. It applies all
    /// conditions: those that were offered to the provider may be applied nowhere else. The provider
    /// is asked if they are not plain: it knows which ones it has left to DataFusion.
    pub fn live_plan(
        &self,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Option<Arc<dyn ExecutionPlan>> {
        let live = self.live.as_ref().filter(|_| filters.iter().all(is_plain))?;
        let (rows, regions) = live.rows(&self.schema)?;
        let conditions: Vec<_> = filters.iter().map(Predicate::new).collect::<Result<_>>().ok()?;
        let conditions: Vec<_> = conditions.iter().collect();
        let all: Vec<_> = (0..self.schema.fields().len()).collect();
        let columns = projection.unwrap_or(&all);
        let request = ScanRequest { columns, keys: None, conditions: &conditions, limit, regions };
        let scan = rows.scan(None, request).ok()??;
        live.note_answer();
        Some(Arc::new(LiveExec::new(Arc::new(scan))))
    }

    /// The answers of live rows to filters, if they are likely to answer the scan.
    pub fn live_answers(&self, filters: &[Expr]) -> Option<Vec<TableProviderFilterPushDown>> {
        let rows = self.live.as_ref()?.likely(&self.schema)?;
        Some(filters.iter().map(|filter| answer(filter, rows.key())).collect())
    }

    /// The plan of a scan.
    pub fn plan(
        &self,
        projection: Option<Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        guarded(|| {
            let predicates = filters.iter().map(Predicate::new).collect::<Result<Vec<_>>>()?;
            let plan = with_python(|py| {
                let arguments = (projection, predicates, limit);
                let scan = self.provider.bind(py).call_method1("scan", arguments)?;
                MountedExec::mount(&scan, &self.provider)
            })?;
            lean_plan(plan)
        })
    }
}

impl fmt::Debug for PythonTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PythonTable")
    }
}

#[async_trait]
impl TableProvider for PythonTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        if filters.is_empty() {
            return Ok(vec![]);
        }
        let predicates = guarded(|| filters.iter().map(|filter| Predicate::new(filter)).collect());
        let predicates: Vec<_> = predicates?;
        with_python(|py| {
            let answers =
                self.provider.bind(py).call_method1("supports_filters_pushdown", (predicates,))?;
            let answers: Vec<String> = answers.extract()?;
            answers.iter().map(|answer| pushdown(answer)).collect()
        })
    }

    async fn scan(
        &self,
        _: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        self.plan(projection.cloned(), filters, limit)
    }

    async fn insert_into(
        &self,
        session: &dyn Session,
        input: Arc<dyn ExecutionPlan>,
        operation: InsertOp,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match operation {
            InsertOp::Append | InsertOp::Replace => {
                let nulls = guarded(|| null_columns(&input))?;
                with_python(|py| {
                    self.provider.bind(py).call_method1("check_insert", (nulls,)).map(drop)
                })?;
                let provider = Arc::clone(&self.provider);
                Ok(Arc::new(UpsertExec::new(provider, input, session)?))
            }
            InsertOp::Overwrite => Err(DataFusionError::NotImplemented(
                "INSERT OVERWRITE would drop the rows of the table; INSERT INTO upserts by \
                 primary key"
                    .to_owned(),
            )),
        }
    }
}

fn pushdown(answer: &str) -> PyResult<TableProviderFilterPushDown> {
    match answer {
        "exact" => Ok(TableProviderFilterPushDown::Exact),
        "inexact" => Ok(TableProviderFilterPushDown::Inexact),
        "unsupported" => Ok(TableProviderFilterPushDown::Unsupported),
        other => Err(PyValueError::new_err(format!(
            "supports_filters_pushdown returned {other:?}, which is not exact, inexact or unsupported"
        ))),
    }
}
