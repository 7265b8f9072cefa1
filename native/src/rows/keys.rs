//! Keys that are small numbers (codes), against tables with one byte a code.

use pyo3::prelude::*;

use crate::python::buffers::{Numbers, NumbersMut, invalid};

/// Set the bits of `mark` in the bytes of `table` at these places.
#[pyfunction]
pub fn mark(
    py: Python<'_>,
    places: &Bound<'_, PyAny>,
    table: &Bound<'_, PyAny>,
    mark: u8,
) -> PyResult<()> {
    let (places, mut table) = (Numbers::<i64>::new(places)?, NumbersMut::<u8>::new(table)?);
    let (places, table) = (places.slice(), table.slice());
    let marked = py.detach(|| {
        places.iter().try_for_each(|&place| {
            *table.get_mut(place as usize)? |= mark;
            Some(())
        })
    });
    marked.ok_or_else(|| invalid("a place is outside of the table"))
}

/// Write the rows whose value, less `first`, is a place in `table` that is not 0, and these places;
/// count them. Values may wrap around: they count as they are, signed or not.
#[pyfunction]
pub fn find_marked(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    first: i64,
    table: &Bound<'_, PyAny>,
    rows: &Bound<'_, PyAny>,
    places: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    let (values, table) = (Numbers::<i64>::new(values)?, Numbers::<u8>::new(table)?);
    let (mut rows, mut places) = (NumbersMut::<i32>::new(rows)?, NumbersMut::<i64>::new(places)?);
    let (values, table) = (values.slice(), table.slice());
    let (rows, places) = (rows.slice(), places.slice());
    if rows.len() != values.len() || places.len() != values.len() {
        return Err(invalid("every row must have a place"));
    }
    Ok(py.detach(|| {
        let mut count = 0;
        for (row, &value) in values.iter().enumerate() {
            let place = value.wrapping_sub(first);
            // Written whether it is found or not: a branch that nobody can foretell costs more.
            rows[count] = row as i32;
            places[count] = place;
            count += usize::from(table.get(place as usize).is_some_and(|&byte| byte != 0));
        }
        count
    }))
}

/// Write, ascending and to the end of `rows`, the rows that are `deleted` or whose code `seen` has or
/// a later row has too, and count them. All codes are in `seen` afterwards.
#[pyfunction]
pub fn superseded(
    py: Python<'_>,
    codes: &Bound<'_, PyAny>,
    deleted: &Bound<'_, PyAny>,
    seen: &Bound<'_, PyAny>,
    rows: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    let (codes, deleted) = (Numbers::<i64>::new(codes)?, Numbers::<u8>::new(deleted)?);
    let (mut seen, mut rows) = (NumbersMut::<u8>::new(seen)?, NumbersMut::<i32>::new(rows)?);
    let (codes, deleted) = (codes.slice(), deleted.slice());
    let (seen, rows) = (seen.slice(), rows.slice());
    if deleted.len() != codes.len() || rows.len() != codes.len() {
        return Err(invalid("the arrays must have the same length"));
    }
    let left = py.detach(|| {
        let mut left = rows.len();
        for (row, (&code, &gone)) in codes.iter().zip(deleted).enumerate().rev() {
            let before = std::mem::replace(seen.get_mut(code as usize)?, 1);
            if before | gone != 0 {
                left -= 1;
                rows[left] = row as i32;
            }
        }
        Some(left)
    });
    let left = left.ok_or_else(|| invalid("a code is outside of the table"))?;
    Ok(codes.len() - left)
}
