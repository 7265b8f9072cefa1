//! Taking stale rows out of a batch.

use arrow::buffer::{BooleanBuffer, Buffer};
use pyo3::prelude::*;

use crate::python::buffers::{Numbers, NumbersMut, invalid};
use crate::rows::places::place;

/// Up to so many stale rows an address, walking along both is faster than searching.
const MERGED: usize = 16;

/// Which rows of a source live; None if all do.
#[pyclass(frozen, module = "memwal_native")]
pub struct LiveRows(pub Option<BooleanBuffer>);

#[pymethods]
impl LiveRows {
    /// The rows at `addresses` live that are not in `stale`; both are ascending.
    #[new]
    fn new(
        py: Python<'_>,
        addresses: &Bound<'_, PyAny>,
        stale: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let (addresses, stale) = (Numbers::<u64>::new(addresses)?, Numbers::<u64>::new(stale)?);
        let (addresses, stale) = (addresses.slice(), stale.slice());
        Ok(Self(py.detach(|| alive(addresses, stale))))
    }

    /// Without the first `rows`.
    fn after(&self, rows: usize) -> Self {
        let rest = |live: &BooleanBuffer| live.slice(rows, live.len().saturating_sub(rows));
        Self(self.0.as_ref().map(rest))
    }
}

/// Write a flag for every address, 0 for those in `stale`, which is sorted, else 1; count the ones.
/// If all rows are live, nothing may have been written.
#[pyfunction]
pub fn flag_live(
    py: Python<'_>,
    addresses: &Bound<'_, PyAny>,
    stale: &Bound<'_, PyAny>,
    flags: &Bound<'_, PyAny>,
) -> PyResult<usize> {
    let (addresses, stale) = (Numbers::<u64>::new(addresses)?, Numbers::<u64>::new(stale)?);
    let mut flags = NumbersMut::<u8>::new(flags)?;
    let (addresses, stale, flags) = (addresses.slice(), stale.slice(), flags.slice());
    if flags.len() != addresses.len() {
        return Err(invalid("every row must have a flag"));
    }
    Ok(py.detach(|| flag(addresses, stale, flags)))
}

/// Copy the values whose flag is 1 to the beginning of `kept`, which has room for them. A value has
/// as many bytes as there are in `values` for each flag.
#[pyfunction]
pub fn compress(
    py: Python<'_>,
    values: &Bound<'_, PyAny>,
    flags: &Bound<'_, PyAny>,
    kept: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let (values, flags) = (Numbers::<i8>::new(values)?, Numbers::<u8>::new(flags)?);
    let mut kept = NumbersMut::<i8>::new(kept)?;
    let (values, flags, kept) = (values.slice(), flags.slice(), kept.slice());
    let width = values.len() / flags.len().max(1);
    if values.len() != width * flags.len() {
        return Err(invalid("the values must have the same width"));
    }
    let fits = py.detach(|| match width {
        1 => copy::<1>(values, flags, kept),
        2 => copy::<2>(values, flags, kept),
        4 => copy::<4>(values, flags, kept),
        8 => copy::<8>(values, flags, kept),
        16 => copy::<16>(values, flags, kept),
        _ => copy_rows(values, width, flags, kept),
    });
    fits.ok_or_else(|| invalid("more values are kept than there is room for"))
}

fn alive(addresses: &[u64], stale: &[u64]) -> Option<BooleanBuffer> {
    let (&first, &last) = (addresses.first()?, addresses.last()?);
    let end = stale.partition_point(|&row| row <= last);
    let near = &stale[stale[..end].partition_point(|&row| row < first)..end];
    if near.is_empty() {
        return None;
    }
    let mut bits = vec![0xff_u8; addresses.len().div_ceil(8)];
    let mut clear = |at: usize| bits[at / 8] &= !(1 << (at % 8));
    if last - first == addresses.len() as u64 - 1 {
        near.iter().for_each(|&row| clear((row - first) as usize));
    } else {
        let mut from = 0;
        for &row in near {
            from = place(addresses, from, row);
            if addresses.get(from) == Some(&row) {
                clear(from);
            }
        }
    }
    Some(BooleanBuffer::new(Buffer::from_vec(bits), 0, addresses.len()))
}

fn flag(addresses: &[u64], stale: &[u64], flags: &mut [u8]) -> usize {
    let (Some(&first), Some(&last)) = (addresses.first(), addresses.last()) else {
        return 0;
    };
    // Without an early exit, which would keep the loop from being vectorised.
    let ascending = addresses.windows(2).fold(true, |so_far, pair| so_far & (pair[0] < pair[1]));
    let (low, high) = match ascending {
        true => (first, last),
        false => addresses.iter().fold((first, first), |(low, high), &a| (low.min(a), high.max(a))),
    };
    let end = stale.partition_point(|&one| one <= high);
    let near = &stale[stale[..end].partition_point(|&one| one < low)..end];
    if near.is_empty() {
        return addresses.len();
    }
    if ascending && high - low == addresses.len() as u64 - 1 {
        flags.fill(1);
        near.iter().for_each(|&one| flags[(one - low) as usize] = 0);
        return addresses.len() - near.len();
    }
    let mut count = 0;
    let mut left = near;
    for (flag, &address) in flags.iter_mut().zip(addresses) {
        let gone = match ascending && near.len() <= MERGED * addresses.len() {
            true => {
                let passed = left.iter().take_while(|&&one| one < address).count();
                left = &left[passed..];
                left.first() == Some(&address)
            }
            false => near.binary_search(&address).is_ok(),
        };
        *flag = u8::from(!gone);
        count += usize::from(!gone);
    }
    count
}

fn copy<const WIDTH: usize>(values: &[i8], flags: &[u8], kept: &mut [i8]) -> Option<()> {
    let (values, _) = values.as_chunks::<WIDTH>();
    let (kept, _) = kept.as_chunks_mut::<WIDTH>();
    let (mut rows, mut count) = (values.iter().zip(flags), 0);
    // Written whether it is kept or not: a branch that nobody can foretell costs more.
    while count < kept.len() {
        let Some((value, &flag)) = rows.next() else {
            return Some(());
        };
        kept[count] = *value;
        count += usize::from(flag != 0);
    }
    rows.all(|(_, &flag)| flag == 0).then_some(())
}

fn copy_rows(values: &[i8], width: usize, flags: &[u8], kept: &mut [i8]) -> Option<()> {
    let rows = values.chunks_exact(width.max(1)).zip(flags).filter(|&(_, &flag)| flag != 0);
    let mut room = kept.chunks_exact_mut(width.max(1));
    for (row, _) in rows {
        room.next()?.copy_from_slice(row);
    }
    Some(())
}
