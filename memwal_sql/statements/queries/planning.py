"""Planning by DataFusion, with errors of this package."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import datafusion
import pyarrow as pa

from exec_nodes.arrow.plain_values import without_missing
from memwal_native.syntax import SqlParser
from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.statements.queries.datafusion_errors import error_of
from memwal_sql.statements.queries.decimal_sums import wide_sums

QUERIES = (
    datafusion.SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
)
_LARGEST = (1 << 63) - 1  # int64, which Arrow takes whole numbers for


def parser_of(ctx: datafusion.SessionContext) -> SqlParser:
    """The parser of a session. Raises UnsupportedError for a session of another dialect."""
    try:
        return SqlParser(ctx)
    except ValueError as error:
        raise UnsupportedError(str(error)) from error


def check_names(ctx: datafusion.SessionContext) -> None:
    """Raise UnsupportedError for a session that does not fold names to lower case: it would find
    other columns than statements mean here."""
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
    *,
    immediate: bool = False,
) -> datafusion.DataFrame:
    """DataFusion's result for a parsed text, whatever the session's class. Only queries are
    allowed, unless the options allow more. `immediate`: DataFusion runs the statement when it plans
    it. Raises InvalidCallError for a text that can't be planned."""
    with planning_errors(text):
        given = scalars(parameters)
        frames: dict[str, datafusion.DataFrame] = {}

        def frame(text: str) -> datafusion.DataFrame:
            if text not in frames:
                frames[text] = datafusion.SessionContext.sql(ctx, text, options, given)
            return frames[text]

        def plan(text: str) -> str:
            shown = frame(f"EXPLAIN {text}" if immediate else text).logical_plan()
            return shown.display_indent_schema()

        return frame(wide_sums(text, plan))


def scalars(parameters: Mapping[str, Any]) -> dict[str, pa.Scalar]:
    """The values of parameters. Raises InvalidCallError for a value that Arrow does not have."""
    return {name: _scalar(name, value) for name, value in parameters.items()}


def _scalar(name: str, value: Any) -> pa.Scalar:
    if isinstance(value, pa.Scalar):
        return value
    try:
        if isinstance(value, pa.Array | pa.ChunkedArray):
            return pa.scalar(value.to_pylist(), pa.list_(value.type))
        if type(value) is int and _LARGEST < value < 1 << 64:
            return pa.scalar(value, pa.uint64())
        return pa.scalar(without_missing(value))
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        if hasattr(value, "__arrow_c_stream__"):
            raise InvalidCallError(
                f"${name} is one value, and can't be the rows of a {type(value).__name__}: "
                f"ctx.from_arrow(rows, name={name!r}) makes them a table of the session"
            ) from None
        raise InvalidCallError(
            f"${name} can't be {value!r} ({error}): give a value that Arrow has, or a text and a "
            f"cast in the statement, as in CAST(${name} AS DECIMAL(38, 0))"
        ) from error


def refuse_unused(names: Collection[str], form: str = "$name") -> None:
    """Raise InvalidCallError for parameters that a statement does not use, if any; `form` is how
    they are written."""
    if names:
        shown = ", ".join(f"${name}" for name in sorted(names))
        raise InvalidCallError(
            f"{shown} is given, but the statement has no such parameter: parameters are "
            f"written {form}"
        )


def check_table(ctx: datafusion.SessionContext, name: str) -> None:
    """Raise InvalidCallError if a session has no table of this name, written as in SQL."""
    planned(ctx, f"SELECT 1 FROM {name}", {})  # noqa: S608 - the user's own text


@contextmanager
def planning_errors(text: str = "") -> Iterator[None]:
    """A context in which DataFusion's errors about a text become InvalidCallError, and a failure of
    a MemWAL table raises its own error."""
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
    """The values of expressions without columns, as Arrow scalars."""
    if not expressions:
        return []
    shown = ", ".join(f"({text}) AS c{place}" for place, text in enumerate(expressions))
    with planning_errors():
        row = planned(ctx, f"SELECT {shown}", parameters).to_arrow_table()
    return [column[0] for column in row.columns]


def time_of(value: pa.Scalar) -> datetime:
    """A timestamp as a Python datetime: cut to microseconds, in UTC if it has no zone.

    Raises InvalidCallError for a time or a zone that Python does not have.
    """
    kind = value.type
    try:
        at: datetime = value.cast(pa.timestamp("us", kind.tz), safe=kind.unit != "ns").as_py()
    except (pa.ArrowException, OverflowError) as error:
        raise InvalidCallError(
            f"a time must be in the years 1 to 9999, and in a known zone, not {kind} of "
            f"{value.value}: {error}"
        ) from error
    return at.replace(tzinfo=UTC) if at.tzinfo is None else at


def answer(ctx: datafusion.SessionContext, rows: pa.Table) -> datafusion.DataFrame:
    """A frame of rows in memory, which has no name in the session."""
    return ctx.read_batches(batches_of(rows))


def batches_of(rows: pa.Table) -> list[pa.RecordBatch]:
    """One batch at least, which has the schema."""
    return rows.to_batches() or [pa.RecordBatch.from_pylist([], rows.schema)]
