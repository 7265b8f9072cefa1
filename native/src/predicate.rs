//! One filter of a query, as SQL text and as something that evaluates what DataFusion would.

use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{Column, DFSchema, DataFusionError, Result};
use datafusion_expr::Expr;
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};
use pyo3::prelude::*;

use crate::arrow_bridge::{ArrowArray, any_batch_from_python};
use crate::errors::python_error;
use crate::filter_text::sql_of;

/// `filter` without the table's name before its columns.
fn unqualified(filter: &Expr) -> Result<Expr> {
    let stripped = filter.clone().transform(|expr| match expr {
        Expr::Column(column) if column.relation.is_some() => {
            Ok(Transformed::yes(Expr::Column(Column::new_unqualified(column.name))))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(stripped.data)
}

/// One conjunct of a WHERE clause.
#[pyclass(frozen, module = "memwal_native")]
pub struct Predicate {
    filter: Expr,
    /// As SQL text; None where SQL has no words for it.
    #[pyo3(get)]
    sql: Option<String>,
    /// Names of the columns it reads, sorted.
    #[pyo3(get)]
    columns: Vec<String>,
    compiled: Mutex<Option<(SchemaRef, Arc<dyn PhysicalExpr>)>>,
}

impl Predicate {
    pub fn new(filter: &Expr) -> Result<Self> {
        let filter = unqualified(filter)?;
        let columns = filter.column_refs().into_iter().map(|column| column.name.clone());
        let mut columns: Vec<String> = columns.collect();
        columns.sort();
        Ok(Self { sql: sql_of(&filter), columns, filter, compiled: Mutex::new(None) })
    }

    /// The filter over batches of `schema`; batches of one source share theirs.
    fn compile(&self, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
        if let Ok(compiled) = self.compiled.lock()
            && let Some((known, expr)) = compiled.as_ref()
            && known == schema
        {
            return Ok(Arc::clone(expr));
        }
        let names = DFSchema::try_from(Arc::clone(schema))?;
        let (props, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
        let expr = create_physical_expr(&self.filter, &names, &props, &context)?;
        if let Ok(mut compiled) = self.compiled.lock() {
            *compiled = Some((Arc::clone(schema), Arc::clone(&expr)));
        }
        Ok(expr)
    }

    fn matches(&self, batch: &RecordBatch) -> Result<ArrayRef> {
        let found = self.compile(&batch.schema())?.evaluate(batch)?;
        let found = found.into_array(batch.num_rows())?;
        match found.data_type() {
            DataType::Boolean => Ok(found),
            DataType::Null => Ok(Arc::new(BooleanArray::new_null(batch.num_rows()))),
            other => Err(DataFusionError::Internal(format!("a filter of type {other}"))),
        }
    }
}

#[pymethods]
impl Predicate {
    /// One boolean a row of `batch`, a `pyarrow.RecordBatch` that has at least the columns the
    /// filter reads, in any order. Null where SQL says unknown.
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batch = any_batch_from_python(batch)?;
        let found = py.detach(|| self.matches(&batch)).map_err(python_error)?;
        py.import("pyarrow")?.call_method1("array", (ArrowArray(found),))
    }

    fn __repr__(&self) -> String {
        format!("Predicate({})", self.sql.as_deref().unwrap_or("?"))
    }
}
