//! What conditions of a query say about keys.

use arrow::array::{ArrayRef, make_array};
use arrow::datatypes::{DataType, Field};
use datafusion_common::ScalarValue;
use datafusion_expr::expr::InList;
use datafusion_expr::{BinaryExpr, Expr, Like, Operator, TableProviderFilterPushDown};

use crate::filters::shallow::chain;
use crate::live::rows::{Range, Rows};
use crate::rows::encoded::Keys;

/// The only keys that rows which meet a condition can have, if it is `key = value`, or names several
/// values by OR or IN: then all rows with such a key meet it. None for other conditions.
pub fn keys_of(condition: &Expr, key: &Field) -> Option<Keys> {
    let mut values = vec![];
    for part in chain(condition, Operator::Or) {
        match part {
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) => {
                values.push(literal_of(left, right, key)?);
            }
            Expr::InList(InList { expr, list, negated: false }) if is_key(expr, key) => {
                values.extend(list.iter().map(literal).collect::<Option<Vec<_>>>()?);
            }
            _ => return None,
        }
    }
    // To be equal to NULL is not true of any key.
    values.retain(|value| !value.is_null());
    let is_keys = |value: &&ScalarValue| value.data_type() == *key.data_type();
    if values.is_empty() || !values.iter().all(is_keys) {
        return None;
    }
    Keys::of(plain(ScalarValue::iter_to_array(values.into_iter().cloned()).ok()?))
}

/// The answer of live rows to a condition. It is exact only where Python's provider says so, too, as
/// that may answer the scan after all; DataFusion applies all others, and is as quick.
pub fn answer(condition: &Expr, key: Option<&Field>) -> TableProviderFilterPushDown {
    let values = |key| keys_of(condition, key).or_else(|| Some(bound_of(condition, key)?.1));
    match key.and_then(|key| Some((key, values(key)?))) {
        None => TableProviderFilterPushDown::Unsupported,
        Some((key, values)) if lance_reads(key, &values) => TableProviderFilterPushDown::Exact,
        Some(_) => TableProviderFilterPushDown::Inexact,
    }
}

/// Whether Python's provider, too, applies comparisons of a key with these values: it has to write
/// them as Lance reads them (`planner/predicates/lance_filter`).
fn lance_reads(key: &Field, values: &Keys) -> bool {
    let is_least = |value: &u64| *value == i64::MIN as u64 && *key.data_type() == DataType::Int64;
    let is_integer = key.data_type().is_integer() && !key.name().contains(['.', '`']);
    is_integer && matches!(values, Keys::Words(values, _) if !values.iter().any(is_least))
}

/// The operator and the value of a condition `key <op> value` that leaves keys of a range.
fn bound_of(condition: &Expr, key: &Field) -> Option<(Operator, Keys)> {
    let Expr::BinaryExpr(BinaryExpr { left, op, right }) = condition else {
        return None;
    };
    let value = literal_of(left, right, key).filter(|_| BOUNDS.contains(op))?;
    Some((*op, Keys::of(plain(value.to_array().ok()?))?))
}

const BOUNDS: [Operator; 4] = [Operator::Gt, Operator::GtEq, Operator::Lt, Operator::LtEq];

/// The range of the keys of rows that meet a condition `key <op> value`.
pub fn range_of(condition: &Expr, key: &Field, rows: &Rows) -> Option<Range> {
    let (op, value) = bound_of(condition, key)?;
    let value = rows.ordered(value.at(0));
    Some(match op {
        Operator::Gt | Operator::GtEq => Range { least: value, ..Range::ALL },
        _ => Range { greatest: value, ..Range::ALL },
    })
}

/// Whether a condition compares columns with values, and does no more: it can't fail for some rows that
/// another condition would leave out, and is what Python's provider promises to apply at most.
pub fn is_plain(condition: &Expr) -> bool {
    let mut parts = vec![condition];
    while let Some(part) = parts.pop() {
        match part {
            Expr::Column(_) | Expr::Literal(..) => {}
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if PLAIN.contains(op) => {
                parts.extend([&**left, right]);
            }
            Expr::Not(part) | Expr::IsNull(part) | Expr::IsNotNull(part) => parts.push(part),
            Expr::InList(InList { expr, list, .. }) => {
                parts.push(expr);
                parts.extend(list);
            }
            Expr::Like(Like { expr, pattern, .. }) => parts.extend([&**expr, pattern]),
            _ => return false,
        }
    }
    true
}

const PLAIN: [Operator; 10] = [
    Operator::And,
    Operator::Or,
    Operator::Eq,
    Operator::NotEq,
    Operator::Lt,
    Operator::LtEq,
    Operator::Gt,
    Operator::GtEq,
    Operator::IsDistinctFrom,
    Operator::IsNotDistinctFrom,
];

fn is_key(expr: &Expr, key: &Field) -> bool {
    matches!(expr, Expr::Column(column) if column.name == *key.name())
}

/// The value of the key's type that the key is compared with.
fn literal_of<'a>(left: &Expr, right: &'a Expr, key: &Field) -> Option<&'a ScalarValue> {
    let value = literal(right).filter(|_| is_key(left, key))?;
    (!value.is_null() && value.data_type() == *key.data_type()).then_some(value)
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    if let Expr::Literal(value, _) = expr { Some(value) } else { None }
}

/// As `plain` in `exec_nodes/keys`: times are integers, decimals their bytes.
fn plain(keys: ArrayRef) -> ArrayRef {
    let kind = match keys.data_type() {
        DataType::Date32 | DataType::Time32(_) => DataType::Int32,
        DataType::Date64 | DataType::Time64(_) | DataType::Timestamp(..) => DataType::Int64,
        DataType::Decimal128(..) => DataType::FixedSizeBinary(16),
        DataType::Decimal256(..) => DataType::FixedSizeBinary(32),
        _ => return keys,
    };
    keys.to_data().into_builder().data_type(kind).build().map_or(keys, make_array)
}
