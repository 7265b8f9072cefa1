"""Temporary schemas of a session, for a statement that is planned or runs."""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import datafusion
import pyarrow as pa
from datafusion.catalog import Schema, Table

from memwal_native import MountedTable
from memwal_sql.arguments import quoted
from memwal_sql.session.provider import TableProvider
from memwal_sql.session.table_functions import Registered, search_functions
from memwal_sql.statements.queries.planning import batches_of
from memwal_sql.statements.queries.snapshots import SnapshotTable

# Begins the names of schemas whose tables are rows in memory.
ROWS = "memwal$rows"
_numbers = itertools.count()


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
    ctx: datafusion.SessionContext, tables: Mapping[str, tuple[str, SnapshotTable, str, bool]]
) -> Iterator[None]:
    """A context in which the session has these schemas of one table each, and its searches find
    them; plans that are made in it keep them."""
    catalog, functions = ctx.catalog(), search_functions(ctx)
    for schema, (name, table, level, approximate) in tables.items():
        mounted = MountedTable(TableProvider(None, table, level, approximate=approximate))
        memory_schema = Schema.memory_schema(ctx)
        memory_schema.register_table(name, Table(mounted, ctx))
        catalog.register_schema(schema, memory_schema)
        whole = f"{quoted(schema)}.{quoted(name)}"
        functions.add(
            Registered(whole, table, table.schema, level, mounted, field_ids=table.field_ids)
        )
    try:
        yield
    finally:
        for schema, (name, *_) in tables.items():
            functions.remove(f"{quoted(schema)}.{quoted(name)}", ctx)
            catalog.deregister_schema(schema)
