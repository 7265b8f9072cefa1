"""Columns that the rows of a write lack: kept, null or refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from exec_nodes.arrow.struct_fields import FILL_OPTION
from memwal_sql.errors import InvalidCallError

KEEP: Final = "keep"
ERROR: Final = "error"
NULL: Final = "null"
MissingInInsert = Literal["error", "null"]
MissingInUpsert = Literal["keep", "error", "null"]


def missing_columns(what: str, names: Sequence[str]) -> InvalidCallError:
    """The error for rows without these columns; `what` says which rows."""
    return InvalidCallError(
        f"{what} the columns {list(names)} of the table, and whole rows are written: give "
        f"every column, or {FILL_OPTION} to set these to null"
    )


def check_missing(value: str, *more: str) -> None:
    """Raise InvalidCallError unless `value` is a choice for missing columns, or one of `more`."""
    if value not in (options := (*more, ERROR, NULL)):
        raise InvalidCallError(f"missing={value!r} must be one of {list(options)}")
