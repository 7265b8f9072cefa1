//! Queries that sort the rows of one table by a distance, and keep the first few.

use std::ops::ControlFlow;

use datafusion_sql::planner::NullOrdering;
use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr,
    Ident, LimitClause, OrderByKind, Query, Select, SelectItem, SelectItemQualifiedWildcardKind,
    SetExpr, TableFactor, TableWithJoins, UnaryOperator, Value, Visit, Visitor,
};
use pyo3::prelude::*;

use crate::sql::source::Source;

/// Distance functions, and Lance's names of their metrics.
const METRICS: [(&str, &str); 5] = [
    ("array_distance", "l2"),
    ("list_distance", "l2"),
    ("cosine_distance", "cosine"),
    ("inner_product", "dot"),
    ("dot_product", "dot"),
];
/// A condition that the tables of this package evaluate, although it is a function.
const MATCH: &str = "match";

/// `SELECT ... FROM table WHERE ... ORDER BY distance, ... LIMIT k`, the nearest rows first.
#[pyclass(frozen, get_all, skip_from_py_object, module = "memwal_native")]
#[derive(Clone, Debug)]
pub struct DistanceOrder {
    /// The place of the table's name, and the name that qualifies its columns.
    pub table: usize,
    pub qualifier: String,
    /// The function of the distance, and Lance's name of its metric.
    pub function: &'static str,
    pub metric: &'static str,
    pub column: Vec<String>,
    /// The vector that the column is compared with; empty for a parameter.
    pub vector: Vec<f64>,
    pub parameter: Option<String>,
    pub nulls_first: bool,
    /// LIMIT and OFFSET: digits, or the name of a parameter.
    pub counts: Vec<String>,
    /// Whether it has a WHERE.
    pub is_filtered: bool,
}

/// Finds them in the queries of a text.
pub struct DistanceOrders<'a> {
    source: &'a Source,
    null_ordering: NullOrdering,
    pub found: Vec<DistanceOrder>,
}

impl<'a> DistanceOrders<'a> {
    pub fn new(source: &'a Source, null_ordering: NullOrdering) -> Self {
        Self { source, null_ordering, found: Vec::new() }
    }

    fn order(&self, query: &Query) -> Option<DistanceOrder> {
        let SetExpr::Select(select) = query.body.as_ref() else { return None };
        let OrderByKind::Expressions(keys) = &query.order_by.as_ref()?.kind else { return None };
        let (first, counts) = (keys.first()?, counts(query)?);
        let (table, qualifier) = self.table(select)?;
        let aliases = self.aliases(select)?;
        let aliased = |expr: &Expr| {
            let Expr::Identifier(name) = expr else { return None };
            let name = self.source.name(name);
            aliases.iter().find(|(alias, _)| *alias == name).map(|(_, expr)| *expr)
        };
        let distance = self.distance(aliased(&first.expr).unwrap_or(&first.expr))?;
        let is_alias = |name| aliases.iter().any(|(alias, _)| Some(alias) == name);
        let is_descending = first.options.asc == Some(false);
        let least_first = is_descending == distance.is_negated;
        if is_alias(distance.column.last()) || least_first != (distance.metric != "dot") {
            return None;
        }
        let mut rows = RowByRow { source: self.source, qualifier: &qualifier, in_condition: false };
        if select.projection.visit(&mut rows).is_break() || keys.visit(&mut rows).is_break() {
            return None;
        }
        rows.in_condition = true;
        if select.selection.visit(&mut rows).is_break() {
            return None;
        }
        let nulls_first = first.options.nulls_first;
        Some(DistanceOrder {
            table,
            qualifier,
            function: distance.function,
            metric: distance.metric,
            column: distance.column,
            vector: distance.vector,
            parameter: distance.parameter,
            nulls_first: nulls_first
                .unwrap_or_else(|| self.null_ordering.nulls_first(!is_descending)),
            counts,
            is_filtered: select.selection.is_some(),
        })
    }

    /// The place of the only table, and the name that qualifies its columns; None if it is joined,
    /// or if its rows are grouped or renamed.
    fn table(&self, select: &Select) -> Option<(usize, String)> {
        let [TableWithJoins { relation, joins }] = select.from.as_slice() else { return None };
        let TableFactor::Table { name, alias, args: None, .. } = relation else { return None };
        let GroupByExpr::Expressions(groups, _) = &select.group_by else { return None };
        let is_plain = joins.is_empty()
            && groups.is_empty()
            && select.distinct.is_none()
            && select.exclude.is_none()
            && select.having.is_none()
            && select.qualify.is_none()
            && alias.as_ref().is_none_or(|alias| alias.columns.is_empty());
        let names: Option<Vec<Ident>> =
            name.0.iter().map(|part| part.as_ident().cloned()).collect();
        let names = names.filter(|_| is_plain)?;
        let qualifier = alias.as_ref().map(|alias| &alias.name).or(names.last())?;
        Some((self.source.span(&names)?.0, self.source.name(qualifier)))
    }

