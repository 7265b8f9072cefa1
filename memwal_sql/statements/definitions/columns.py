"""The columns of a new table, as CREATE TABLE and ALTER TABLE give them: DataFusion reads each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import datafusion
import pyarrow as pa

from exec_nodes.base.interrupts import is_native
from exec_nodes.base.threads import beyond_signals
from memwal_sql.arguments import quoted
from memwal_sql.errors import UnsupportedError
from memwal_sql.statements.queries.datafusion_errors import error_of
from memwal_sql.statements.queries.places import StatementError
from memwal_sql.statements.queries.tokens import Statement

_BY_WRITERS = ": keys are given by the writer"
# What other databases have behind a column's name, and what does instead.
_REFUSED = {
    "DEFAULT": ": leave it out, and set the values by UPDATE",
    "UNIQUE": ": the primary key alone is unique",
    "CHECK": "",
    "REFERENCES": "",
    "GENERATED": _BY_WRITERS,
    "AS": "",
    "COLLATE": "",
    "COMMENT": "",
    "AUTO_INCREMENT": _BY_WRITERS,
    "AUTOINCREMENT": _BY_WRITERS,
    "IDENTITY": _BY_WRITERS,
    "SERIAL": _BY_WRITERS,
    "BIGSERIAL": _BY_WRITERS,
    "SMALLSERIAL": _BY_WRITERS,
}
# The types whose numbers in parentheses count; DataFusion takes and forgets those of others.
_MEASURED = ("DECIMAL", "NUMERIC", "TIMESTAMP", "TIMESTAMPTZ")
_CONSTRAINTS = ("UNIQUE", "CHECK", "FOREIGN KEY", "EXCLUDE")
_TYPES = {
    # Lance has no views, and a time with a zone needs one.
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
    "datafusion.execution.time_zone": "UTC",
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns, and the names of those of the primary key; none where none is given."""

    schema: pa.Schema
    primary_key: tuple[str, ...]


def columns_of(statement: Statement, parts: Sequence[tuple[int, int]]) -> Columns:
    """The columns between commas, each a `name type [NOT NULL] [PRIMARY KEY]`, and
    `[CONSTRAINT name] PRIMARY KEY (columns)`.

    Raises InvalidCallError, with the place, for what is no column and for two primary keys,
    UnsupportedError for defaults and constraints, which no writer would keep.
    """
    fields: list[pa.Field] = []
    keys: list[tuple[str, ...]] = []
    for start, last in _whole(statement, parts):
        first = start
        if first == last:
            raise statement.error("a column, as `name type`, is missing", first)
        if statement.keyword(first) == "CONSTRAINT":
            first += 2
        if statement.has(first, "PRIMARY KEY") and statement.symbol(first + 2) == "(":
            if statement.closing(first + 2) != last:
                raise statement.error("only columns may follow PRIMARY KEY", first)
            named = statement.split(first + 3, last - 1)
            keys.append(tuple(_name(statement, *one) for one in named))
            continue
        if first > start or any(
            statement.has(first, one) and statement.symbol(first + len(one.split())) == "("
            for one in _CONSTRAINTS
        ):
            raise UnsupportedError(str(statement.error("a table has no such constraint", start)))
        refused = min(statement.find(word, first + 1, last) for word in _REFUSED)
        if refused < last:
            word = statement.keyword(refused)
            message = f"{word} is not supported{_REFUSED[word]}"
            raise UnsupportedError(str(statement.error(message, refused)))
        for place in range(first + 1, last - 1):
            word = statement.keyword(place)
            if word and word not in _MEASURED and statement.symbol(place + 1) == "(":
                length = statement.slice(place + 2, statement.closing(place + 1) - 1)
                message = "no length would be kept: write TEXT, or the type without it"
                if word == "VECTOR":
                    message = f"a vector is a list of its length: write FLOAT[{length}]"
                raise UnsupportedError(str(statement.error(message, place)))
        key = statement.find("PRIMARY KEY", first + 1, last)
        text = f"{statement.slice(first + 1, key)} {statement.slice(key + 2, last)}"
        fields.append(_field(statement, text, first))
        if key < last:
            keys.append((fields[-1].name,))
    if len(keys) > 1:
        raise statement.error("there are several primary keys", parts[0][0])
    return Columns(pa.schema(fields), keys[0] if keys else ())


def _whole(statement: Statement, parts: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The parts between commas that are not within a type, as `STRUCT<a INT, b INT>` has one."""
    whole: list[tuple[int, int]] = []
    depth = 0
    for first, last in parts:
        start = whole.pop()[0] if depth > 0 else first
        for place in range(first, last):
            symbol = statement.symbol(place)
            depth += symbol.count("<") - symbol.count(">")
        whole.append((start, last))
    return whole


def _field(statement: Statement, kind: str, place: int) -> pa.Field:
    """The column whose name stands at a place, with the text behind it."""
    if not statement.tokens[place].is_name:
        raise statement.error("the name of a column must stand here", place)
    column = f"{quoted(statement.tokens[place].name)} {kind}"  # whatever quotes the dialect has
    config = datafusion.SessionConfig()
    for name, value in _TYPES.items():
        config = config.set(name, value)
    scratch = datafusion.SessionContext(config)
    try:
        scratch.sql(f"CREATE TABLE one ({column})")  # of a column, in a session of its own
        (field,) = beyond_signals(partial(scratch.table, "one")).schema()
    except Exception as error:
        if not is_native(error):
            raise
        reason = error_of(error)
        shown = reason.message if isinstance(reason, StatementError) else reason or error
        raise statement.error(f"this is not a column: {shown}", place) from None
    return field


def _name(statement: Statement, first: int, last: int) -> str:
    if last != first + 1 or not statement.tokens[first].is_name:
        raise statement.error("the name of a column must stand here", first)
    return statement.tokens[first].name
