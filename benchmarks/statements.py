"""Writes that depend on the rows that are there, against upserts of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow.compute as pc

import memwal_sql as mw
from benchmarks.support.data import check_same, rows
from benchmarks.support.result import Result, at_most_ratio
from benchmarks.support.timing import interleaved
from benchmarks.support.workspace import Workspace, enabled_table

_REGIONS = 4
_WARM_UP = 3


def statements(work: Workspace) -> Iterator[Result]:
    """Calls for keys that are there, in the base table and in memory, each waited for."""
    sizes = work.sizes
    base = rows(np.arange(10 * sizes.append_rows, dtype=np.int64), 1)
    table = enabled_table(work.folder / "statements", base, regions=[mw.bucket("id", _REGIONS)])
    given = rows(np.arange(sizes.append_rows, dtype=np.int64) * 10, 2)
    partial = given.drop_columns(["name"])
    with table.writer(durable=True) as writer:
        works: dict[str, Callable[[], Any]] = {
            "upserts": lambda: writer.upsert(given),
            "columns kept": lambda: writer.upsert(partial),
            "a condition": lambda: writer.upsert(given, when="t.id <= s.id"),
            "an expression": lambda: writer.upsert(partial, set={"val": "greatest(t.val, s.val)"}),
        }
        times = interleaved(works, sizes.appends, _WARM_UP)
        found = table.get(given.select(["id"]))
    check_same(found, given, "statements")
    others = table.to_arrow(filter="id % 10 <> 0")
    check_same(others, base.filter(pc.not_equal(_last_digit(base), 0)), "rows not written")
    for name in list(works)[1:]:
        line = f"upserts of {sizes.append_rows:,} rows that are there, {name}, {_REGIONS} regions"
        yield at_most_ratio(line, times[name], times["upserts"], "upserts", 3)


def _last_digit(table: Any) -> Any:
    ids = table["id"]
    return pc.subtract(ids, pc.multiply(pc.divide(ids, 10), 10))
