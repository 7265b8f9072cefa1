//! Finds clauses that DataFusion 55 answers wrongly or ignores, and columns that need an alias.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    Expr, Ident, JoinConstraint, JoinOperator, Query, Select, SelectItem, SetExpr, SetOperator,
    SetQuantifier, TableFactor, TableWithJoins, UnaryOperator, Visit, Visitor, visit_expressions,
};

use crate::sql::memberships::Names;
use crate::sql::source::Source;
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
const UNQUALIFIED: &str = "after ANY or ALL, DataFusion computes an aggregate wrongly if its WHERE has \
    a column of the query around it: name each column with its table there, as in u.k";

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
        let (expr, alias) = match select.projection.as_slice() {
            [SelectItem::UnnamedExpr(expr)] => (expr, None),
            [SelectItem::ExprWithAlias { expr, alias }] => (expr, Some(normal(alias))),
            _ => return self.refused.push(UNNAMED),
        };
        match (column(expr), alias) {
            (Some(names), None) if names_column(expr) => {
                self.unnamed.extend(self.source.span(names).map(|(_, end)| end));
            }
            (Some(_), None) => self.refused.push(UNNAMED),
            // DataFusion drops an alias that is the column's own name.
            (Some(names), alias) => self.refuse_if(names.last().map(normal) == alias, UNNAMED),
            (None, _) if leads_out => self.refused.push(AGGREGATED),
            (None, _) => {
                let may_lead_out = calls(expr) && !Alone::of(&select.selection).is_empty();
                self.refuse_if(may_lead_out, UNQUALIFIED);
            }
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
        let mut merged = Merged::default();
        select.from.iter().for_each(|from| merged.add(from));
        if !merged.found {
            return;
        }
        let stars = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
        let alone = Alone::of(part);
        let names_one = match &merged.names {
            Some(names) => !names.is_disjoint(&alone),
            None => !alone.is_empty(),
        };
        self.refuse_if(merged.used || stars || names_one, MERGED);
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

/// The names of an expression that is a column to DataFusion, which drops parentheses and `+`.
fn column(expr: &Expr) -> Option<&[Ident]> {
    match expr {
        Expr::Identifier(name) => Some(std::slice::from_ref(name)),
        Expr::CompoundIdentifier(names) => Some(names),
        Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Plus, expr: inner } => {
            column(inner)
        }
        _ => None,
    }
}

fn names_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// Whether an expression calls a function, which may be an aggregate.
fn calls(expr: &Expr) -> bool {
    let call = |expr: &Expr| match expr {
        Expr::Function(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    visit_expressions(expr, call).is_break()
}

/// The RIGHT and FULL JOINs of a FROM with USING or NATURAL.
struct Merged {
    found: bool,
    /// Their columns; None after a NATURAL one.
    names: Option<HashSet<String>>,
    /// Whether a later join, or the alias of a join in parentheses, uses such a column.
    used: bool,
}

impl Default for Merged {
    fn default() -> Self {
        Self { found: false, names: Some(HashSet::new()), used: false }
    }
}

impl Merged {
    fn add(&mut self, from: &TableWithJoins) {
        self.add_nested(&from.relation);
        for join in &from.joins {
            self.add_nested(&join.relation);
            let (constraint, merges) = match &join.join_operator {
                JoinOperator::Right(constraint)
                | JoinOperator::RightOuter(constraint)
                | JoinOperator::FullOuter(constraint) => (constraint, true),
                JoinOperator::Join(constraint)
                | JoinOperator::Inner(constraint)
                | JoinOperator::Left(constraint)
                | JoinOperator::LeftOuter(constraint)
                | JoinOperator::LeftSemi(constraint)
                | JoinOperator::RightSemi(constraint)
                | JoinOperator::LeftAnti(constraint)
                | JoinOperator::RightAnti(constraint) => (constraint, false),
                _ => continue,
            };
            let names: Option<HashSet<String>> = match constraint {
                JoinConstraint::Using(names) => {
                    let names = names.iter().filter_map(|name| name.0.last()?.as_ident());
                    Some(names.map(normal).collect())
                }
                JoinConstraint::Natural => None,
                _ => continue,
            };
            let apart = match (&self.names, &names) {
                (Some(before), Some(names)) => before.is_disjoint(names),
                _ => false,
            };
            self.used |= self.found && !apart;
            if merges {
                self.found = true;
                self.names = self.names.take().zip(names).map(|(before, names)| &before | &names);
            }
        }
    }

    fn add_nested(&mut self, factor: &TableFactor) {
        if let TableFactor::NestedJoin { table_with_joins, alias } = factor {
            self.add(table_with_joins);
            self.used |= self.found && alias.is_some();
        }
    }
}

/// The columns that are named without a table.
#[derive(Default)]
struct Alone {
    names: HashSet<String>,
}

impl Alone {
    fn of(part: &impl Visit) -> HashSet<String> {
        let mut alone = Self::default();
        let _ = part.visit(&mut alone);
        alone.names
    }
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
