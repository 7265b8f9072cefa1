"""`table.get` and the same question in SQL, against one plain Lance lookup through its btree."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import cycle, islice
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.data import check_same
from benchmarks.support.result import Reach, Result, at_most_ratio, beside
from benchmarks.support.timing import interleaved
from benchmarks.support.workspace import GENERATIONS, Workspace

_IN_A_ROW = 50


def get_one(work: Workspace) -> Iterator[Result]:
    """One key in the base table, in a generation and in the MemTable."""
    ours, plain = work.ours, work.plain
    limit = {"the base": 1.2, "a generation": 1.2, "the MemTable": 0.1}
    for place, keys in _keys_by_place(work).items():
        check_same(_get_all(ours, keys), _plain_all(plain, keys), f"get of keys in {place}")
        times = _timed(keys, {"ours": ours.get, "plain": _plain_get(plain)}, work.sizes.lookups)
        name = f"table.get of one key in {place}"
        yield at_most_ratio(name, times["ours"], times["plain"], "plain Lance", limit[place])
    planner = work.native.lookup_planner()
    keys = _keys_by_place(work)["the base"]
    works = {
        "ours": ours.get,
        "native": lambda key: planner.plan_lookup(pa.array([key])).to_table(),
    }
    times = _timed(keys, works, work.sizes.lookups)
    yield beside("table.get of one key in the base", times["ours"], times["native"], "native")


def get_many(work: Workspace) -> Iterator[Result]:
    """Ten thousand keys from everywhere in one call."""
    ours, plain, count = work.ours, work.plain, work.sizes.batch_keys
    ids = np.random.default_rng(5).choice(work.live["id"].to_numpy(), count, replace=False)
    keys = ids.tolist()
    text = f"id IN ({','.join(map(str, keys))})"
    check_same(ours.get(keys), plain.to_table(filter=text), "get of many keys")
    times = interleaved(
        {"ours": lambda: ours.get(keys), "plain": lambda: plain.to_table(filter=text)},
        work.sizes.rounds,
    )
    rate, baseline = count / times["ours"], count / times["plain"]
    reach = Reach(rate, 100_000, "at least", "keys/s")
    name = f"table.get of {count:,} keys"
    yield Result(name, rate, "keys/s", baseline, "plain Lance, IN", reach)


def sql_lookup(work: Workspace) -> Iterator[Result]:
    """`SELECT ... WHERE id = ...` through DataFusion, against `table.get`."""
    ours = work.ours
    context = datafusion.SessionContext()
    mw.register(context, "events", ours)

    def select(key: int) -> pa.Table:
        return context.sql(f"SELECT * FROM events WHERE id = {key}").to_arrow_table()

    for place, keys in _keys_by_place(work).items():
        selected = pa.concat_tables([select(key) for key in keys])
        check_same(selected, _get_all(ours, keys), f"SQL lookup of keys in {place}")
        times = _timed(keys, {"sql": select, "get": ours.get}, work.sizes.lookups)
        more = (times["sql"] - times["get"]) * 1e3
        yield Result(
            f"SELECT * ... WHERE id = 1 through SQL, in {place}",
            times["sql"] * 1e3,
            "ms",
            times["get"] * 1e3,
            "table.get",
            Reach(more, 3, "at most", "ms more"),
        )


def _keys_by_place(work: Workspace) -> dict[str, list[int]]:
    newer = [part["id"].to_numpy() for part in work.upserts.newer]
    base = np.setdiff1d(work.upserts.base["id"].to_numpy(), np.concatenate(newer))
    middle = np.setdiff1d(newer[GENERATIONS // 2], np.concatenate(newer[GENERATIONS // 2 + 1 :]))
    places = {"the base": base, "a generation": middle, "the MemTable": newer[GENERATIONS]}
    count = work.sizes.lookups
    return {
        place: np.random.default_rng(3).choice(ids, count, replace=False).tolist()
        for place, ids in places.items()
    }


def _timed(
    keys: list[int], works: Mapping[str, Callable[[int], Any]], lookups: int
) -> dict[str, float]:
    """Seconds of one lookup of each kind. Each takes the next key every time, and makes some
    lookups in a row: what ran in between would else be measured as a cold cache."""
    in_a_row = min(_IN_A_ROW, lookups)

    def repeated(look_up: Callable[[int], Any]) -> Callable[[], Any]:
        endless = cycle(keys)
        return lambda: [look_up(key) for key in islice(endless, in_a_row)]

    rounds = {name: repeated(look_up) for name, look_up in works.items()}
    times = interleaved(rounds, lookups // in_a_row)
    return {name: seconds / in_a_row for name, seconds in times.items()}


def _plain_get(plain: Any) -> Callable[[int], pa.Table]:
    return lambda key: plain.to_table(filter=f"id = {key}")


def _get_all(table: mw.Table, keys: list[int]) -> pa.Table:
    return pa.concat_tables([table.get(key) for key in keys])


def _plain_all(plain: Any, keys: list[int]) -> pa.Table:
    return pa.concat_tables([_plain_get(plain)(key) for key in keys])
