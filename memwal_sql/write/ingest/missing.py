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


def ragged_row(row: int, names: Sequence[str], missing: str) -> InvalidCallError:
    """The error for a row without these columns, which other rows of the call have."""
    if missing != KEEP:
        return missing_columns(f"row {row} lacks", names)
    return InvalidCallError(
        f"row {row} lacks the columns {list(names)} that other rows have: give all rows of a call "
        f"the same columns, or {FILL_OPTION} to set these to null"
    )


def check_missing(value: str, *more: str) -> None:
    """Raise InvalidCallError unless `value` is a choice for missing columns, or one of `more`."""
    if value not in (options := (*more, ERROR, NULL)):
        raise InvalidCallError(f"missing={value!r} must be one of {list(options)}")
