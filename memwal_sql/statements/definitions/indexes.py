"""CREATE INDEX and DROP INDEX.

CREATE INDEX body_idx ON t USING fts (body) WITH (stem = true, language = 'English')
DROP INDEX body_idx ON t
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import datafusion
import pyarrow as pa

from memwal_sql.index.create import IndexKind
from memwal_sql.statements.definitions.names import if_exists, not_ours, registered, table_of
from memwal_sql.statements.queries.planning import answer, values
from memwal_sql.statements.queries.tokens import Statement

_DEFAULT_KIND = "BTREE"


def created_index(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame:
    """Run `CREATE [OR REPLACE] INDEX [IF NOT EXISTS] [name] ON t [USING kind] (column)
    [WITH (parameter = value, ...)]`. Without a kind it is a BTREE, without a name
    `{column}_idx`."""
    replaces, place = if_exists(statement, 1, "OR REPLACE")
    lenient, place = if_exists(statement, place + 1, "IF NOT EXISTS")
    name, named = None, place
    if statement.keyword(place) != "ON":
        name, place = statement.tokens[place].name if place < len(statement) else "", place + 1
    at = statement.expect(place, "ON")
    parts, place = statement.table(at)
    found = registered(ctx, parts)
    if found is None:
        raise not_ours(ctx, statement, at, place)
    kind = _DEFAULT_KIND
    if statement.keyword(place) == "USING":
        kind, place = statement.keyword(place + 1), place + 2
    if statement.symbol(place) != "(":
        raise statement.error("a column in parentheses must stand here", place)
    after = statement.closing(place)
    if after != place + 3 or not statement.tokens[place + 1].is_name:
        raise statement.error("an index is of one column", place + 1)
    column = statement.tokens[place + 1].name
    options = _options(ctx, statement, after, parameters)
    table = table_of(found)
    if lenient and not replaces and (name or f"{column}_idx") in _names(table):
        return answer(ctx, pa.table({}))
    if name == "":
        raise statement.error("the name of an index is missing", named)
    table.create_index(column, cast(IndexKind, kind), name=name, replace=replaces, **options)
    return answer(ctx, pa.table({}))


def dropped_index(
    ctx: datafusion.SessionContext, statement: Statement, _: Mapping[str, Any]
) -> datafusion.DataFrame:
    """Run `DROP INDEX [IF EXISTS] name ON t`."""
    lenient, place = if_exists(statement, 2)
    if place >= len(statement) or not statement.tokens[place].is_name:
        raise statement.error("the name of an index is missing", place)
    name = statement.tokens[place].name
    if statement.keyword(place + 1) != "ON":
        raise statement.error("ON and a table must follow: indexes are named by table", place + 1)
    parts, after = statement.table(place + 2)
    found = registered(ctx, parts)
    if found is None:
        raise not_ours(ctx, statement, place + 2, after)
    if after < len(statement):
        raise statement.error("nothing may follow the table", after)
    table = table_of(found)
    if not lenient or name in _names(table):
        table.drop_index(name)
    return answer(ctx, pa.table({}))


def _names(table: Any) -> list[str]:
    found: list[str] = table.indexes()["name"].to_pylist()
    return found


def _options(
    ctx: datafusion.SessionContext,
    statement: Statement,
    place: int,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    """The parameters of WITH: names and values, which are expressions without columns."""
    if place == len(statement):
        return {}
    if statement.keyword(place) != "WITH" or statement.symbol(place + 1) != "(":
        raise statement.error("WITH (parameter = value) or nothing must follow", place)
    after = statement.closing(place + 1)
    if after < len(statement):
        raise statement.error("nothing may follow the parameters", after)
    names, texts = [], []
    for first, last in statement.split(place + 2, after - 1):
        if statement.symbol(first + 1) != "=" or first + 2 >= last:
            raise statement.error("`parameter = value` must stand here", first)
        name = statement.tokens[first].name
        if name in names:
            raise statement.error("this parameter is given twice", first)
        names.append(name)
        texts.append(statement.slice(first + 2, last))
    return {n: v.as_py() for n, v in zip(names, values(ctx, texts, parameters), strict=True)}
