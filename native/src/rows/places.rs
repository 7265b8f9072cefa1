//! Searching sorted numbers for many others.

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::python::buffers::{Numbers, bytes_of};

/// The places of all `keys` that equal one of `sought`, both ascending, as the bytes of int64.
#[pyfunction]
pub fn places_of<'py>(
    py: Python<'py>,
    keys: &Bound<'py, PyAny>,
    sought: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (keys, sought) = (Numbers::<i64>::new(keys)?, Numbers::<i64>::new(sought)?);
    let (keys, sought) = (keys.slice(), sought.slice());
    let places = py.detach(|| {
        let mut places = vec![];
        let (Some(&first), Some(&last)) = (keys.first(), keys.last()) else {
            return places;
        };
        let (low, width) = (first as f64, last as f64 - first as f64);
        for (at, &key) in sought.iter().enumerate() {
            if key < first || key > last || (at > 0 && sought[at - 1] == key) {
                continue;
            }
            // Most keys are spread evenly. A search by halves waits for memory ten times a key.
            let guess = (key as f64 - low) / width.max(1.0) * (keys.len() - 1) as f64;
            let from = around(keys, (guess as usize).min(keys.len() - 1), key);
            let equal = keys[from..].iter().take_while(|&&other| other == key).count();
            places.extend((from..from + equal).map(|place| place as i64));
        }
        places
    });
    Ok(bytes_of(py, &places))
}

/// The first place of a number that is not below `sought`. Quick if it is near the guess.
fn around(numbers: &[i64], guess: usize, sought: i64) -> usize {
    if numbers[guess] < sought {
        return place(numbers, guess, sought);
    }
    let (mut high, mut step) = (guess, 1);
    while step <= high && numbers[high - step] >= sought {
        high -= step;
        step *= 2;
    }
    let low = high.saturating_sub(step);
    low + numbers[low..high].partition_point(|&number| number < sought)
}

/// The first place, not before `from`, of a number that is not below `sought`. Quick if it is near.
pub fn place<T: Copy + PartialOrd>(numbers: &[T], from: usize, sought: T) -> usize {
    let (mut low, mut step) = (from, 1);
    while low + step < numbers.len() && numbers[low + step] < sought {
        low += step;
        step *= 2;
    }
    let high = numbers.len().min(low + step + 1);
    low + numbers[low.min(high)..high].partition_point(|&number| number < sought)
}
