//! The tables of SQL text.

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion_sql::sqlparser::ast::{Ident, ObjectName, Query, TableFactor, Visitor};

use crate::sql::source::Source;

/// (start, end, parts, whether an alias may follow): places are in characters.
pub type Placed = (usize, usize, Vec<String>, bool);

/// The names of tables, without those that mean a query of a WITH.
pub struct Tables<'a> {
    source: &'a Source,
    /// Each name, and whether it stands alone so that an alias may follow it.
    names: Vec<(ObjectName, bool)>,
    /// The address of the name that comes next in the visit, if it stands alone.
    alone: Option<*const ObjectName>,
    /// The queries of WITH that a name may mean at this point of the visit.
    visible: Vec<String>,
    /// The number of visible ones at the beginning of each query around this point.
    before: Vec<usize>,
    /// The name of each query of a WITH, by its address, and whether it sees itself.
    defined: HashMap<*const Query, (String, bool)>,
}

impl<'a> Tables<'a> {
    pub fn new(source: &'a Source) -> Self {
        Self {
            source,
            names: Vec::new(),
            alone: None,
            visible: Vec::new(),
            before: Vec::new(),
            defined: HashMap::new(),
        }
    }

    /// The places of the names, their parts, and whether an alias may follow.
    pub fn placed(self) -> Vec<Placed> {
        let placed = self.names.iter().filter_map(|(table, alone)| {
            let parts: Option<Vec<Ident>> =
                table.0.iter().map(|part| part.as_ident().cloned()).collect();
            let parts = parts?;
            let (start, end) = self.source.span(&parts)?;
            let parts = parts.iter().map(|part| self.source.name(part)).collect();
            Some((start, end, parts, *alone))
        });
        placed.collect()
    }
}

impl Visitor for Tables<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.before.push(self.visible.len());
        if let Some((name, true)) = self.defined.get(&std::ptr::from_ref(query)) {
            self.visible.push(name.clone());
        }
        let source = self.source;
        let tables = query
            .with
            .iter()
            .flat_map(|with| with.cte_tables.iter().map(|table| (table, with.recursive)));
        self.defined.extend(tables.map(|(table, recursive)| {
            (std::ptr::from_ref(table.query.as_ref()), (source.name(&table.alias.name), recursive))
        }));
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &Query) -> ControlFlow<()> {
        self.visible.truncate(self.before.pop().unwrap_or_default());
        if let Some((name, _)) = self.defined.remove(&std::ptr::from_ref(query)) {
            self.visible.push(name); // for the queries after it, and the one that has the WITH
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, alias: None, args: None, .. } = factor {
            self.alone = Some(std::ptr::from_ref(name));
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &ObjectName) -> ControlFlow<()> {
        let lone = match relation.0.as_slice() {
            [part] => part.as_ident().map(|part| self.source.name(part)),
            _ => None,
        };
        if lone.is_none_or(|lone| !self.visible.contains(&lone)) {
            let alone = self.alone == Some(std::ptr::from_ref(relation));
            self.names.push((relation.clone(), alone));
        }
        ControlFlow::Continue(())
    }
}

/// A name as a session looks it up by default.
pub fn normal(name: &Ident) -> String {
    match name.quote_style {
        Some(_) => name.value.clone(),
        None => name.value.to_ascii_lowercase(),
    }
}
