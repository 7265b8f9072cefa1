//! Murmur3 of 32 bits with seed 0, as region values are made of it: equal values of promoted types
//! have equal hashes.

use std::hash::Hasher as _;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray, Int32Array};
use arrow::datatypes::*;
use hash32::{Hasher as _, Murmur3Hasher};
use pyo3::prelude::*;

use crate::hashing::{Encode, columns_of, unknown};
use crate::python::arrow_bridge::ArrowArray;

const MILLISECONDS_A_DAY: i64 = 86_400_000;

/// The hash of every row, as int32, over its values one after the other: NULLs add nothing, and a
/// row of NULLs only is NULL.
#[pyfunction]
pub fn murmur3(py: Python<'_>, columns: Vec<Bound<'_, PyAny>>) -> PyResult<ArrowArray> {
    let columns = columns_of(&columns)?;
    let hashes = py.detach(|| hashes_of(&columns))?;
    Ok(ArrowArray(Arc::new(hashes)))
}

/// The hash of some bytes.
#[pyfunction]
pub fn murmur3_bytes(data: &[u8]) -> i32 {
    let mut hasher = Murmur3Hasher::default();
    hasher.write(data);
    hasher.finish32() as i32
}

fn hashes_of(columns: &[ArrayRef]) -> PyResult<Int32Array> {
    let encoders = columns
        .iter()
        .map(|column| Ok((column.logical_nulls(), encoder(column).ok_or_else(|| unknown(column))?)))
        .collect::<PyResult<Vec<_>>>()?;
    let mut bytes = Vec::new();
    let hash = |row| {
        let mut known = false;
        bytes.clear();
        for (nulls, encode) in &encoders {
            if nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                encode(row, &mut bytes);
                known = true;
            }
        }
        known.then(|| murmur3_bytes(&bytes))
    };
    Ok((0..columns[0].len()).map(hash).collect())
}

/// None if there is no hash of such a column.
fn encoder(column: &ArrayRef) -> Option<Encode<'_>> {
    Some(match column.data_type() {
        DataType::Null => Box::new(|_, _| ()),
        DataType::Boolean => {
            let values = column.as_boolean();
            Box::new(|row, to| to.extend_from_slice(&i64::from(values.value(row)).to_le_bytes()))
        }
        DataType::Int8 => numbers::<Int8Type>(column, i64::from),
        DataType::Int16 => numbers::<Int16Type>(column, i64::from),
        DataType::Int32 => numbers::<Int32Type>(column, i64::from),
        DataType::Int64 => numbers::<Int64Type>(column, |value| value),
        DataType::UInt8 => numbers::<UInt8Type>(column, i64::from),
        DataType::UInt16 => numbers::<UInt16Type>(column, i64::from),
        DataType::UInt32 => numbers::<UInt32Type>(column, i64::from),
        DataType::UInt64 => numbers::<UInt64Type>(column, |value| value as i64),
        DataType::Date32 => numbers::<Date32Type>(column, i64::from),
        DataType::Date64 => {
            numbers::<Date64Type>(column, |value| value.div_euclid(MILLISECONDS_A_DAY))
        }
        DataType::Time32(TimeUnit::Second) => numbers::<Time32SecondType>(column, seconds),
        DataType::Time32(_) => numbers::<Time32MillisecondType>(column, milliseconds),
        DataType::Time64(TimeUnit::Nanosecond) => {
            numbers::<Time64NanosecondType>(column, nanoseconds)
        }
        DataType::Time64(_) => numbers::<Time64MicrosecondType>(column, |value| value),
        DataType::Timestamp(unit, _) => match unit {
            TimeUnit::Second => numbers::<TimestampSecondType>(column, seconds),
            TimeUnit::Millisecond => numbers::<TimestampMillisecondType>(column, milliseconds),
            TimeUnit::Microsecond => numbers::<TimestampMicrosecondType>(column, |value| value),
            TimeUnit::Nanosecond => numbers::<TimestampNanosecondType>(column, nanoseconds),
        },
        DataType::Decimal32(_, scale) => {
            decimals::<Decimal32Type>(column, *scale, |value| i256::from_i128(value.into()))
        }
        DataType::Decimal64(_, scale) => {
            decimals::<Decimal64Type>(column, *scale, |value| i256::from_i128(value.into()))
        }
        DataType::Decimal128(_, scale) => {
            decimals::<Decimal128Type>(column, *scale, i256::from_i128)
        }
        DataType::Decimal256(_, scale) => decimals::<Decimal256Type>(column, *scale, |value| value),
        DataType::Utf8 => bytes(|row| column.as_string::<i32>().value(row).as_bytes()),
        DataType::LargeUtf8 => bytes(|row| column.as_string::<i64>().value(row).as_bytes()),
        DataType::Binary => bytes(|row| column.as_binary::<i32>().value(row)),
        DataType::LargeBinary => bytes(|row| column.as_binary::<i64>().value(row)),
        DataType::FixedSizeBinary(_) => bytes(|row| column.as_fixed_size_binary().value(row)),
        _ => return None,
    })
}

