"""The options of CREATE EXTERNAL TABLE ... STORED AS MEMWAL of `mw.sql`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memwal_sql.errors import InvalidCallError
from memwal_sql.storage.objects.options import check_statement_options
from memwal_sql.write.ingest.missing import ERROR

FORMAT = "MEMWAL"
_PREFIX = "memwal."
_STORAGE = "storage."
_OPENING = ("version", "timestamp", "checkpoint")
_REGISTERING = ("consistency", "missing")


def options_of(options: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keyword arguments of `open_table` and of `register` for the options of a statement:
    `consistency` and `missing`; `version`, `timestamp` or `checkpoint`; and `storage.NAME` for a
    storage option.

    Raises InvalidCallError for an unknown option, and for a storage option that a statement can't
    set.
    """
    opening: dict[str, Any] = {}
    registering = {"consistency": "strong", "missing": ERROR}
    storage: dict[str, str] = {}
    for key, value in options.items():
        name = key.removeprefix(_PREFIX)
        if name.startswith(_STORAGE):
            storage[name.removeprefix(_STORAGE)] = value
        elif name in registering:
            registering[name] = value
        elif name == "version":
            opening[name] = _version(value)
        elif name in _OPENING:
            opening[name] = value
        else:
            names = [*_REGISTERING, *_OPENING, f"{_STORAGE}NAME"]
            raise InvalidCallError(f"{name!r} is not an option of a table; there are {names}")
    check_statement_options(storage)
    if storage:
        opening["storage_options"] = storage
    return opening, registering


def _version(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise InvalidCallError(f"the option version={value!r} must be a number") from None
