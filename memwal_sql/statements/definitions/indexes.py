"""CREATE INDEX and DROP INDEX.

CREATE INDEX body_idx ON t USING fts (body) WITH (stem = true, language = 'English')
DROP INDEX body_idx ON t
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import datafusion
import pyarrow as pa

from memwal_native.syntax import CreateIndex, DropIndex
from memwal_sql.index.create import default_name
from memwal_sql.index.kinds import IndexKind
from memwal_sql.statements.definitions.names import not_ours, registered, table_of
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.planning import answer, values

_DEFAULT_KIND = "BTREE"


def run_create_index(
    ctx: datafusion.SessionContext,
    statement: Statement,
    index: CreateIndex,
    parameters: Mapping[str, Any],
) -> datafusion.DataFrame:
    """Run `CREATE [OR REPLACE] INDEX [IF NOT EXISTS] [name] ON t [USING kind] (column)
    [WITH (parameter = value, ...)]`. Without a kind it is a BTREE, without a name it has its
    `default_name`."""
    registration = registered(ctx, tuple(index.table.parts))
    if registration is None:
        raise not_ours(ctx, statement, index.table)
    if len(index.columns) != 1:
        raise statement.error("an index takes one column", index.columns[0].start)
    column = ".".join(index.columns[0].parts)
    options = _options(ctx, statement, index, parameters)
    table = table_of(registration)
    name = default_name(column) if index.name is None else index.name
    if index.lenient and not index.replaces and name in _names(table):
        return answer(ctx, pa.table({}))
    kind = cast(IndexKind, index.kind or _DEFAULT_KIND)
    table.create_index(column, kind, name=name, replace=index.replaces, **options)
    return answer(ctx, pa.table({}))


def run_drop_index(
    ctx: datafusion.SessionContext, statement: Statement, index: DropIndex
) -> datafusion.DataFrame:
    """Run `DROP INDEX [IF EXISTS] name ON t`."""
    registration = registered(ctx, tuple(index.table.parts))
    if registration is None:
        raise not_ours(ctx, statement, index.table)
    table = table_of(registration)
    if not index.lenient or index.name in _names(table):
        table.drop_index(index.name)
    return answer(ctx, pa.table({}))


def _names(table: Any) -> list[str]:
    names: list[str] = table.indexes()["name"].to_pylist()
    return names


def _options(
    ctx: datafusion.SessionContext,
    statement: Statement,
    index: CreateIndex,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """The parameters of WITH by name; the values are expressions without columns."""
    names = [name for name, _ in index.options]
    for place, (name, value) in enumerate(index.options):
        if name in names[:place]:
            raise statement.error("this parameter is given twice", value.start)
    texts = [value.text for _, value in index.options]
    return {n: v.as_py() for n, v in zip(names, values(ctx, texts, parameters), strict=True)}
