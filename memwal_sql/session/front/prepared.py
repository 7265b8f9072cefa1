"""PREPARE, EXECUTE and DEALLOCATE: statements that a session keeps, those of ours among them."""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import datafusion
import pyarrow as pa

from memwal_native import SqlParser
from memwal_sql.errors import InvalidCallError, ReopenError
from memwal_sql.session.front.queries.planning import values
from memwal_sql.session.front.queries.tokens import Statement, Token
from memwal_sql.session.table_functions import NAME_PARTS, TableName, search_functions, whole_name

_NOT_FINITE = re.compile("inf|nan", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A statement that is kept.

    Attributes:
        tables: those that it names, with the columns that the session saw.
    """

    statement: Statement
    types: tuple[str, ...]
    tables: Mapping[TableName, pa.Schema]


_sessions: WeakKeyDictionary[datafusion.SessionContext, dict[str, _Prepared]] = WeakKeyDictionary()


def prepare(ctx: datafusion.SessionContext, statement: Statement) -> None:
    """Keep the statement of `PREPARE name [(type, ...)] AS statement`.

    Raises InvalidCallError, with the place, for a name that is taken, for what is no statement or
    no type, and for a parameter that has none of the types.
    """
    name, place = _name(statement, 1)
    types: tuple[str, ...] = ()
    if statement.symbol(place) == "(":
        after = statement.closing(place)
        parts = statement.split(place + 1, after - 1)
        types, place = tuple(statement.slice(*part) for part in parts), after
        values(ctx, [f"CAST(NULL AS {kind})" for kind in types], {})
    place = statement.expect(place, "AS")
    if place == len(statement):
        raise statement.error("a statement is missing", place)
    if statement.keyword(place) in ("PREPARE", "EXECUTE"):
        raise statement.error("no statement that is prepared can stand here: write it out", place)
    _check_numbers(statement, place, types)
    kept = _sessions.setdefault(ctx, {})
    if name in kept:
        raise statement.error(
            f"a statement of this name is prepared: DEALLOCATE {name} lets it go", 1
        )
    prepared = statement.part(place, len(statement))
    kept[name] = _Prepared(prepared, types, _tables(ctx, prepared))


def executed(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> tuple[Statement, dict[str, Any]] | None:
    """The statement and the parameters of `EXECUTE name [(value, ...)]`: `$1` is the first value,
    in the type that PREPARE gives it. None for a name that is not known here.

    Raises InvalidCallError where there are more or fewer values than types, or than the statement
    has places for, and for a value that its type cuts; ReopenError where the session sees other
    columns of its tables by now, or reads SQL otherwise.
    """
    name, place = _name(statement, 1)
    found = _sessions.get(ctx, {}).get(name)
    if found is None:
        return None
    if found.statement.parser != SqlParser(ctx):
        raise ReopenError(
            f"the session has other settings of datafusion.sql_parser than at PREPARE {name}, and "
            "would read it otherwise: DEALLOCATE it, and prepare it again"
        )
    _check_columns(ctx, name, found)
    given: list[str] = []
    if place < len(statement):
        if statement.symbol(place) != "(" or statement.closing(place) != len(statement):
            raise statement.error("values in parentheses must follow the name", place)
        parts = statement.split(place + 1, len(statement) - 1)
        given = [statement.slice(*part) for part in parts]
    wanted = len(found.types) or max(map(_number, found.statement.tokens), default=0)
    if len(given) != wanted:
        named = sorted(p for p in found.statement.parameters if not p.isdecimal())
        by_name = [f"; ${one} is given by name: mw.sql(ctx, text, {one}=...)" for one in named]
        message = f"{name} takes {wanted} values, and {len(given)} are given"
        raise InvalidCallError("".join([message, *by_name]))
    casts = [f"CAST({one} AS {kind})" for one, kind in zip(given, found.types, strict=False)]
    scalars = values(ctx, [*given, *casts], parameters)
    for text, value, cast in zip(given, scalars, scalars[wanted:], strict=False):
        if not _is_kept(value, cast):
            raise InvalidCallError(f"{text} is no {cast.type}: cast it yourself if that is meant")
    numbered = {str(n): value for n, value in enumerate(scalars[-wanted:], 1)} if wanted else {}
    return found.statement, {**parameters, **numbered}


def check_parameters(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> None:
    """Raise InvalidCallError for parameters that neither a statement has nor the one that it
    EXECUTEs."""
    used = statement.parameters
    if statement.keyword(0) == "EXECUTE" and parameters.keys() - used:
        found = _sessions.get(ctx, {}).get(_name(statement, 1)[0])
        used |= set() if found is None else found.statement.parameters
    for place, token in enumerate(statement.tokens):
        if token.is_name and token.value in {f"${name}" for name in parameters.keys() - used}:
            raise statement.error("this is a name in the session's dialect, not a parameter", place)
    refuse_unused(parameters.keys() - used)


def refuse_unused(names: Collection[str], form: str = "$name") -> None:
    """Raise InvalidCallError for parameters that a statement has no places for, if there are
    any; `form` is how they are written."""
    if names:
        shown = ", ".join(f"${name}" for name in sorted(names))
        raise InvalidCallError(
            f"{shown} is given, and the statement has no such parameter: they are written as {form}"
        )


def deallocate(ctx: datafusion.SessionContext, statement: Statement) -> bool:
    """Let go of the statement of `DEALLOCATE [PREPARE] name`, or of ALL; whether it was known."""
    place = 2 if statement.has(1, "PREPARE") and len(statement) > 2 else 1
    kept = _sessions.get(ctx, {})
    if statement.has(place, "ALL"):
        kept.clear()
        return True
    return kept.pop(_name(statement, place)[0], None) is not None


def _tables(ctx: datafusion.SessionContext, statement: Statement) -> dict[TableName, pa.Schema]:
    """The columns of all tables that its names, of whatever, may stand for."""
    found: dict[TableName, pa.Schema] = {}
    parts: list[Token] = []
    for place, token in enumerate(statement.tokens):
        if not token.is_name:
            continue
        is_further = place > 0 and statement.symbol(place - 1) == "."
        parts = [*(parts if is_further else []), token]
        if len(parts) > NAME_PARTS:
            continue
        for name in ([one.name for one in parts], [one.value for one in parts]):
            table = search_functions(ctx).registered(whole_name(name), ctx)
            if table is not None:
                found[whole_name(name)] = table.columns
    return found


def _check_columns(ctx: datafusion.SessionContext, name: str, prepared: _Prepared) -> None:
    for table, columns in prepared.tables.items():
        now = search_functions(ctx).registered(table, ctx)
        if now is not None and not now.columns.equals(columns):
            raise ReopenError(
                f"the columns of {now.name!r} have changed since PREPARE {name}: DEALLOCATE it, "
                f"and prepare it again for {now.columns.names}"
            )


def _check_numbers(statement: Statement, start: int, types: Collection[str]) -> None:
    """Raise InvalidCallError, with the place, for a parameter that EXECUTE could give no value."""
    for place in range(start, len(statement)):
        token = statement.tokens[place]
        if token.kind != "placeholder":
            continue
        if token.value == "?":
            raise statement.error("parameters are written as $1 or $name", place)
        if token.value[1:].isdecimal() and _number(token) == 0:
            raise statement.error("parameters count from $1", place)
        if types and _number(token) > len(types):
            raise statement.error(f"there is no type for {token.value}, of {len(types)}", place)


def _number(token: Token) -> int:
    """Which value `$1` and its like stand for; 0 for all else."""
    digits = token.value.removeprefix("$")
    return int(digits) if token.kind == "placeholder" and digits.isdecimal() else 0


def _is_kept(value: pa.Scalar, cast: pa.Scalar) -> bool:
    """Whether a cast to numbers kept a value: DataFusion cuts and rounds fractions, makes
    nanoseconds and days of times and dates, and infinity of what is above the largest float."""
    kind = cast.type
    if value.is_valid and pa.types.is_floating(kind):
        return math.isfinite(cast.as_py()) or bool(_NOT_FINITE.search(str(value.as_py())))
    if not value.is_valid or not (pa.types.is_integer(kind) or pa.types.is_decimal(kind)):
        return True
    if pa.types.is_floating(value.type):
        return bool(value.as_py() == float(cast.as_py()))
    if pa.types.is_decimal(value.type):
        return bool(value.as_py() == cast.as_py())
    return not pa.types.is_temporal(value.type)


def _name(statement: Statement, place: int) -> tuple[str, int]:
    if place >= len(statement) or not statement.tokens[place].is_name:
        raise statement.error("the name of a prepared statement is missing", place)
    return statement.tokens[place].name, place + 1
