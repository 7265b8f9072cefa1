"""CALL: the jobs of a table as statements.

CALL memwal.merge('events')
CALL memwal.collect_garbage('events', older_than => INTERVAL '2 hours', dry_run => true)
"""

import inspect
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import datafusion
import pyarrow as pa

from memwal_sql.errors import InvalidCallError
from memwal_sql.session.table_functions import search_functions, table_name
from memwal_sql.statements.queries.planning import answer, moment_of, values
from memwal_sql.statements.queries.tokens import Statement

_SCHEMA = "memwal"
# The methods of a table that can be called; the column of what they return unless that is a table.
_PROCEDURES: Mapping[str, pa.Field | None] = {
    "build_indexes": pa.field("index", pa.string()),
    "check": None,
    "checkpoint": pa.field("version", pa.uint64()),
    "checkpoints": None,
    "collect_garbage": None,
    "compact": pa.field("fragments", pa.uint64()),
    "drop_checkpoint": None,
    "drop_index": None,
    "flush": pa.field("regions", pa.uint64()),
    "merge": pa.field("generations", pa.uint64()),
    "snapshot_regions": pa.field("version", pa.uint64()),
}
# Arguments that a statement has no values for.
_LEFT_OUT = {"progress"}
_NANOSECONDS = 1000


def called(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    """Run `CALL memwal.procedure('table', argument, name => argument, ...)`; the frame has what the
    method of `Table` of that name returns. None for a procedure of somebody else.

    Raises InvalidCallError, with the place, for an unknown procedure, table or argument.
    """
    parts, place = statement.table(1)
    if parts[0] != _SCHEMA:
        if parts[-1] in _PROCEDURES:
            raise statement.error(f"this is CALL {_SCHEMA}.{parts[-1]}('table', ...)", 1)
        return None
    name = ".".join(parts[1:])
    if name not in _PROCEDURES:
        raise statement.error(f"no such procedure; there are {sorted(_PROCEDURES)}", place - 1)
    if statement.symbol(place) != "(" or statement.closing(place) != len(statement):
        raise statement.error("arguments in parentheses must follow the procedure", place)
    given, named = _arguments(ctx, statement, place, parameters)
    if not given or not isinstance(given[0], str):
        raise statement.error("the first argument must be a table's name in quotes", place + 1)
    found = search_functions(ctx).table(table_name(given[0]), ctx)
    if found is None:
        raise statement.error("the session has no MemWAL table of this name", place + 1)
    method = getattr(found[0], name)
    known = [
        one for one in inspect.signature(method).parameters.values() if one.name not in _LEFT_OUT
    ]
    try:
        bound = inspect.Signature(known).bind(*given[1:], **named)
    except TypeError as error:
        takes = ", ".join(["table", *(one.name for one in known)])
        raise statement.error(f"{name} takes ({takes}): {error}", place - 1) from None
    return answer(ctx, _table(method(**bound.arguments), _PROCEDURES[name]))


def _arguments(
    ctx: datafusion.SessionContext,
    statement: Statement,
    place: int,
    parameters: Mapping[str, Any],
) -> tuple[list[Any], dict[str, Any]]:
    names: list[str] = []
    texts: list[str] = []
    for first, last in statement.split(place + 1, len(statement) - 1):
        is_named = statement.symbol(first + 1) == "=>"
        if names and names[-1] and not is_named:
            raise statement.error("an argument without a name follows one with a name", first)
        name = statement.tokens[first].name if is_named else ""
        if name and name in names:
            raise statement.error("this argument is given twice", first)
        start = first + 2 if is_named else first
        if start == last:
            raise statement.error("the value of this argument is missing", first)
        names.append(name)
        texts.append(statement.slice(start, last))
    found = [_python(one) for one in values(ctx, texts, parameters)]
    pairs = list(zip(names, found, strict=True))
    return [one for name, one in pairs if not name], {name: one for name, one in pairs if name}


def _python(value: Any) -> Any:
    """A value as methods take it: intervals as timedelta, times in UTC if they have no zone."""
    if pa.types.is_timestamp(value.type) and value.is_valid:
        return moment_of(value)
    found = value.as_py()
    if isinstance(found, pa.MonthDayNano):
        if found.months:
            raise InvalidCallError(f"{found} has no length: give days, hours or seconds")
        return timedelta(days=found.days, microseconds=found.nanoseconds // _NANOSECONDS)
    return found


def _table(result: Any, column: pa.Field | None) -> pa.Table:
    """What a method returned, as rows; of nothing, none."""
    if column is not None:
        rows = result if isinstance(result, list) else [result]
        return pa.table([pa.array(rows, column.type)], pa.schema([column]))
    if result is None:
        return pa.table({})
    return result if isinstance(result, pa.Table) else result.to_arrow()
