//! Taking stale rows out of a batch.

use arrow::buffer::{BooleanBuffer, Buffer};
use pyo3::prelude::*;

use crate::python::buffers::{Numbers, NumbersMut, invalid};
use crate::rows::places::place;

/// Up to so many stale rows an address, walking along both is faster than searching.
const MERGED: usize = 16;

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

/// Which rows at `addresses` live that are not in `stale`, both ascending; None if all do.
pub fn alive(addresses: &[u64], stale: &[u64]) -> Option<BooleanBuffer> {
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