    /// The aliases of the results; None if columns are renamed otherwise, or if tables are named with
    /// their schemas.
    fn aliases<'s>(&self, select: &'s Select) -> Option<Vec<(String, &'s Expr)>> {
        let mut aliases = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::UnnamedExpr(_) => {}
                SelectItem::ExprWithAlias { expr, alias } => {
                    aliases.push((self.source.name(alias), expr));
                }
                SelectItem::Wildcard(options)
                    if options.opt_replace.is_none()
                        && options.opt_rename.is_none()
                        && options.opt_alias.is_none() => {}
                SelectItem::QualifiedWildcard(
                    SelectItemQualifiedWildcardKind::ObjectName(name),
                    options,
                ) if name.0.len() == 1
                    && options.opt_replace.is_none()
                    && options.opt_rename.is_none() => {}
                _ => return None,
            }
        }
        Some(aliases)
    }

    fn distance(&self, expr: &Expr) -> Option<Distance> {
        match expr {
            Expr::Nested(inner) => self.distance(inner),
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => self.negated(expr),
            Expr::BinaryOp { left, op: BinaryOperator::Minus, right } => {
                let distance = self.negated(right)?;
                // Taken from 1, small distances of other kinds are lost in rounding.
                let is_exact = match number(left)? {
                    0.0 => true,
                    1.0 => distance.metric == "cosine",
                    _ => false,
                };
                is_exact.then_some(distance)
            }
            Expr::Function(function) => {
                let name = self.function_name(function)?;
                let (function_name, metric) =
                    METRICS.into_iter().find(|(known, _)| *known == name)?;
                let [left, right] = arguments(function)?[..] else { return None };
                let (column, vector) = match (self.column(left), self.column(right)) {
                    (Some(column), None) => (column, right),
                    (None, Some(column)) => (column, left),
                    _ => return None,
                };
                let (vector, parameter) = self.vector(vector)?;
                let function = function_name;
                Some(Distance { function, metric, column, vector, parameter, is_negated: false })
            }
            _ => None,
        }
    }

    fn negated(&self, expr: &Expr) -> Option<Distance> {
        self.distance(expr)
            .filter(|distance| !distance.is_negated)
            .map(|distance| Distance { is_negated: true, ..distance })
    }

    fn column(&self, expr: &Expr) -> Option<Vec<String>> {
        match expr {
            Expr::Nested(inner) => self.column(inner),
            Expr::Identifier(name) => Some(vec![self.source.name(name)]),
            Expr::CompoundIdentifier(names) => {
                Some(names.iter().map(|name| self.source.name(name)).collect())
            }
            _ => None,
        }
    }

    /// The numbers of a literal vector, or the name of a parameter.
    fn vector(&self, expr: &Expr) -> Option<(Vec<f64>, Option<String>)> {
        let elements: Vec<&Expr> = match expr {
            Expr::Nested(inner) => return self.vector(inner),
            Expr::Value(value) => match &value.value {
                Value::Placeholder(name) => return Some((Vec::new(), Some(name.clone()))),
                _ => return None,
            },
            Expr::Array(array) => array.elem.iter().collect(),
            Expr::Function(function) if self.function_name(function)? == "make_array" => {
                arguments(function)?
            }
            _ => return None,
        };
        let numbers: Option<Vec<f64>> = elements.into_iter().map(number).collect();
        Some((numbers?, None))
    }

    fn function_name(&self, function: &Function) -> Option<String> {
        let [name] = function.name.0.as_slice() else { return None };
        name.as_ident().map(|name| self.source.name(name))
    }
}

impl Visitor for DistanceOrders<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        let order = self.order(query);
        self.found.extend(order);
        ControlFlow::Continue(())
    }
}

struct Distance {
    function: &'static str,
    metric: &'static str,
    column: Vec<String>,
    vector: Vec<f64>,
    parameter: Option<String>,
    /// Whether the greatest distance has the least value.
    is_negated: bool,
}

/// LIMIT and OFFSET; None for others than numbers and parameters, and with other clauses at the end.
fn counts(query: &Query) -> Option<Vec<String>> {
    let Some(LimitClause::LimitOffset { limit: Some(limit), offset, limit_by }) =
        &query.limit_clause
    else {
        return None;
    };
    if !limit_by.is_empty() || query.fetch.is_some() || !query.pipe_operators.is_empty() {
        return None;
    }
    let count = |expr: &Expr| match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => Some(digits.clone()),
            Value::Placeholder(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
    };
    std::iter::once(limit).chain(offset.iter().map(|offset| &offset.value)).map(count).collect()
}

fn arguments(function: &Function) -> Option<Vec<&Expr>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    let is_plain = list.duplicate_treatment.is_none()
        && list.clauses.is_empty()
        && function.filter.is_none()
        && function.over.is_none();
    let arguments = list.args.iter().filter(|_| is_plain).map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    arguments.collect()
}

fn number(expr: &Expr) -> Option<f64> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => {
                digits.parse().ok().filter(|number: &f64| number.is_finite())
            }
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => number(expr).map(|number| -number),
        _ => None,
    }
}

/// Breaks at expressions that need other rows than their own, or make several rows of one; at columns
/// named with the schema of their table, which has another one in the statement; and in a condition
/// at functions, which DataFusion may evaluate itself.
struct RowByRow<'a> {
    source: &'a Source,
    qualifier: &'a str,
    in_condition: bool,
}

impl RowByRow<'_> {
    fn allows(&self, function: &Function) -> bool {
        let name = function.name.to_string();
        let is = |known: &str| name.trim_matches('"').eq_ignore_ascii_case(known);
        function.over.is_none() && !is("unnest") && (!self.in_condition || is(MATCH))
    }
}

impl Visitor for RowByRow<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let allowed = match expr {
            Expr::CompoundIdentifier(names) => {
                names.len() == 2 || self.source.name(&names[0]) == self.qualifier
            }
            Expr::Function(function) => self.allows(function),
            _ => true,
        };
        if allowed { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}
