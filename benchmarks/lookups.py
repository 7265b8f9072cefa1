"""`table.get` and the same question in SQL, against one plain Lance lookup through its btree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, TypeVar

import datafusion
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.data import check_same, merged, rows
from benchmarks.support.result import Reach, Result, at_most_ratio, beside
from benchmarks.support.timing import interleaved
from benchmarks.support.workspace import (
    GENERATIONS,
    Workspace,
    enabled_table,
    plain_table,
)

_IN_A_ROW = 50
# Columns and keys are read into memory once lookups have paid for that.
_WARM_UP = 200
Key = TypeVar("Key")


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


def get_keys(work: Workspace) -> Iterator[Result]:
    """A few to many keys in one call, in a table of four regions with fresh rows on top."""
    sizes, random = work.sizes, np.random.default_rng(7)
    base = rows(np.arange(sizes.base_rows, dtype=np.int64), 0)
    newer = rows(random.choice(sizes.base_rows, sizes.base_rows * 3 // 100, replace=False), 1)
    ours = enabled_table(work.folder / "get-keys", base, regions="bucket(id, 4)")
    plain = plain_table(work.folder / "get-keys-plain", merged([base, newer]))

    def keys_of(count: int) -> list[int]:
        keys: list[int] = random.choice(sizes.base_rows, count, replace=False).tolist()
        return keys

    def plain_get(keys: list[int]) -> pa.Table:
        return plain.to_table(filter=f"id IN ({','.join(map(str, keys))})")

    def compared(name: str, most: float) -> Iterator[Result]:
        one_key = 0.0
        for count in (1, 2, 10, 100, sizes.batch_keys):
            asked = [keys_of(count) for _ in range(_IN_A_ROW)]
            check_same(ours.get(asked[0]), plain_get(asked[0]), f"get of {count:,} keys")
            in_a_row = max(1, _IN_A_ROW // count)
            works = {"ours": ours.get, "plain": plain_get}
            times = _timed(asked, works, sizes.rounds * in_a_row, in_a_row)
            if count == 1:
                one_key = times["ours"]
                continue
            work = f"table.get of {count:,} keys at random{name}"
            yield at_most_ratio(work, times["ours"], times["plain"], "plain Lance, IN", most)
            if count == 2:
                yield at_most_ratio(work, times["ours"], one_key, "one key", 1.5)

    with ours.writer(memtable_age_s=None) as writer:
        writer.upsert(newer)
        for _ in range(min(_WARM_UP, sizes.lookups)):
            ours.get(keys_of(2))
        time.sleep(sizes.settle_seconds)
        yield from compared("", 1.0)
        context = datafusion.SessionContext()
        mw.register(context, "events", ours)
        for _ in range(min(_WARM_UP, sizes.lookups) // 5):
            context.sql("SELECT max(id), max(val), max(name) FROM events").collect()
        time.sleep(sizes.settle_seconds)
        context.sql("SELECT count(val) FROM events").collect()
        yield from compared(", rows live", 0.3)


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
    keys: Sequence[Key],
    works: Mapping[str, Callable[[Key], Any]],
    lookups: int,
    in_a_row: int = _IN_A_ROW,
) -> dict[str, float]:
    """Seconds of one lookup of each kind. Each takes the next key every time, and makes some
    lookups in a row: what ran in between would else be measured as a cold cache."""
    in_a_row = min(in_a_row, lookups)

    def repeated(look_up: Callable[[Key], Any]) -> Callable[[], Any]:
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
