//! One filter of a query, as a tree and as something that evaluates what DataFusion would.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock};

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Field, SchemaRef};
use datafusion_common::tree_node::{Transformed, TreeNode};
use datafusion_common::{DFSchema, DataFusionError, Result};
use datafusion_expr::execution_props::ExecutionProps;
use datafusion_expr::expr::ScalarFunction;
use datafusion_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion_expr::{Expr, ReturnFieldArgs};
use datafusion_functions::core::get_field;
use datafusion_physical_expr::{PhysicalExpr, create_physical_expr};
use pyo3::prelude::*;

use crate::filters::shallow::{Shallow, shallow};
use crate::filters::text::sql_of;
use crate::filters::tree::{other, tree};
use crate::python::arrow_bridge::{ArrowArray, any_batch_from_python};
use crate::python::errors::{guarded, python_error};

/// One conjunct of a WHERE clause.
#[pyclass(frozen, module = "memwal_native")]
pub struct Predicate {
    /// None if it nests too deep to be looked into.
    filter: Option<Expr>,
    sql: OnceLock<Option<String>>,
    /// Names of the columns it reads, sorted.
    #[pyo3(get)]
    pub columns: Vec<String>,
    compiled: Mutex<Option<(SchemaRef, Arc<dyn PhysicalExpr>)>>,
}

impl Predicate {
    pub fn new(filter: &Expr) -> Result<Self> {
        let Shallow { expr: filter, columns } = shallow(filter)?;
        Ok(Self { filter, columns, sql: OnceLock::new(), compiled: Mutex::new(None) })
    }

    /// None if it nests too deep.
    pub fn expr(&self) -> Option<&Expr> {
        self.filter.as_ref()
    }

    /// As plans show it: as SQL text without the parentheses around all of it.
    pub fn shown(&self) -> &str {
        let text = self.sql().unwrap_or("?");
        let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')'));
        let mut depth = 0;
        let mut is_closed = |letter| {
            depth += i32::from(letter == '(') - i32::from(letter == ')');
            depth < 0
        };
        inner.filter(|inner| !inner.chars().any(&mut is_closed)).unwrap_or(text)
    }

    /// The filter over batches of `schema`; batches of one source share theirs.
    pub fn compile(&self, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
        if let Ok(compiled) = self.compiled.lock()
            && let Some((known, expr)) = compiled.as_ref()
            && known == schema
        {
            return Ok(Arc::clone(expr));
        }
        let Some(filter) = &self.filter else {
            return Err(DataFusionError::Plan(format!(
                "a condition on {:?} is nested too deeply to be evaluated here: compute a part of it in \
                 a subquery",
                self.columns
            )));
        };
        let names = DFSchema::try_from(Arc::clone(schema))?;
        let (props, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
        let filter = filter.clone().transform(with_own_fields)?.data;
        let expr = create_physical_expr(&filter, &names, &props, &context)?;
        if let Ok(mut compiled) = self.compiled.lock() {
            *compiled = Some((Arc::clone(schema), Arc::clone(&expr)));
        }
        Ok(expr)
    }
}

/// A field of a struct by DataFusion's function here in place of the host's: what is called over the
/// FFI gets arrays for literals, and the name of a field must be a literal.
fn with_own_fields(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::ScalarFunction(call) if call.name() == "get_field" => {
            let own = ScalarFunction::new_udf(get_field(), call.args);
            Ok(Transformed::yes(Expr::ScalarFunction(own)))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// One boolean a row, null where SQL says unknown.
pub fn matches(filter: &dyn PhysicalExpr, rows: &RecordBatch) -> Result<BooleanArray> {
    let flags = filter.evaluate(rows)?.into_array(rows.num_rows())?;
    match flags.data_type() {
        DataType::Boolean => Ok(flags.as_boolean().clone()),
        DataType::Null => Ok(BooleanArray::new_null(rows.num_rows())),
        other => Err(DataFusionError::Internal(format!("a filter of type {other}"))),
    }
}

fn result_of(call: &ScalarFunction) -> Result<String> {
    let of_text = || Arc::new(Field::new("text", DataType::Utf8, true));
    let arg_fields: Vec<_> = call.args.iter().map(|_| of_text()).collect();
    let scalar_arguments = vec![None; call.args.len()];
    let arguments =
        ReturnFieldArgs { arg_fields: &arg_fields, scalar_arguments: &scalar_arguments };
    Ok(call.func.return_field_from_args(arguments)?.name().clone())
}

#[pymethods]
impl Predicate {
    /// As SQL text, to be shown; None where SQL has no words for it.
    #[getter]
    fn sql(&self) -> Option<&str> {
        let print = || guarded(|| Ok(self.filter.as_ref().and_then(sql_of))).ok().flatten();
        self.sql.get_or_init(print).as_deref()
    }

    /// The filter as a tree of the classes in `nodes`: see `tree::tree`.
    fn tree<'py>(&self, nodes: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match &self.filter {
            Some(filter) => tree(filter, nodes),
            None => other(nodes, &self.columns),
        }
    }

    /// Whether it calls a function by its name and what it calls its result: another one of the same
    /// name calls it otherwise.
    fn calls(&self, name: &str, result: &str) -> bool {
        let is_call = |expr: &Expr| match expr {
            Expr::ScalarFunction(call) if call.name() == name => {
                Ok(result_of(call).is_ok_and(|found| found == result))
            }
            _ => Ok(false),
        };
        let found = || self.filter.as_ref().map_or(Ok(false), |filter| filter.exists(is_call));
        guarded(found).unwrap_or(false)
    }

    /// One boolean a row of `batch`, a `pyarrow.RecordBatch` that has at least the columns the
    /// filter reads, in any order. Null where SQL says unknown.
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        batch: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let batch = any_batch_from_python(batch)?;
        let flags = || matches(self.compile(&batch.schema())?.as_ref(), &batch);
        let flags = py.detach(flags).map_err(python_error)?;
        py.import("pyarrow")?.call_method1("array", (ArrowArray(Arc::new(flags)),))
    }

    /// Equal are filters that say the same in the same way.
    fn __eq__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> bool {
        let same = |one: &Self, other: &Self| one.filter.is_some() && one.filter == other.filter;
        slf.is(other) || other.cast::<Self>().is_ok_and(|other| same(slf.get(), other.get()))
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.filter.hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        format!("Predicate({})", self.sql().unwrap_or("?"))
    }
}
