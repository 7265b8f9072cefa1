"""Opening a table: a key got by a fresh process; and many regions: recording their states, opening
the table cold, and planning for one key."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.child import run_child
from benchmarks.support.data import WrongResultError, rows
from benchmarks.support.result import Reach, Result, at_most_ratio
from benchmarks.support.timing import forget, interleaved, lower_quartile, seconds
from benchmarks.support.workspace import Workspace, enabled_table
from planner.model import Query
from planner.plan import plan
from planner.predicates.expr import Compare, Literal, Operand

_RECORDS = 3
_IN_A_ROW = 50  # plans take some ten microseconds
_KEY = 7
_GETS = {
    "ours": "import memwal_sql as mw; rows = mw.open_table({uri!r}).get({key})",
    "Lance": "import lance; rows = lance.dataset({uri!r}).to_table(filter='id = {key}')",
}
_OF_ONE_KEY = [Compare(Operand("id"), "=", Literal(pa.int64(), 7))]


def opening(work: Workspace) -> Iterator[Result]:
    """Every region has one flushed generation. The first snapshot after opening is taken in a fresh
    process, with the table's files out of memory; plans are compared with those of a table that has
    all rows in one region."""
    count, rounds = work.sizes.regions, work.sizes.cold_starts
    many = _table(work, "many-regions", count, [mw.identity("id")])
    single = _table(work, "one-region", count, [mw.bucket("id", 1)])
    taken = lower_quartile([seconds(many.snapshot_regions) for _ in range(_RECORDS)])
    reach = Reach(taken, 2.0, "at most", "s")
    yield Result(f"snapshot of {count:,} regions", taken, "s", reach=reach)
    for consistency, source, limit in (
        ("manifest", "manifests", 1.0),
        ("eventual", "the region snapshot", 0.2),
        ("strong", "manifests, and looking for WAL entries", None),
    ):
        cold = lower_quartile([_cold(Path(many.uri), consistency, count) for _ in range(rounds)])
        bound = None if limit is None else Reach(cold, limit, "at most", "s")
        name = f"opening a table with {count:,} regions, cold, from {source}"
        yield Result(name, cold, "s", reach=bound)
    single.snapshot_regions()
    for table in (many, single):
        if len(table.snapshot("eventual", _OF_ONE_KEY).regions) != 1:
            raise WrongResultError(f"{table.uri}: a query for one key reads several regions")
    times = interleaved(
        {"many": lambda: _plan(many), "one": lambda: _plan(single)}, work.sizes.rounds
    )
    name = f"planning for one region of {count:,}, {_IN_A_ROW} times"
    yield at_most_ratio(name, times["many"], times["one"], "a table with one", 1.2)


def first_get(work: Workspace) -> Iterator[Result]:
    """Processes that import a package, open a table and get a key, in pairs."""
    plain, ours = work.folder / "plain", work.folder / "ours"
    base = rows(np.arange(work.sizes.base_rows, dtype=np.int64), 1)
    lance.write_dataset(base, plain)
    enabled_table(ours, base)
    places, times = {"ours": ours, "Lance": plain}, dict[str, list[float]](ours=[], Lance=[])
    # Modules are compiled once, in the first pair, which does not count.
    variables = {**os.environ, "PYTHONPYCACHEPREFIX": str(work.folder / "compiled")}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    for _ in range(1 + work.sizes.first_gets):
        for name, code in _GETS.items():
            program = code.format(uri=str(places[name]), key=_KEY) + "; assert rows.num_rows == 1"
            child = subprocess.Popen([sys.executable, "-c", program], env=variables)
            _, status, used = os.wait4(child.pid, 0)
            if status:
                raise WrongResultError(f"{name} did not get the row of key {_KEY}")
            times[name].append(used.ru_utime + used.ru_stime)
    mine, theirs = (lower_quartile(times[name][1:]) for name in _GETS)
    name = "processor time of a fresh process that opens a table and gets a key"
    yield at_most_ratio(name, mine, theirs, "plain Lance", 1.4)


def _table(work: Workspace, name: str, count: int, regions: list[object]) -> mw.Table:
    one_each = rows(np.arange(count, dtype=np.int64), 1)
    table = enabled_table(work.folder / name, one_each.slice(0, 0), regions=regions)
    with table.writer(durable=False) as writer:
        writer.upsert(one_each)
        writer.flush()
    return mw.open_table(table.uri)


def _cold(folder: Path, consistency: str, count: int) -> float:
    forget(folder)
    child = run_child("open", str(folder), consistency)
    taken, regions, generations = child.words
    if (int(regions), int(generations)) != (count, count):
        raise WrongResultError(f"opened {regions} regions with {generations} generations")
    return float(taken)


def _plan(table: mw.Table) -> None:
    for _ in range(_IN_A_ROW):
        plan(Query(("id", "val")), table.snapshot("eventual", _OF_ONE_KEY))
