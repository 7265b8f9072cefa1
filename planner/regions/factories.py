"""The region fields a user writes: `bucket("id", 16)`, `year("day")`, ... (specification 1,
"Region Transform"). A field learns its result type when `validate` binds it to a schema."""

from __future__ import annotations

from dataclasses import replace

from exec_nodes.base.errors import InvalidCallError
from planner.regions.field import RegionField
from planner.regions.spec import MANUAL_SPEC_ID, RegionSpec


def identity(column: str, name: str | None = None) -> RegionField:
    """One region for each value of `column`."""
    return RegionField(name or column, (column,), transform="identity")


def year(column: str, name: str | None = None) -> RegionField:
    """One region for each calendar year (UTC) of a date or timestamp column."""
    return _date_part("year", column, name)


def month(column: str, name: str | None = None) -> RegionField:
    """One region for each month of the year, 1 to 12 (UTC), of a date or timestamp column.

    It is a calendar part: January of all years is one region. Combine it with `year`.
    """
    return _date_part("month", column, name)


def day(column: str, name: str | None = None) -> RegionField:
    """One region for each day of the month, 1 to 31 (UTC), of a date or timestamp column."""
    return _date_part("day", column, name)


def hour(column: str, name: str | None = None) -> RegionField:
    """One region for each hour of the day, 0 to 23 (UTC), of a timestamp or time column."""
    return _date_part("hour", column, name)


def bucket(column: str, num_buckets: int, name: str | None = None) -> RegionField:
    """`abs(murmur3(column)) % num_buckets`; NULL is a region of its own (protocol rule 12).

    LanceDB refuses a table with such buckets: see `lance_bucket`.
    """
    return _bucket("bucket", (column,), num_buckets, name)


def lance_bucket(column: str, num_buckets: int, name: str | None = None) -> RegionField:
    """One of at most 1024 buckets by Lance's own function, for tables that LanceDB or Lance's
    MemWAL writers are to write too: they know no other.

    It spreads keys as evenly as `bucket` does, but hashes integers by their width and texts in a
    way of its own, so that no other program of the specification finds a row's bucket. Choose
    `bucket` for everything else. Columns are integers, booleans, strings, dates of days, times or
    timestamps.
    """
    return replace(bucket(column, num_buckets, name), native=True)


def multi_bucket(
    columns: list[str] | tuple[str, ...], num_buckets: int, name: str | None = None
) -> RegionField:
    """`abs(murmur3_multi(columns...)) % num_buckets`; NULLs are left out of the hash."""
    if isinstance(columns, str) or not columns:
        raise InvalidCallError(f"multi_bucket needs a list of columns, got {columns!r}")
    return _bucket("multi_bucket", tuple(columns), num_buckets, name)


def truncate(column: str, width: int, name: str | None = None) -> RegionField:
    """The first `width` characters of a string, or a number rounded toward zero to a multiple of
    `width`."""
    return RegionField(
        name or f"{column}_truncate",
        (column,),
        transform="truncate",
        parameters={"width": str(_positive("width", width))},
    )


def expression(
    sql: str, *columns: str, result_type: str = "", name: str | None = None
) -> RegionField:
    """A DataFusion SQL expression over `columns`, named `col0`, `col1`, ... in `sql`.

    It must be deterministic and use nothing but these columns: functions that are not known to be
    so are refused.
    `result_type` is a type name as in `"int32"`, `"int64"`, `"utf8"`; empty takes what comes out.
    """
    if not columns:
        raise InvalidCallError(f"the region expression {sql!r} needs at least one source column")
    for text in (sql, *columns):
        if not isinstance(text, str):
            raise InvalidCallError(
                f"{text!r} must be text, as in expression('col0 + col1', 'x', 'y')"
            )
    return RegionField(
        name or "_".join(columns) + "_expression",
        columns,
        expression=sql,
        result_type=result_type,
    )


def unsharded(name: str | None = None) -> RegionField:
    """One region for all rows."""
    return RegionField(
        name or "unsharded", (), transform="unsharded", result_type="int32", native=True
    )


def manual() -> RegionSpec:
    """Regions that the caller names itself (spec id 0); a key must always go to the same one."""
    return RegionSpec(MANUAL_SPEC_ID, ())


def _date_part(part: str, column: str, name: str | None) -> RegionField:
    return RegionField(name or f"{column}_{part}", (column,), transform=part, result_type="int32")


def _bucket(
    transform: str, columns: tuple[str, ...], num_buckets: int, name: str | None
) -> RegionField:
    return RegionField(
        name or "_".join(columns) + "_bucket",
        columns,
        transform=transform,
        result_type="int32",
        parameters={"num_buckets": str(_positive("num_buckets", num_buckets))},
    )


def _positive(what: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31:
        raise InvalidCallError(f"{what}={value!r} must be an integer from 1 to 2147483647")
    return value
