"""Region fields from a text, as in option("regions", "bucket(id, 8), day(ts)")."""

from __future__ import annotations

import re
from collections.abc import Callable

from memwal_sql.errors import InvalidCallError
from planner.regions import factories
from planner.regions.field import RegionField

_CALL = re.compile(r"\s*([A-Za-z_]+)\s*\(([^()]*)\)\s*(,|$)")
# Makers by name; those of the second kind take a whole number after their columns.
_OF_COLUMNS: dict[str, Callable[..., RegionField]] = {
    "identity": factories.identity,
    "year": factories.year,
    "month": factories.month,
    "day": factories.day,
    "hour": factories.hour,
    "unsharded": factories.unsharded,
}
_WITH_NUMBER: dict[str, Callable[..., RegionField]] = {
    "bucket": factories.bucket,
    "lance_bucket": factories.lance_bucket,
    "truncate": factories.truncate,
    "multi_bucket": lambda *rest: factories.multi_bucket(rest[:-1], rest[-1]),
}


def region_fields(text: str) -> list[RegionField]:
    """The fields that the functions of the same names in `memwal_sql` give.

    Raises InvalidCallError naming the part that is none.
    """
    fields, position = [], 0
    while position < len(text):
        call = _CALL.match(text, position)
        if call is None:
            raise _refused(text, f"{text[position:].strip()!r} is no call")
        fields.append(_field(text, call[1].lower(), call[2]))
        position = call.end()
    if not fields or text.rstrip().endswith(","):
        raise _refused(text, "a function is missing")
    return fields


def _field(text: str, name: str, between: str) -> RegionField:
    arguments = [one.strip().strip("`\"'") for one in between.split(",")] if between.strip() else []
    wanted = 0 if name == "unsharded" else 1
    if name in _OF_COLUMNS and len(arguments) == wanted:
        return _OF_COLUMNS[name](*arguments)
    if name in _WITH_NUMBER and len(arguments) >= 2 and arguments[-1].isdecimal():
        columns = arguments[:-1]
        if name == "multi_bucket" or len(columns) == 1:
            return _WITH_NUMBER[name](*columns, int(arguments[-1]))
    raise _refused(text, f"{name}({between}) is none of the functions, or has other arguments")


def _refused(text: str, reason: str) -> InvalidCallError:
    return InvalidCallError(
        f"regions={text!r}: {reason}. Write functions of key columns, separated by commas: "
        "bucket(id, 8), lance_bucket(id, 8), multi_bucket(a, b, 8), truncate(name, 3), "
        "identity(country), year(ts), month(ts), day(ts), hour(ts) or unsharded()"
    )
