//! What DataFusion parses and then leaves out or takes for something else.

use std::fmt::Display;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArguments, GroupByExpr, PipeOperator, Query, Select, SelectItem,
    TableFactor, TableSample, TableSampleKind, Visitor,
};

/// The comparisons `a IS [NOT] DISTINCT FROM b AND c`, which the parser reads as `a IS DISTINCT FROM
/// (b AND c)`, other than SQL says.
#[derive(Default)]
pub struct Misread(pub Vec<String>);

impl Visitor for Misread {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) = expr
            && let Expr::BinaryOp { op, .. } = right.as_ref()
            && matches!(op, BinaryOperator::And | BinaryOperator::Or | BinaryOperator::Xor)
        {
            self.0.push(expr.to_string());
        }
        ControlFlow::Continue(())
    }
}

/// The clauses of a statement that DataFusion parses and then leaves out of its plan.
#[derive(Default)]
pub struct Ignored(pub Vec<String>);

impl Ignored {
    fn note(&mut self, clause: impl Display) {
        self.0.push(clause.to_string());
    }

    fn all<T: Display>(&mut self, clauses: impl IntoIterator<Item = T>) {
        clauses.into_iter().for_each(|clause| self.note(clause));
    }

    fn of_columns(&mut self, items: &[SelectItem]) {
        for item in items {
            if let SelectItem::Wildcard(options) | SelectItem::QualifiedWildcard(_, options) = item
            {
                self.all(&options.opt_ilike);
            }
        }
    }
}

impl Visitor for Ignored {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.all(&query.locks);
        self.all(&query.for_clause);
        self.all(query.settings.iter().flatten().map(|setting| format!("SETTINGS {setting}")));
        self.all(&query.format_clause);
        for operator in &query.pipe_operators {
            match operator {
                PipeOperator::Select { exprs } => self.of_columns(exprs),
                PipeOperator::Aggregate { full_table_exprs, group_by_expr } => {
                    let exprs = full_table_exprs.iter().chain(group_by_expr);
                    let orders = exprs.map(|expr| expr.order_by.to_string().trim().to_owned());
                    self.all(orders.filter(|order| !order.is_empty()));
                }
                _ => {}
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<()> {
        self.all(select.prewhere.iter().map(|condition| format!("PREWHERE {condition}")));
        self.all(&select.connect_by);
        self.all(&select.exclude);
        self.all(select.value_table_mode);
        self.of_columns(&select.projection);
        let (GroupByExpr::All(modifiers) | GroupByExpr::Expressions(_, modifiers)) =
            &select.group_by;
        self.all(modifiers);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expr
            && !matches!(function.parameters, FunctionArguments::None)
        {
            self.note(&function.parameters);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table {
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
                args,
                ..
            } => {
                let settings = args.iter().flat_map(|args| args.settings.iter().flatten());
                self.all(settings.map(|setting| format!("SETTINGS {setting}")));
                self.all(with_hints.iter().map(|hint| format!("WITH ({hint})")));
                self.all(version);
                self.all(with_ordinality.then_some("WITH ORDINALITY"));
                self.all(partitions.iter().map(|partition| format!("PARTITION ({partition})")));
                self.all(json_path);
                self.all(sample.iter().map(sample_text));
                self.all(index_hints);
            }
            TableFactor::Derived { sample, .. } => self.all(sample.iter().map(sample_text)),
            TableFactor::Function { with_ordinality, .. } => {
                self.all(with_ordinality.then_some("WITH ORDINALITY"));
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

fn sample_text(sample: &TableSampleKind) -> &TableSample {
    match sample {
        TableSampleKind::BeforeTableAlias(sample) | TableSampleKind::AfterTableAlias(sample) => {
            sample
        }
    }
}