fn bytes<'a>(value: impl Fn(usize) -> &'a [u8] + 'a) -> Encode<'a> {
    Box::new(move |row, to| to.extend_from_slice(value(row)))
}

fn numbers<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    number: impl Fn(T::Native) -> i64 + 'static,
) -> Encode<'_> {
    let values = column.as_primitive::<T>().values();
    Box::new(move |row, to| to.extend_from_slice(&number(values[row]).to_le_bytes()))
}

/// In microseconds, as the next two.
fn seconds(value: impl Into<i64>) -> i64 {
    value.into().wrapping_mul(1_000_000)
}

fn milliseconds(value: impl Into<i64>) -> i64 {
    value.into().wrapping_mul(1_000)
}

fn nanoseconds(value: i64) -> i64 {
    value.div_euclid(1_000)
}

fn decimals<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    scale: i8,
    unscaled: impl Fn(T::Native) -> i256 + 'static,
) -> Encode<'_> {
    let values = column.as_primitive::<T>().values();
    Box::new(move |row, to| encode_decimal(unscaled(values[row]), scale, to))
}

/// A whole number of 64 bits like that integer, any other by its digits without trailing zeros.
fn encode_decimal(unscaled: i256, scale: i8, to: &mut Vec<u8>) {
    const TEN: i256 = i256::from_i128(10);
    let narrow = unscaled.to_i128().and_then(|value| i64::try_from(value).ok());
    if let (Some(value), 0..=18) = (narrow, scale) {
        return to.extend_from_slice(&without_zeros(value, scale).to_le_bytes());
    }
    let shift = TEN.checked_pow(scale.unsigned_abs().into());
    let whole = if unscaled == i256::ZERO {
        Some(unscaled)
    } else if scale > 0 {
        shift.filter(|shift| unscaled % *shift == i256::ZERO).map(|shift| unscaled / shift)
    } else {
        shift.and_then(|shift| unscaled.checked_mul(shift))
    };
    let known = whole.and_then(i256::to_i128);
    if let Some(number) = known.filter(|number| (i64::MIN.into()..1 << 64).contains(number)) {
        return to.extend_from_slice(&(number as u64).to_le_bytes());
    }
    let mut digits = unscaled;
    while digits % TEN == i256::ZERO {
        digits /= TEN;
    }
    match digits.to_i128().and_then(|digits| i64::try_from(digits).ok()) {
        Some(digits) => to.extend_from_slice(&digits.to_le_bytes()),
        None => to.extend_from_slice(&digits.to_le_bytes()),
    }
}

/// The whole number that `unscaled` stands for, or its digits: where numbers of 64 bits suffice.
fn without_zeros(unscaled: i64, scale: i8) -> i64 {
    let shift = 10_i64.pow(scale.unsigned_abs().into());
    if unscaled % shift == 0 {
        return unscaled / shift;
    }
    let mut digits = unscaled;
    while digits % 10 == 0 {
        digits /= 10;
    }
    digits
}
