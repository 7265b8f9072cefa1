//! Identifies the host's physical expressions by what can be seen of them: children, properties, and
//! what they are shown as.

use std::sync::Arc;

use arrow::datatypes::{DataType, SchemaRef};
use datafusion_expr::sort_properties::SortProperties;
use datafusion_physical_plan::PhysicalExpr;

/// Whether an expression is a literal, or a subquery of one value, which has none yet. Only these are
/// evaluated: a function may do what planning must not. What is shown does not tell: a NULL list
/// shows nothing.
pub fn is_constant(expression: &dyn PhysicalExpr) -> bool {
    let is_singleton = || {
        let properties = expression.get_properties(&[]);
        matches!(properties, Ok(of) if of.sort_properties == SortProperties::Singleton)
    };
    expression.children().is_empty() && is_singleton()
}

pub fn is_cast(expression: &dyn PhysicalExpr, of: &dyn PhysicalExpr) -> bool {
    let shown = expression.to_string();
    let cast = format!("CAST({of} AS ");
    shown.strip_prefix("TRY_").unwrap_or(&shown).starts_with(&cast)
}

/// The place of a column, which is shown as `name@place`.
pub fn column_of(expression: &dyn PhysicalExpr, input: &SchemaRef) -> Option<usize> {
    if !expression.children().is_empty() || is_constant(expression) {
        return None;
    }
    let text = expression.to_string();
    let (name, place) = text.rsplit_once('@')?;
    let place: usize = place.parse().ok()?;
    (input.fields().get(place)?.name() == name).then_some(place)
}

/// The place of a column of vectors that is as it is, or cast to lists of float64, which hold the
/// numbers of all smaller floats. Other casts round, and `TRY_CAST` makes NULLs of what does not fit.
pub fn vectors_in(expression: &Arc<dyn PhysicalExpr>, input: &SchemaRef) -> Option<usize> {
    let [of] = expression.children()[..] else {
        return column_of(expression.as_ref(), input);
    };
    let cast = expression.to_string().starts_with(&format!("CAST({of} AS "));
    let wide = match expression.data_type(input).ok()? {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            *item.data_type() == DataType::Float64
        }
        _ => false,
    };
    if cast && wide { column_of(of.as_ref(), input) } else { None }
}
