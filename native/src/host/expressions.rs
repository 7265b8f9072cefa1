//! Identifies the host's physical expressions by what can be seen of them: children, properties, and
//! what they are shown as.

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
