"""The columns of a new table, as CREATE TABLE and ALTER TABLE write them; DataFusion parses
each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import datafusion
import pyarrow as pa

from exec_nodes.arrow.nested import inner_fields, with_inner_fields
from exec_nodes.base.interrupts import is_native
from exec_nodes.base.threads import beyond_signals
from memwal_native.syntax import Column, Part
from memwal_sql.arguments import quoted
from memwal_sql.state.defaults import with_default
from memwal_sql.statements.changes.fitting import fitted
from memwal_sql.statements.queries.datafusion_errors import error_of
from memwal_sql.statements.queries.parsed import Statement
from memwal_sql.statements.queries.places import StatementError

_TYPES = {
    # Lance stores no views, and a time with a zone needs a time zone.
    "datafusion.sql_parser.map_string_types_to_utf8view": "false",
    "datafusion.execution.time_zone": "UTC",
}


_NANOSECONDS = re.compile(r"TIMESTAMP(?:TZ)?\s*\(\s*9\s*\)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns, and the names of the primary key's; no names if none is given."""

    schema: pa.Schema
    primary_key: tuple[str, ...]


def columns_of(statement: Statement, written: Sequence[Column]) -> Columns:
    """The columns and the primary key of a list of columns.

    Raises InvalidCallError, with the place, for an unknown type, and for two primary keys.
    """
    fields = [_field(statement, column) for column in written if column.name is not None]
    keys = [tuple(column.key) for column in written if column.key]
    if len(keys) > 1:
        raise statement.error("only one primary key can be given", written[0].start)
    return Columns(pa.schema(fields), keys[0] if keys else ())


def _field(statement: Statement, column: Column) -> pa.Field:
    config = datafusion.SessionConfig()
    for name, value in _TYPES.items():
        config = config.set(name, value)
    scratch = datafusion.SessionContext(config)
    text = f"CREATE TABLE one ({quoted(str(column.name))} {column.kind})"
    try:
        scratch.sql(text)  # one column, in a session of its own
        (field,) = beyond_signals(partial(scratch.table, "one")).schema()
    except Exception as error:
        if not is_native(error):
            raise
        reason = error_of(error)
        shown = reason.message if isinstance(reason, StatementError) else reason or error
        raise statement.error(f"the column can't be read: {shown}", column.start) from None
    if not _NANOSECONDS.search(column.kind):
        field = field.with_type(_in_microseconds(field.type))
    return field if column.default is None else with_default(field, constant(field, column.default))


def _in_microseconds(kind: pa.DataType) -> pa.DataType:
    """A type with microseconds in the place of the nanoseconds of timestamps, nested ones included:
    DataFusion makes nanoseconds of TIMESTAMP, which end in 2262; other databases do not."""
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return pa.timestamp("us", kind.tz)
    fields = [f.with_type(_in_microseconds(f.type)) for f in inner_fields(kind)]
    return with_inner_fields(kind, fields) if fields else kind


def constant(field: pa.Field, written: Part) -> pa.Scalar:
    """A constant as written, in the type of its column. Raises InvalidCallError for a value that
    does not fit."""
    (column,) = datafusion.SessionContext().sql(f"SELECT {written.text}").to_arrow_table().columns
    return fitted(column, field)[0]
