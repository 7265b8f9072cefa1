//! Sort keys that are distances between a column and a literal vector.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, RecordBatch, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::ColumnarValue;
use datafusion_physical_plan::PhysicalExpr;

use crate::host::expressions::{column_of, is_constant, vectors_in};

/// Distance functions by what they are shown as, and what they call their result: a function of the
/// user's in Python under one of these names calls it otherwise, and is not called to find out.
const METRICS: [(&str, &str, Metric); 4] = [
    ("array_distance", "array_distance", Metric::L2),
    ("l2_distance", "l2_distance of memwal_sql", Metric::L2),
    ("cosine_distance", "cosine_distance", Metric::Cosine),
    ("inner_product", "inner_product", Metric::Dot),
];
/// Vectors by which a function is tried.
const TRIALS: usize = 3;

#[derive(Clone, Copy, PartialEq)]
pub enum Metric {
    L2,
    Cosine,
    Dot,
}

/// A sort key, or what it is computed from, by the columns of a node's input.
pub enum Key {
    Column(usize),
    Distance(Distance),
}

pub struct Distance {
    pub metric: Metric,
    pub column: usize,
    pub query: Vec<f64>,
    pub negated: bool,
}

impl Key {
    /// None for an expression that is neither a column nor a distance of one.
    pub fn of(key: &Arc<dyn PhysicalExpr>, input: &SchemaRef) -> Option<Self> {
        if let Some(column) = column_of(key.as_ref(), input) {
            return Some(Self::Column(column));
        }
        let (call, from) = match key.children()[..] {
            [of] if key.to_string() == format!("(- {of})") => (of, Some("0".to_owned())),
            [one, of]
                if is_constant(one.as_ref()) && key.to_string() == format!("{one} - {of}") =>
            {
                (of, Some(one.to_string()))
            }
            _ => (key, None),
        };
        let text = call.to_string();
        let (name, _) = text.split_once('(')?;
        let (_, result, metric) = METRICS.iter().find(|(known, ..)| *known == name)?;
        if call.return_field(input).ok()?.name() != result {
            return None;
        }
        // Taken from 1, small distances of other kinds than that of angles are lost in rounding.
        let exact = match from.as_deref() {
            None | Some("0") => true,
            Some("1") => *metric == Metric::Cosine,
            _ => false,
        };
        if !exact {
            return None;
        }
        let [one, other] = call.children()[..] else {
            return None;
        };
        let (column, vector) = match (vectors_in(one, input), vectors_in(other, input)) {
            (Some(column), None) => (column, other),
            (None, Some(column)) => (column, one),
            _ => return None,
        };
        let (query, negated) = (vector_of(vector.as_ref())?, from.is_some());
        let distance = Distance { metric: *metric, column, query, negated };
        distance.is_what(call, input).then_some(Self::Distance(distance))
    }

    /// The same by the columns of the input of a projection above whose columns it is.
    pub fn below(self, projected: &[Arc<dyn PhysicalExpr>], input: &SchemaRef) -> Option<Self> {
        match self {
            Self::Column(column) => Self::of(projected.get(column)?, input),
            Self::Distance(distance) => {
                let column = column_of(projected.get(distance.column)?.as_ref(), input)?;
                Some(Self::Distance(Distance { column, ..distance }))
            }
        }
    }
}

impl Distance {
    /// Whether the function computes this distance, by some vectors: another library's may have the
    /// name of one of DataFusion's.
    fn is_what(&self, call: &Arc<dyn PhysicalExpr>, input: &SchemaRef) -> bool {
        let DataType::FixedSizeList(item, size) = input.field(self.column).data_type() else {
            return false;
        };
        let size = *size as usize;
        // Numbers that even those of 16 bits hold exactly.
        let elements = (0..TRIALS * size).map(|place| f64::from((place * 7 % 11) as i32 - 5) / 4.0);
        let elements: Vec<f64> = elements.map(|element| element + 0.125).collect();
        let computed = trial(&elements, item, size, self.column, input)
            .and_then(|batch| call.evaluate(&batch)?.into_array(TRIALS));
        let Ok(computed) = computed else {
            return false;
        };
        let Some(computed) = computed.as_any().downcast_ref::<Float64Array>() else {
            return false;
        };
        size == self.query.len()
            && elements.chunks_exact(size).zip(computed).all(|(vector, computed)| {
                let (distance, scale) = self.metric.measure(vector, &self.query);
                computed.is_some_and(|computed| (computed - distance).abs() <= 1e-9 * scale)
            })
    }
}

/// Rows of an input whose only values are vectors in one column.
fn trial(
    elements: &[f64],
    item: &Arc<Field>,
    size: usize,
    column: usize,
    input: &SchemaRef,
) -> Result<RecordBatch> {
    let values = cast(&Float64Array::from(elements.to_vec()), item.data_type())?;
    let vectors = FixedSizeListArray::try_new(Arc::clone(item), size as i32, values, None)?;
    let columns = input.fields().iter().enumerate().map(|(place, field)| -> ArrayRef {
        if place == column {
            Arc::new(vectors.clone())
        } else {
            new_null_array(field.data_type(), TRIALS)
        }
    });
    let fields = input.fields().iter().map(|field| field.as_ref().clone().with_nullable(true));
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    Ok(RecordBatch::try_new(schema, columns.collect())?)
}

impl Metric {
    /// Lance's name of the metric.
    pub fn name(self) -> &'static str {
        match self {
            Self::L2 => "l2",
            Self::Cosine => "cosine",
            Self::Dot => "dot",
        }
    }

    /// The distance of two vectors, and what its rounding is in proportion to.
    fn measure(self, one: &[f64], other: &[f64]) -> (f64, f64) {
        let sum = |part: fn(f64, f64) -> f64| -> f64 {
            one.iter().zip(other).map(|(one, other)| part(*one, *other)).sum()
        };
        let length = |vector: &[f64]| vector.iter().map(|element| element * element).sum::<f64>();
        match self {
            Self::L2 => {
                let distance = sum(|one, other| (one - other) * (one - other)).sqrt();
                (distance, distance)
            }
            Self::Dot => (sum(|one, other| one * other), sum(|one, other| (one * other).abs())),
            Self::Cosine => {
                let lengths = length(one).sqrt() * length(other).sqrt();
                (1.0 - sum(|one, other| one * other) / lengths, 1.0)
            }
        }
    }
}

/// The finite numbers of a literal vector.
fn vector_of(literal: &dyn PhysicalExpr) -> Option<Vec<f64>> {
    if !is_constant(literal) {
        return None;
    }
    let schema = Arc::new(Schema::new(vec![Field::new("none", DataType::Null, true)]));
    let row = RecordBatch::try_new(schema, vec![new_null_array(&DataType::Null, 1)]).ok()?;
    // Fails for the value of a subquery, which is not known yet.
    let ColumnarValue::Scalar(value) = literal.evaluate(&row).ok()? else {
        return None;
    };
    let elements = match &value {
        ScalarValue::List(one) if one.is_valid(0) => one.value(0),
        ScalarValue::LargeList(one) if one.is_valid(0) => one.value(0),
        ScalarValue::FixedSizeList(one) if one.is_valid(0) => one.value(0),
        _ => return None,
    };
    let numbers = elements.as_any().downcast_ref::<Float64Array>()?;
    let finite = numbers.null_count() == 0 && numbers.values().iter().all(|one| one.is_finite());
    finite.then(|| numbers.values().to_vec())
}
