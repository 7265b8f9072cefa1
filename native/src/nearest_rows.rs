//! `ORDER BY` a distance `LIMIT k` above a scan, where the table may yield just the rows that can be
//! among the first `k`.
//!
//! The host's sort, limit and projections stay in the plan, and whatever they say of ties, further
//! keys and offsets. Only the scan below them is replaced, where its rows get there as they are.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, FixedSizeListArray, Float64Array, RecordBatch, new_null_array,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion_common::{Result, ScalarValue};
use datafusion_expr::ColumnarValue;
use datafusion_ffi::execution_plan::FFI_ExecutionPlan;
use datafusion_ffi::{df_result, get_library_marker_id};
use datafusion_physical_plan::work_table::WorkTableExec;
use datafusion_physical_plan::{
    ExecutionPlan, PhysicalExpr, PlanProperties, StatisticsArgs, StatisticsContext,
};

use crate::exec::MountedExec;
use crate::ffi_plan::make_lean;
use crate::null_columns::{is_cast, is_constant};

const TOP_K: &str = "SortExec(TopK)";
const PROJECTION: &str = "ProjectionExec";
/// Nodes that yield all of their child's rows as they are. Not those that bring partitions or batches
/// together: they may stop after some rows, which can't be seen.
const PASSING: [&str; 3] = ["BufferExec", "CooperativeExec", "RepartitionExec"];
/// Distance functions by what they are shown as.
const METRICS: [(&str, Metric); 4] = [
    ("array_distance", Metric::L2),
    ("l2_distance", Metric::L2),
    ("cosine_distance", Metric::Cosine),
    ("inner_product", Metric::Dot),
];
/// Vectors by which a function is tried.
const TRIALS: usize = 3;

#[derive(Clone, Copy, PartialEq)]
enum Metric {
    L2,
    Cosine,
    Dot,
}

/// What a table is asked for: the rows that may be among the first `k` by a distance of one of its
/// columns to a vector. The greatest product is the nearest, else the least distance.
pub struct Nearest {
    pub column: String,
    pub metric: &'static str,
    pub query: Vec<f64>,
    pub k: usize,
    /// Whether rows without a distance come first.
    pub nulls_first: bool,
}

/// The plan with scans replaced; None where there is nothing to replace.
pub fn with_nearest_rows(plan: &FFI_ExecutionPlan) -> Result<Option<FFI_ExecutionPlan>> {
    if (plan.library_marker_id)() == get_library_marker_id() {
        return Ok(None);
    }
    if name_of(plan) == TOP_K
        && let Some(sort) = over_nearest_rows(plan)?
    {
        return Ok(Some(sort));
    }
    let (mut children, mut found) = (vec![], false);
    for child in children_of(plan) {
        let other = with_nearest_rows(&child)?;
        found |= other.is_some();
        children.push(other.unwrap_or(child));
    }
    if found { over(plan, children).map(Some) } else { Ok(None) }
}

/// A sort for the first few, over the nearest rows in place of a scan.
fn over_nearest_rows(sort: &FFI_ExecutionPlan) -> Result<Option<FFI_ExecutionPlan>> {
    let Some((path, scan, distance)) = scan_below(sort)? else {
        return Ok(None);
    };
    let Some(mounted) = scan.downcast_ref::<MountedExec>() else {
        return Ok(None);
    };
    let properties = PlanProperties::try_from(
        // SAFETY: the function that the plan was made with, here and below.
        unsafe { (sort.properties)(sort) },
    )?;
    let Some(first) = properties.output_ordering().map(|ordering| ordering.first()) else {
        return Ok(None);
    };
    let is_key = expressions(sort)?.first().is_some_and(|key| shown(key) == shown(&first.expr));
    let least_first = first.options.descending == distance.negated;
    let Some(k) = fetch_of(sort)? else {
        return Ok(None);
    };
    if !is_key || least_first != (distance.metric != Metric::Dot) {
        return Ok(None);
    }
    let asked = Nearest {
        column: scan.schema().field(distance.column).name().clone(),
        metric: distance.metric.name(),
        query: distance.query,
        k,
        nulls_first: first.options.nulls_first,
    };
    let Some(nearest) = mounted.nearest(&asked)? else {
        return Ok(None);
    };
    let mut plan = make_lean(nearest);
    for node in path.iter().rev() {
        plan = over(node, vec![plan])?;
    }
    over(sort, vec![plan]).map(Some)
}

/// What stands between a sort and the scan that its first key is a distance of, that scan, and the
/// distance by the scan's columns.
#[allow(clippy::type_complexity)]
fn scan_below(
    sort: &FFI_ExecutionPlan,
) -> Result<Option<(Vec<FFI_ExecutionPlan>, Arc<dyn ExecutionPlan>, Distance)>> {
    let (mut path, mut node) = (vec![], only_child(sort));
    let mut key = match (expressions(sort)?.first(), &node) {
        (Some(key), Some(child)) => Key::of(key, &schema_of(child)?),
        _ => None,
    };
    while let (Some(known), Some(plan)) = (key.take(), node.take()) {
        if (plan.library_marker_id)() == get_library_marker_id() {
            let Key::Distance(distance) = known else {
                return Ok(None);
            };
            return Ok(Some((path, <Arc<dyn ExecutionPlan>>::try_from(&plan)?, distance)));
        }
        let name = name_of(&plan);
        node = only_child(&plan);
        if name == PROJECTION {
            if let Some(child) = &node {
                key = known.below(&expressions(&plan)?, &schema_of(child)?);
            }
        } else if PASSING.contains(&name.as_str()) {
            key = Some(known);
        }
        path.push(plan);
    }
    Ok(None)
}

