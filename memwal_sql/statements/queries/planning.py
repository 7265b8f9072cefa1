"""Planning by DataFusion, with errors of ours."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import datafusion
import pyarrow as pa

from memwal_native.syntax import SqlParser
from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.statements.queries.datafusion_errors import error_of

QUERIES = (
    datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
)
_LARGEST = (1 << 63) - 1  # int64, which Arrow takes whole numbers for


def parser_of(ctx: datafusion.SessionContext) -> SqlParser:
    """The parser of a session. Raises UnsupportedError where that reads another dialect."""
    try:
        return SqlParser(ctx)
    except ValueError as error:
        raise UnsupportedError(str(error)) from error


def check_names(ctx: datafusion.SessionContext) -> None:
    """Raise UnsupportedError where a session takes names as they are written: a column could be
    another one than statements are read for here."""
    if not parser_of(ctx).normalizes:
        raise UnsupportedError(
            "statements that change or define tables need a session in which a name is in lower "
            "case unless it is in double quotes: set datafusion.sql_parser."
            "enable_ident_normalization to true"
        )


def planned(
    ctx: datafusion.SessionContext,
    text: str,
    parameters: Mapping[str, Any],
    options: datafusion.SQLOptions = QUERIES,
) -> datafusion.DataFrame:
    """What DataFusion itself makes of a text that has been parsed, whatever class the session is
    of: of a query, unless the options allow more. Raises InvalidCallError for what it can't plan.
    """
    with planning_errors(text):
        return datafusion.SessionContext.sql(ctx, text, options, scalars(parameters))


def scalars(parameters: Mapping[str, Any]) -> dict[str, pa.Scalar]:
    """The values of parameters. Raises InvalidCallError for what Arrow has no value for."""
    return {name: _scalar(name, value) for name, value in parameters.items()}


def _scalar(name: str, value: Any) -> pa.Scalar:
    if isinstance(value, pa.Scalar):
        return value
    try:
        if isinstance(value, pa.Array | pa.ChunkedArray):
            return pa.scalar(value.to_pylist(), pa.list_(value.type))
        if type(value) is int and _LARGEST < value < 1 << 64:
            return pa.scalar(value, pa.uint64())
        return pa.scalar(value)
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        if hasattr(value, "__arrow_c_stream__"):
            raise InvalidCallError(
                f"${name} is a value, and can't be the rows of a {type(value).__name__}: "
                f"ctx.from_arrow(rows, name={name!r}) makes them a table of the session"
            ) from None
        raise InvalidCallError(
            f"${name} can't be {value!r} ({error}): give a value that Arrow has, or a text, and "
            f"cast it in the statement, as in CAST(${name} AS DECIMAL(38, 0))"
        ) from error


def refuse_unused(names: Collection[str], form: str = "$name") -> None:
    """Raise InvalidCallError for parameters that a statement has no places for, if there are
    any; `form` is how they are written."""
    if names:
        shown = ", ".join(f"${name}" for name in sorted(names))
        raise InvalidCallError(
            f"{shown} is given, and the statement has no such parameter: they are written as {form}"
        )


def check_table(ctx: datafusion.SessionContext, name: str) -> None:
    """Raise InvalidCallError where a session has no table of a name, which is as it is written."""
    planned(ctx, f"SELECT 1 FROM {name}", {})  # noqa: S608 - the user's own text


@contextmanager
def planning_errors(text: str = "") -> Iterator[None]:
    """Within it, what DataFusion refuses of a text is an InvalidCallError, and what failed in a
    table of ours is its own error."""
    try:
        yield
    except Exception as error:  # DataFusion raises nothing more specific
        ours = error_of(error, text)
        if ours is None or ours is error:
            raise
        raise ours from error


def values(
    ctx: datafusion.SessionContext, expressions: list[str], parameters: Mapping[str, Any]
) -> list[Any]:
    """What expressions without columns come to, as Arrow's scalars."""
    if not expressions:
        return []
    shown = ", ".join(f"({text}) AS c{place}" for place, text in enumerate(expressions))
    with planning_errors():
        row = planned(ctx, f"SELECT {shown}", parameters).to_arrow_table()
    return [column[0] for column in row.columns]


def time_of(value: pa.Scalar) -> datetime:
    """A timestamp as Python has it: cut to microseconds, and in UTC if it says no zone.

    Raises InvalidCallError for a time, or a zone, that Python has not.
    """
    kind = value.type
    try:
        at: datetime = value.cast(pa.timestamp("us", kind.tz), safe=kind.unit != "ns").as_py()
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidCallError(
            f"a time must be of the years 1 to 9999, in a zone that is known, not {kind} of "
            f"{value.value}: {error}"
        ) from error
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def answer(ctx: datafusion.SessionContext, rows: pa.Table) -> datafusion.DataFrame:
    """A frame of rows in memory, which the session has under no name."""
    return ctx.read_batches(rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)])
