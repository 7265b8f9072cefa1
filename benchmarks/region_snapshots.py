"""Recording the states of many regions, and planning from the record."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.data import WrongResultError, rows
from benchmarks.support.result import Reach, Result, at_most_ratio
from benchmarks.support.timing import interleaved, lower_quartile, seconds
from benchmarks.support.workspace import Workspace, enabled_table
from planner.model import Query
from planner.plan import plan
from planner.predicates.expr import Compare, Literal, Operand

_RECORDS = 3
_IN_A_ROW = 50  # plans take some ten microseconds
_OF_ONE_KEY = [Compare(Operand("id"), "=", Literal(pa.int64(), 7))]


def region_snapshots(work: Workspace) -> Iterator[Result]:
    """Every region has one flushed generation; the other table has all rows in one region."""
    count = work.sizes.regions
    many = _table(work, "many-regions", count, [mw.identity("id")])
    one = _table(work, "one-region", count, [mw.bucket("id", 1)])
    taken = lower_quartile([seconds(many.snapshot_regions) for _ in range(_RECORDS)])
    reach = Reach(taken, 2.0, "at most", "s")
    yield Result(f"snapshot of {count:,} regions", taken, "s", reach=reach)
    one.snapshot_regions()
    for table in (many, one):
        if len(table.snapshot("eventual", _OF_ONE_KEY).regions) != 1:
            raise WrongResultError(f"{table.uri}: a query for one key reads several regions")
    times = interleaved({"many": lambda: _plan(many), "one": lambda: _plan(one)}, work.sizes.rounds)
    yield at_most_ratio(
        f"planning for one region of {count:,}, {_IN_A_ROW} times",
        times["many"],
        times["one"],
        "a table with one",
        1.2,
    )


def _table(work: Workspace, name: str, count: int, regions: list[object]) -> mw.Table:
    one_each = rows(np.arange(count, dtype=np.int64), 1)
    table = enabled_table(work.folder / name, one_each.slice(0, 0), regions=regions)
    with table.writer(durable=False) as writer:
        writer.upsert(one_each)
        writer.flush()
    return mw.open_table(table.uri)


def _plan(table: mw.Table) -> None:
    for _ in range(_IN_A_ROW):
        plan(Query(("id", "val")), table.snapshot("eventual", _OF_ONE_KEY))