/// How many rows a sort keeps; None if it keeps all. A foreign plan does not show its `fetch`, but
/// over an input of unknown length the sort expects as many rows.
fn fetch_of(sort: &FFI_ExecutionPlan) -> Result<Option<usize>> {
    let Some(child) = only_child(sort) else {
        return Ok(None);
    };
    let unknown = WorkTableExec::new("unknown".to_owned(), schema_of(&child)?, None)?;
    let unknown = FFI_ExecutionPlan::new(Arc::new(unknown), None);
    let sort = <Arc<dyn ExecutionPlan>>::try_from(&over(sort, vec![unknown])?)?;
    let expected = StatisticsContext::new().compute(sort.as_ref(), &StatisticsArgs::new())?;
    Ok(expected.num_rows.get_value().copied())
}

/// A sort key, or what it is computed from, by the columns of a node's input.
enum Key {
    Column(usize),
    Distance(Distance),
}

struct Distance {
    metric: Metric,
    column: usize,
    query: Vec<f64>,
    negated: bool,
}

impl Key {
    /// None for what is neither a column nor a distance of one.
    fn of(key: &Arc<dyn PhysicalExpr>, input: &SchemaRef) -> Option<Self> {
        if let Some(column) = column_of(key, input) {
            return Some(Self::Column(column));
        }
        let (call, from) = match key.children()[..] {
            [of] if key.to_string() == format!("(- {of})") => (of, Some("0".to_owned())),
            [one, of] if is_literal(one) && key.to_string() == format!("{one} - {of}") => {
                (of, Some(one.to_string()))
            }
            _ => (key, None),
        };
        let text = call.to_string();
        let (name, _) = text.split_once('(')?;
        let (_, metric) = METRICS.iter().find(|(known, _)| *known == name)?;
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
        let (column, vector) = match (column_in(one, input), column_in(other, input)) {
            (Some(column), None) => (column, other),
            (None, Some(column)) => (column, one),
            _ => return None,
        };
        let (query, negated) = (vector_of(vector)?, from.is_some());
        let distance = Distance { metric: *metric, column, query, negated };
        distance.is_what(call, input).then_some(Self::Distance(distance))
    }

    /// The same by the columns of the input of a projection above whose columns it is.
    fn below(self, projected: &[Arc<dyn PhysicalExpr>], input: &SchemaRef) -> Option<Self> {
        match self {
            Self::Column(column) => Self::of(projected.get(column)?, input),
            Self::Distance(distance) => {
                let column = column_of(projected.get(distance.column)?, input)?;
                Some(Self::Distance(Distance { column, ..distance }))
            }
        }
    }
}

impl Distance {
    /// Whether a function of the session computes this distance, by some vectors: it may have the
    /// name of one of DataFusion's and be another.
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
    /// As Lance calls it.
    fn name(self) -> &'static str {
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

fn shown(expression: &Arc<dyn PhysicalExpr>) -> String {
    expression.to_string()
}

/// Whether an expression is a literal, or a subquery of one value.
fn is_literal(expression: &Arc<dyn PhysicalExpr>) -> bool {
    expression.children().is_empty() && is_constant(expression.as_ref())
}

/// The place of a column, which is shown as `name@place`.
fn column_of(expression: &Arc<dyn PhysicalExpr>, input: &SchemaRef) -> Option<usize> {
    if !expression.children().is_empty() || is_literal(expression) {
        return None;
    }
    let text = expression.to_string();
    let (name, place) = text.rsplit_once('@')?;
    let place: usize = place.parse().ok()?;
    (input.fields().get(place)?.name() == name).then_some(place)
}

/// The place of a column that may be cast.
fn column_in(expression: &Arc<dyn PhysicalExpr>, input: &SchemaRef) -> Option<usize> {
    match expression.children()[..] {
        [of] if is_cast(expression.as_ref(), of.as_ref()) => column_in(of, input),
        _ => column_of(expression, input),
    }
}

/// The finite numbers of a literal vector.
fn vector_of(literal: &Arc<dyn PhysicalExpr>) -> Option<Vec<f64>> {
    if !is_literal(literal) {
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

fn name_of(plan: &FFI_ExecutionPlan) -> String {
    // SAFETY: the function that the plan was made with, here and below.
    unsafe { (plan.name)(plan) }.as_str().to_owned()
}

fn children_of(plan: &FFI_ExecutionPlan) -> Vec<FFI_ExecutionPlan> {
    // SAFETY: as above.
    unsafe { (plan.children)(plan) }.into_iter().collect()
}

fn only_child(plan: &FFI_ExecutionPlan) -> Option<FFI_ExecutionPlan> {
    let mut children = children_of(plan);
    if children.len() == 1 { children.pop() } else { None }
}

fn expressions(plan: &FFI_ExecutionPlan) -> Result<Vec<Arc<dyn PhysicalExpr>>> {
    // SAFETY: as above.
    let expressions = df_result!(unsafe { (plan.apply_expressions)(plan) })?;
    Ok(expressions.iter().map(<Arc<dyn PhysicalExpr>>::from).collect())
}

fn schema_of(plan: &FFI_ExecutionPlan) -> Result<SchemaRef> {
    // SAFETY: as above.
    let properties = PlanProperties::try_from(unsafe { (plan.properties)(plan) })?;
    Ok(Arc::clone(properties.eq_properties.schema()))
}

/// A node with other children.
fn over(plan: &FFI_ExecutionPlan, children: Vec<FFI_ExecutionPlan>) -> Result<FFI_ExecutionPlan> {
    // SAFETY: as above.
    df_result!(unsafe { (plan.with_new_children)(plan, children.into_iter().collect()) })
}
