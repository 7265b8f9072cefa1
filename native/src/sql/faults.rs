//! Finds clauses that DataFusion 55 answers wrongly or ignores, and columns that need an alias.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, Query, Select, SelectItem, SetExpr, SetOperator,
    SetQuantifier, TableFactor, TableWithJoins, Visit, Visitor,
};

use crate::sql::memberships::Names;
use crate::sql::reader::Source;
use crate::sql::tables::normal;

const SET_ALL: &str = "DataFusion computes EXCEPT ALL and INTERSECT ALL wrongly: leave out ALL, or \
    number equal rows on both sides with row_number() OVER (PARTITION BY ...)";
const SAMPLE: &str = "DataFusion ignores TABLESAMPLE, and would read all rows: write WHERE \
    random() < 0.1";
const LOCK: &str = "FOR UPDATE and FOR SHARE lock nothing here: leave them out. A transaction that \
    begins with BEGIN ISOLATION LEVEL SERIALIZABLE fails if others change what it has read";
const MERGED: &str = "DataFusion takes the column of USING, or NATURAL, of a RIGHT or FULL JOIN from \
    the left table alone: write ON t.a = u.a, name the columns with their tables, and join both \
    as coalesce(t.a, u.a)";
const TWICE: &str = "DataFusion would evaluate random() or uuid() more than once here: compute it in \
    a query, as in SELECT id FROM (SELECT id, random() AS r FROM t) AS s WHERE r BETWEEN 0.4 AND 0.6";
const UNNAMED: &str = "after ANY or ALL, DataFusion confuses columns of this query with those of the \
    query around it: give it one column by name, as in SELECT s.a AS b FROM (...) AS s";
const AGGREGATED: &str = "DataFusion computes ANY and ALL wrongly over an expression of a query that \
    has columns of the query around it: write EXISTS, or NOT EXISTS";

const VOLATILE: [&str; 3] = ["random", "uuid", "rand"];
const REPEATING: [&str; 5] = ["coalesce", "ifnull", "nullif", "nvl", "nvl2"];

/// What the text of a query needs before DataFusion answers it right.
pub struct Faults<'a> {
    source: &'a Source,
    /// Why the query is refused, for each cause.
    pub refused: Vec<&'static str>,
    /// The places after columns that need an alias. Without one, `x = ANY (SELECT x FROM t)` over
    /// a table of the outer query compares the column with itself.
    pub unnamed: Vec<usize>,
}

impl<'a> Faults<'a> {
    pub fn new(source: &'a Source) -> Self {
        Self { source, refused: Vec::new(), unnamed: Vec::new() }
    }

    fn refuse_if(&mut self, applies: bool, why: &'static str) {
        if applies {
            self.refused.push(why);
        }
    }

    /// The query after ANY or ALL.
    fn compared(&mut self, right: &Expr) {
        match right {
            Expr::Subquery(query) => {
                let leads_out = Names::of(query).leads_out();
                self.compared_query(&query.body, leads_out);
            }
            Expr::Nested(inner) => self.compared(inner),
            _ => {}
        }
    }

    fn compared_query(&mut self, body: &SetExpr, leads_out: bool) {
        let select = match body {
            SetExpr::Select(select) => select,
            SetExpr::Query(query) => return self.compared_query(&query.body, leads_out),
            SetExpr::Values(_) => return,
            _ => return self.refused.push(UNNAMED),
        };
        let place = |name: &[Ident]| self.source.span(name).map(|(_, end)| end);
        match select.projection.as_slice() {
            [SelectItem::UnnamedExpr(Expr::Identifier(name))] => {
                self.unnamed.extend(place(std::slice::from_ref(name)));
            }
            [SelectItem::UnnamedExpr(Expr::CompoundIdentifier(names))] => {
                self.unnamed.extend(place(names));
            }
            // DataFusion drops an alias that is the column's own name.
            [SelectItem::ExprWithAlias { expr: Expr::Identifier(name), alias }] => {
                self.refuse_if(normal(name) == normal(alias), UNNAMED);
            }
            [SelectItem::ExprWithAlias { expr: Expr::CompoundIdentifier(names), alias }] => {
                let own = names.last().map(normal);
                self.refuse_if(own.is_some_and(|own| own == normal(alias)), UNNAMED);
            }
            [SelectItem::UnnamedExpr(_) | SelectItem::ExprWithAlias { .. }] => {
                self.refuse_if(leads_out, AGGREGATED);
            }
            _ => self.refused.push(UNNAMED),
        }
    }

