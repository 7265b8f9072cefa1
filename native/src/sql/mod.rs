//! SQL text: the parser of DataFusion, and statements that DataFusion does not have.

pub mod changes;
pub mod definitions;
pub mod depth;
pub mod distance_orders;
pub mod distances;
pub mod faults;
pub mod memberships;
pub mod parser;
pub mod query;
pub mod reader;
pub mod source;
pub mod statement;
pub mod tables;
pub mod text;
pub mod tokens;
pub mod tree;

use pyo3::prelude::*;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<parser::SqlParser>()?;
    module.add_class::<text::SqlText>()?;
    module.add_class::<statement::SqlStatement>()?;
    module.add_class::<tree::Call>()?;
    module.add_class::<tree::Delete>()?;
    module.add_class::<tree::Insert>()?;
    module.add_class::<tree::Merge>()?;
    module.add_class::<tree::Truncate>()?;
    module.add_class::<tree::Update>()?;
    module.add_class::<tree::Assignment>()?;
    module.add_class::<tree::Conflict>()?;
    module.add_class::<tree::Expression>()?;
    module.add_class::<tree::Item>()?;
    module.add_class::<tree::Part>()?;
    module.add_class::<tree::Reference>()?;
    module.add_class::<tree::When>()?;
    module.add_class::<statement::SqlQuery>()?;
    module.add_class::<query::Argument>()?;
    module.add_class::<query::Past>()?;
    module.add_class::<query::Search>()?;
    module.add_class::<distance_orders::DistanceOrder>()?;
    module.add_class::<distances::Distance>()?;
    module.add_class::<distances::Operand>()?;
    module.add_class::<definitions::AlterTable>()?;
    module.add_class::<definitions::Alteration>()?;
    module.add_class::<definitions::Column>()?;
    module.add_class::<definitions::CreateIndex>()?;
    module.add_class::<definitions::CreateTable>()?;
    module.add_class::<definitions::DropIndex>()?;
    module.add_class::<definitions::Named>()?;
    module.add_class::<tree::Transaction>()?;
    module.add_class::<tree::Variable>()
}
