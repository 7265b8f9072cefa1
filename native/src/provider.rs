//! A Python table provider as a DataFusion table.

use std::fmt;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use datafusion_catalog::{Session, TableProvider};
use datafusion_common::{DataFusionError, Result};
use datafusion_expr::dml::InsertOp;
use datafusion_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion_ffi::proto::logical_extension_codec::FFI_LogicalExtensionCodec;
use datafusion_ffi::table_provider::FFI_TableProvider;
use datafusion_physical_plan::ExecutionPlan;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::arrow_bridge::schema_from_python;
use crate::errors::{guarded, python_error, with_python};
use crate::exec::MountedExec;
use crate::insert::UpsertExec;
use crate::null_columns::null_columns;
use crate::predicate::Predicate;
use crate::runtime::runtime;
use crate::sealed::sealed;
use crate::sealed_table::sealed_table;

/// What `SessionContext.register_table` takes: a Python provider with
///
/// * `schema`, an Arrow schema, read once,
/// * `supports_filters_pushdown(filters: list[Predicate]) -> list[str]`, each answer `"exact"`,
///   `"inexact"` or `"unsupported"`,
/// * `scan(projection: list[int] | None, filters: list[Predicate], limit: int | None) -> node`,
/// * `check_insert(nulls: list[str])`, which raises if an INSERT may not run whose plan shows that
///   these columns are NULL in every row; asked when it is planned,
/// * `insert(rows) -> int`, rows with `__arrow_c_stream__`,
/// * `left_over(conditions: list[str], no_rows) -> node`, if DataFusion may not apply conditions of
///   its own to the rows of a scan: the plan to run instead, whose rows look like `no_rows`, with
///   `__arrow_c_stream__`. Only sessions that have a `LeftoverRule` ask.
#[pyclass(frozen, module = "memwal_native")]
pub struct MountedTable {
    provider: Arc<Py<PyAny>>,
}

#[pymethods]
impl MountedTable {
    #[new]
    fn new(provider: Py<PyAny>) -> Self {
        Self { provider: Arc::new(provider) }
    }

    fn __datafusion_table_provider__<'py>(
        &self,
        py: Python<'py>,
        session: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = schema_from_python(&self.provider.bind(py).getattr("schema")?)?;
        let table = PythonTable { provider: Arc::clone(&self.provider), schema };
        let codec = session.call_method0("__datafusion_logical_extension_codec__")?;
        let codec = codec.cast::<PyCapsule>()?;
        let codec = codec
            .pointer_checked(Some(c"datafusion_logical_extension_codec"))?
            .cast::<FFI_LogicalExtensionCodec>();
        // SAFETY: a capsule of this name holds this type; its layout is stable within a major
        // version, which `memwal_sql` has checked.
        let codec = unsafe { codec.as_ref() }.clone();
        let runtime = runtime().map_err(python_error)?.clone();
        let table =
            FFI_TableProvider::new_with_ffi_codec(Arc::new(table), true, Some(runtime), codec);
        PyCapsule::new_with_value(py, sealed_table(table), c"datafusion_table_provider")
    }
}

pub struct PythonTable {
    provider: Arc<Py<PyAny>>,
    schema: SchemaRef,
}

impl PythonTable {
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
                let node = self.provider.bind(py).call_method1("scan", arguments)?;
                MountedExec::mount(&node, &self.provider)
            })?;
            sealed(plan)
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
            "supports_filters_pushdown answered {other:?}; it knows exact, inexact, unsupported"
        ))),
    }
}
