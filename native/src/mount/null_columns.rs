//! Columns that the plan of an INSERT shows to be NULL in every row.
//!
//! INSERT with a list of columns has NULLs for all others: DataFusion puts a projection with these
//! literals on top of the query. A NULL in the SELECT itself ends up in the same projection, so the
//! two can't be told apart; those in VALUES stay below it.

use std::sync::Arc;

use arrow::array::RecordBatch;
use datafusion_common::Result;
use datafusion_common::tree_node::TreeNodeRecursion;
use datafusion_expr::ColumnarValue;
use datafusion_physical_plan::{ExecutionPlan, PhysicalExpr};

use crate::host::expressions::{is_cast, is_constant};
use crate::host::plan::{PROJECTION, WITH_SUBQUERIES};

/// The names of those columns in `input`, which is not optimized yet.
pub fn null_columns(input: &Arc<dyn ExecutionPlan>) -> Result<Vec<String>> {
    let children = input.children();
    let Some(child) = children.first() else {
        return Ok(vec![]);
    };
    match input.name() {
        WITH_SUBQUERIES => null_columns(child),
        PROJECTION => nulls_of(input.as_ref(), &RecordBatch::new_empty(child.schema())),
        _ => Ok(vec![]),
    }
}

fn nulls_of(projection: &dyn ExecutionPlan, no_rows: &RecordBatch) -> Result<Vec<String>> {
    let mut nulls = vec![];
    projection.apply_expressions(&mut |expression| {
        nulls.push(is_null(expression.as_ref(), no_rows));
        Ok(TreeNodeRecursion::Continue)
    })?;
    let schema = projection.schema();
    let names = schema.fields().iter().map(|field| field.name().clone());
    Ok(names.zip(nulls).filter_map(|(name, null)| null.then_some(name)).collect())
}

/// Whether an expression is the literal NULL, cast perhaps.
fn is_null(expression: &dyn PhysicalExpr, no_rows: &RecordBatch) -> bool {
    match expression.children()[..] {
        _ if is_constant(expression) => {
            let value = expression.evaluate(no_rows);
            matches!(value, Ok(ColumnarValue::Scalar(value)) if value.is_null())
        }
        [of] if is_cast(expression, of.as_ref()) => is_null(of.as_ref(), no_rows),
        _ => false,
    }
}
