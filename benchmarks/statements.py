"""Writes that depend on the rows that are there, against upserts of the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow.compute as pc
from datafusion import SessionContext

import memwal_sql as mw
from benchmarks.support.data import check_same, rows, shuffled
from benchmarks.support.result import Result, at_most_ratio
from benchmarks.support.timing import interleaved
from benchmarks.support.workspace import Workspace, enabled_table

_REGIONS = 4
_WARM_UP = 3
# Of the rows that a DELETE takes; as many are deleted by their keys.
_TENTHS = 5


def statements(work: Workspace) -> Iterator[Result]:
    """Calls for keys that are there, in the base table and in memory, each waited for."""
    sizes = work.sizes
    base = rows(np.arange(10 * sizes.append_rows, dtype=np.int64), 1)
    table = enabled_table(work.folder / "statements", base, regions=[mw.bucket("id", _REGIONS)])
    changed = rows(np.arange(sizes.append_rows, dtype=np.int64) * 10, 2)
    partial = changed.drop_columns(["name"])
    with table.writer(durable=True) as writer:
        works: dict[str, Callable[[], Any]] = {
            "upserts": lambda: writer.upsert(changed),
            "columns kept": lambda: writer.upsert(partial),
            "a condition": lambda: writer.upsert(changed, when="t.id <= s.id"),
            "an expression": lambda: writer.upsert(partial, set={"val": "greatest(t.val, s.val)"}),
        }
        times = interleaved(works, sizes.appends, _WARM_UP)
        rows_read = table.get(changed.select(["id"]))
    check_same(rows_read, changed, "statements")
    others = table.to_arrow(filter="id % 10 <> 0")
    check_same(others, base.filter(pc.not_equal(_last_digit(base), 0)), "rows not written")
    for name in list(works)[1:]:
        line = f"upserts of {sizes.append_rows:,} rows that are there, {name}, {_REGIONS} regions"
        yield at_most_ratio(line, times[name], times["upserts"], "upserts", 3)


def sql_statements(work: Workspace) -> Iterator[Result]:
    """MERGE on the primary key and DELETE by another column, against what they write alone."""
    sizes = work.sizes
    count = sizes.base_rows
    table = enabled_table(
        work.folder / "sql",
        rows(np.arange(count, dtype=np.int64), 1),
        regions=[mw.bucket("id", _REGIONS)],
    )
    context = SessionContext()
    mw.register(context, "t", table)
    many = 2 * sizes.append_rows
    changed = rows(shuffled(2 * count)[:many], 2)  # half of them are new
    context.register_record_batches("given", [changed.to_batches()])
    merge = """
        MERGE INTO t USING given AS s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET val = s.val, name = s.name
        WHEN NOT MATCHED THEN INSERT *
    """
    tenths = iter(range(2 * _TENTHS))

    with table.writer(durable=True) as writer:
        works: dict[str, Callable[[], Any]] = {
            "upserts": lambda: writer.upsert(changed),
            "merge": lambda: mw.sql(context, merge),
        }
        times = interleaved(works, sizes.rounds, _WARM_UP)
        check_same(table.get(changed.select(["id"])), changed, "MERGE")

        def condition() -> str:
            at = next(tenths)
            return f"val >= {at / 10} AND val < {(at + 1) / 10}"

        def scanned() -> None:
            matching = context.sql(f"SELECT id FROM t WHERE {condition()}").to_arrow_table()
            writer.delete(matching)

        deletes: dict[str, Callable[[], Any]] = {
            "scan": scanned,
            "delete": lambda: mw.sql(context, f"DELETE FROM t WHERE {condition()}"),
        }
        times |= interleaved(deletes, _TENTHS, 0)
    assert len(table.to_arrow(filter="val < 1")) == 0
    line = f"MERGE of {many:,} rows into {count:,} on the primary key"
    yield at_most_ratio(line, times["merge"], times["upserts"], "upserts", 5)
    line = f"DELETE of a tenth of {count:,} rows by a condition"
    yield at_most_ratio(line, times["delete"], times["scan"], "a scan and its keys deleted", 3)


def _last_digit(table: Any) -> Any:
    ids = table["id"]
    return pc.subtract(ids, pc.multiply(pc.divide(ids, 10), 10))
