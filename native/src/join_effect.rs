//! What a join of the host does to the rows of one side.
//!
//! The kind of a join can't be seen from here, but what it expects can. For an estimate, inner and
//! outer joins need to know how many rows both sides have; semi-, anti- and mark-joins only that of
//! the side that they yield. So the join is asked what it would make of one row on one side and an
//! unknown number on the other.

use std::sync::Arc;

use datafusion_common::Result;
use datafusion_ffi::df_result;
use datafusion_ffi::execution_plan::{FFI_ExecutionPlan, ForeignExecutionPlan};
use datafusion_physical_plan::placeholder_row::PlaceholderRowExec;
use datafusion_physical_plan::work_table::WorkTableExec;
use datafusion_physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};

use crate::leftovers::schema_of;

pub enum Effect {
    /// Some rows are kept as they are, the others left out: a semi- or anti-join.
    Picks,
    /// Every row is kept and gets a mark, for a filter above: `IN (SELECT ...) OR ...`.
    Marks,
    /// The rows become others: an inner or outer join, or the other side of those above.
    Joins,
}

/// What `join` does to the rows of the child at `place`.
pub fn effect(join: &FFI_ExecutionPlan, place: usize) -> Result<Effect> {
    // SAFETY: the functions that the plan was made with.
    let children = unsafe { (join.children)(join) };
    let stand_ins = children.iter().enumerate().map(|(at, child)| {
        let schema = schema_of(child)?;
        let stand_in: Arc<dyn ExecutionPlan> = if at == place {
            Arc::new(PlaceholderRowExec::new(schema))
        } else {
            Arc::new(WorkTableExec::new(String::new(), schema, None)?)
        };
        Ok(FFI_ExecutionPlan::new(stand_in, None))
    });
    let stand_ins = stand_ins.collect::<Result<Vec<_>>>()?.into_iter().collect();
    // SAFETY: as above.
    let asked = df_result!(unsafe { (join.with_new_children)(join, stand_ins) })?;
    let asked = ForeignExecutionPlan::try_from(asked)?;
    let expected = StatisticsContext::new().compute(&asked, &StatisticsArgs::new())?;
    // Below LIMIT 1 any join expects one row, but only of a row that it keeps are the columns known.
    let one_row = expected.num_rows.get_value() == Some(&1);
    let mut columns = expected.column_statistics.iter();
    Ok(match one_row {
        true if columns.all(|column| column.null_count.get_value().is_some()) => Effect::Picks,
        true => Effect::Marks,
        false => Effect::Joins,
    })
}
