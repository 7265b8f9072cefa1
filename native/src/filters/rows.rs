//! Filters the rows of batches.

use std::sync::Arc;

use arrow::array::{Array, BooleanArray, RecordBatch, StructArray};
use arrow::buffer::BooleanBuffer;
use arrow::compute::FilterBuilder;
use datafusion_common::Result;
use datafusion_physical_plan::PhysicalExpr;
use pyo3::prelude::*;

use crate::filters::predicate::matches;
use crate::python::arrow_bridge::{ArrowArray, any_batch_from_python};
use crate::python::buffers::{Numbers, invalid};
use crate::python::errors::{guarded, python_error};

/// The mask of the rows for which all conditions are true; None if there are no conditions.
pub fn mask_of(
    conditions: &[Arc<dyn PhysicalExpr>],
    rows: &RecordBatch,
) -> Result<Option<BooleanBuffer>> {
    let mut mask: Option<BooleanBuffer> = None;
    for condition in conditions {
        let values = matches(condition.as_ref(), rows)?;
        let is_true = match values.nulls() {
            Some(validity) => values.values() & validity.inner(),
            None => values.values().clone(),
        };
        mask = Some(match mask {
            None => is_true,
            Some(mask) => &mask & &is_true,
        });
    }
    Ok(mask)
}

/// The first `columns` columns of the rows whose bit in `mask` is set; all rows without a mask.
pub fn filtered(
    rows: &RecordBatch,
    columns: usize,
    mask: Option<BooleanBuffer>,
) -> Result<RecordBatch> {
    let rows = match rows.num_columns() {
        all if all == columns => rows.clone(),
        _ => rows.project(&(0..columns).collect::<Vec<_>>())?,
    };
    let Some(mask) = mask else {
        return Ok(rows);
    };
    let count = mask.count_set_bits();
    if columns == 0 || count == rows.num_rows() {
        return Ok(rows.slice(0, count));
    }
    let filter = FilterBuilder::new(&BooleanArray::new(mask, None));
    let filter = if columns > 1 { filter.optimize() } else { filter };
    Ok(filter.build().filter_record_batch(&rows)?)
}

/// The rows of `batch`, a `pyarrow.RecordBatch`, whose flag is not 0.
#[pyfunction]
pub fn keep_rows(
    py: Python<'_>,
    batch: &Bound<'_, PyAny>,
    flags: &Bound<'_, PyAny>,
) -> PyResult<ArrowArray> {
    let (rows, flags) = (any_batch_from_python(batch)?, Numbers::<u8>::new(flags)?);
    let flags = flags.slice();
    if flags.len() != rows.num_rows() {
        return Err(invalid("every row must have a flag"));
    }
    let mask = || BooleanBuffer::collect_bool(flags.len(), |row| flags[row] != 0);
    let kept = py.detach(|| guarded(|| filtered(&rows, rows.num_columns(), Some(mask()))));
    Ok(ArrowArray(Arc::new(StructArray::from(kept.map_err(python_error)?))))
}