    fn operations(&mut self, body: &SetExpr) {
        if let SetExpr::SetOperation { op, set_quantifier, left, right } = body {
            let counts = matches!(set_quantifier, SetQuantifier::All | SetQuantifier::AllByName);
            self.refuse_if(counts && *op != SetOperator::Union, SET_ALL);
            self.operations(left);
            self.operations(right);
        }
    }

    /// A part of a query whose FROM is that of a SELECT.
    fn merged(&mut self, select: &Select, part: &impl Visit) {
        let mut shared = Some(HashSet::new());
        let joins = select.from.iter().any(|from| merges(from, &mut shared));
        if !joins {
            return;
        }
        let stars = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
        let mut alone = Alone::default();
        let _ = part.visit(&mut alone);
        let names_one = match shared {
            Some(shared) => !shared.is_disjoint(&alone.names),
            None => !alone.names.is_empty(),
        };
        self.refuse_if(stars || names_one, MERGED);
    }
}

impl Visitor for Faults<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.refuse_if(!query.locks.is_empty(), LOCK);
        self.operations(&query.body);
        if let (SetExpr::Select(select), Some(order)) = (query.body.as_ref(), &query.order_by) {
            self.merged(select, order);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.merged(select, select);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        let samples = match factor {
            TableFactor::Table { sample, .. } | TableFactor::Derived { sample, .. } => {
                sample.is_some()
            }
            _ => false,
        };
        self.refuse_if(samples, SAMPLE);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let repeats = match expr {
            Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => {
                self.compared(right);
                false
            }
            Expr::Between { expr, .. } | Expr::InList { expr, .. } => is_volatile(expr.as_ref()),
            Expr::Case { operand: Some(operand), .. } => is_volatile(operand.as_ref()),
            Expr::Function(function) => {
                let name = function.name.to_string().to_ascii_lowercase();
                REPEATING.contains(&name.as_str()) && is_volatile(&function.args)
            }
            _ => false,
        };
        self.refuse_if(repeats, TWICE);
        ControlFlow::Continue(())
    }
}

/// Whether a FROM has a RIGHT or FULL JOIN with USING, whose columns are added, or NATURAL, which
/// makes them None.
fn merges(from: &TableWithJoins, shared: &mut Option<HashSet<String>>) -> bool {
    let mut found = nested(&from.relation, shared);
    for join in &from.joins {
        found |= nested(&join.relation, shared);
        let constraint = match &join.join_operator {
            JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint) => constraint,
            _ => continue,
        };
        match constraint {
            JoinConstraint::Using(names) => {
                let names = names.iter().filter_map(|name| name.0.last()?.as_ident());
                if let Some(shared) = shared.as_mut() {
                    shared.extend(names.map(normal));
                }
                found = true;
            }
            JoinConstraint::Natural => {
                *shared = None;
                found = true;
            }
            _ => {}
        }
    }
    found
}

fn nested(factor: &TableFactor, shared: &mut Option<HashSet<String>>) -> bool {
    match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => merges(table_with_joins, shared),
        _ => false,
    }
}

/// The columns that are named without a table.
#[derive(Default)]
struct Alone {
    names: HashSet<String>,
}

impl Visitor for Alone {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Identifier(name) = expr {
            self.names.insert(normal(name));
        }
        ControlFlow::Continue(())
    }
}

fn is_volatile(part: &impl Visit) -> bool {
    part.visit(&mut Volatile).is_break()
}

struct Volatile;

impl Visitor for Volatile {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(function)
                if VOLATILE.contains(&function.name.to_string().to_ascii_lowercase().as_str()) =>
            {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}
