"""CALL: the jobs of a table as statements.

CALL memwal.merge('events')
CALL memwal.collect_garbage('events', older_than => INTERVAL '2 hours', dry_run => true)
"""

import inspect
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from operator import attrgetter
from typing import Any

import datafusion
import pyarrow as pa

from memwal_native.syntax import Call
from memwal_sql.errors import InvalidCallError
from memwal_sql.maintain.loop import run_all_jobs
from memwal_sql.session.registered import table_name
from memwal_sql.session.session import session_of
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.planning import answer, time_of, values
from memwal_sql.write.result import WriteResult

_SCHEMA = "memwal"


def _run_all_jobs(table: Any) -> pa.Table:
    runs = run_all_jobs(table)
    names = ("job", "outcome", "seconds")
    return pa.table({name: [getattr(run, name) for run in runs] for name in names})


# Procedures that are not methods of a table of the same name.
_CALLS: Mapping[str, Callable[[Any], Callable[..., Any]]] = {
    "create_tag": attrgetter("tags.create"),
    "drop_tag": attrgetter("tags.delete"),
    "run_all_jobs": lambda table: partial(_run_all_jobs, table),
}
# Procedures, methods of a table and these -> the column of their result, None for a table.
_PROCEDURES: Mapping[str, pa.Field | None] = {
    "build_indexes": pa.field("index", pa.string()),
    "check": None,
    "checkpoint": pa.field("version", pa.uint64()),
    "checkpoints": None,
    "collect_garbage": None,
    "compact": pa.field("fragments", pa.uint64()),
    "create_tag": pa.field("version", pa.uint64()),
    "drop_checkpoint": None,
    "drop_index": None,
    "drop_tag": None,
    "flush": pa.field("regions", pa.uint64()),
    "merge": pa.field("generations", pa.uint64()),
    "restore": pa.field("rows", pa.uint64()),
    "run_all_jobs": None,
    "snapshot_regions": pa.field("version", pa.uint64()),
}
# Parameters that a statement can't give a value for.
_LEFT_OUT = {"progress"}
_NANOSECONDS = 1000


def run_call(
    ctx: datafusion.SessionContext, statement: Statement, call: Call, parameters: Mapping[str, Any]
) -> datafusion.DataFrame | None:
    """Run `CALL memwal.procedure('table', argument, name => argument, ...)` and return the result
    of the `Table` method or the function of that name. None for a procedure in another schema.

    Raises InvalidCallError, with the place, for an unknown procedure, table or argument.
    """
    parts, at = call.name.parts, call.name.start
    if parts[0] != _SCHEMA:
        if parts[-1] in _PROCEDURES:
            raise statement.error(f"write CALL {_SCHEMA}.{parts[-1]}('table', ...)", at)
        return None
    name = ".".join(parts[1:])
    if name not in _PROCEDURES:
        raise statement.error(f"no such procedure; there are {sorted(_PROCEDURES)}", at)
    positional, named = _arguments(ctx, statement, call, parameters)
    if not positional or not isinstance(positional[0], str):
        raise statement.error("the first argument must be a table's name in quotes", at)
    registered = session_of(ctx).table(table_name(positional[0]), ctx)
    if registered is None:
        message = "the session has no MemWAL table of this name"
        raise statement.error(message, call.arguments[0][1].start)
    method = _CALLS.get(name, attrgetter(name))(registered[0])
    taken = [p for p in inspect.signature(method).parameters.values() if p.name not in _LEFT_OUT]
    try:
        bound = inspect.Signature(taken).bind(*positional[1:], **named)
    except TypeError as error:
        takes = ", ".join(["table", *(parameter.name for parameter in taken)])
        raise statement.error(f"{name} takes ({takes}): {error}", at) from None
    return answer(ctx, _table(method(**bound.arguments), _PROCEDURES[name]))


def _arguments(
    ctx: datafusion.SessionContext, statement: Statement, call: Call, parameters: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """The values of positional arguments, and of named ones."""
    texts = [expression.text for _, expression in call.arguments]
    positional, named = list[Any](), dict[str, Any]()
    arguments = zip(call.arguments, values(ctx, texts, parameters), strict=True)
    for (name, expression), value in arguments:
        if not name and named:
            message = "a positional argument can't follow a named one"
            raise statement.error(message, expression.start)
        if name in named:
            raise statement.error("this argument is given twice", expression.start)
        if name:
            named[name] = _python(value)
        else:
            positional.append(_python(value))
    return positional, named


def _python(value: Any) -> Any:
    """A value as methods take it: intervals as timedelta, times without a zone in UTC."""
    if pa.types.is_timestamp(value.type) and value.is_valid:
        return time_of(value)
    plain = value.as_py()
    if isinstance(plain, pa.MonthDayNano):
        if plain.months:
            raise InvalidCallError(f"{plain} has no length: give days, hours or seconds")
        return timedelta(days=plain.days, microseconds=plain.nanoseconds // _NANOSECONDS)
    return plain


def _table(result: Any, column: pa.Field | None) -> pa.Table:
    """A method's result as rows; no rows for None."""
    if column is not None:
        result = result.rows if isinstance(result, WriteResult) else result
        rows = result if isinstance(result, list) else [result]
        return pa.table([pa.array(rows, column.type)], pa.schema([column]))
    if result is None:
        return pa.table({})
    return result if isinstance(result, pa.Table) else result.to_arrow()
