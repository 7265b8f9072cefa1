"""Temporary schemas of a session, for a statement that is planned or runs."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import datafusion
import pyarrow as pa
from datafusion.catalog import Schema, Table

from memwal_native import MountedTable
from memwal_sql.arguments import quoted
from memwal_sql.session.provider import SqlTable, TableProvider
from memwal_sql.session.registered import Registered
from memwal_sql.session.session import session_of
from memwal_sql.session.transaction_slot import TransactionSlot
from memwal_sql.statements.queries.planning import batches_of
from planner.search.nearest import Nearest

# Begins the names of schemas whose tables are rows in memory.
ROWS = "memwal$rows"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class StatementTable:
    """A table that a statement reads from a schema of its own.

    Attributes:
        slot: the session's, for a table that every run of the statement reads anew.
        nearest: the only rows that are needed, if not all are.
    """

    name: str
    table: SqlTable
    consistency: str
    slot: TransactionSlot | None = None
    nearest: Nearest | None = None


def schema_name() -> str:
    """A name that no schema of a session has."""
    return f"memwal$statement{next(_numbers)}"


@contextmanager
def in_memory(
    ctx: datafusion.SessionContext, tables: Mapping[str, pa.Table]
) -> Iterator[Mapping[str, str]]:
    """A context in which the session has these rows; yields the name of each table there."""
    schema = f"{ROWS}{next(_numbers)}"
    names = {name: f"{quoted(schema)}.{quoted(name)}" for name in tables}
    ctx.catalog().register_schema(schema, Schema.memory_schema(ctx))
    try:
        for name, rows in tables.items():
            ctx.register_record_batches(names[name], [batches_of(rows)])
        yield names
    finally:
        ctx.catalog().deregister_schema(schema)


@contextmanager
def in_schemas(
    ctx: datafusion.SessionContext, tables: Mapping[str, StatementTable]
) -> Iterator[None]:
    """A context in which the session has these schemas of one table each, and its searches find
    them; plans that are made in it keep them."""
    catalog, session = ctx.catalog(), session_of(ctx)
    for schema, table in tables.items():
        provider = TableProvider(
            None, table.table, table.consistency, slot=table.slot, nearest=table.nearest
        )
        mounted, columns, ids = MountedTable(provider), provider.schema, provider.field_ids
        memory_schema = Schema.memory_schema(ctx)
        memory_schema.register_table(table.name, Table(mounted, ctx))
        catalog.register_schema(schema, memory_schema)
        whole = f"{quoted(schema)}.{quoted(table.name)}"
        session.add(
            Registered(whole, table.table, columns, table.consistency, mounted, field_ids=ids)
        )
    try:
        yield
    finally:
        for schema, table in tables.items():
            session.remove(f"{quoted(schema)}.{quoted(table.name)}", ctx)
            catalog.deregister_schema(schema)
