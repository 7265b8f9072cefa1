"""SQL while rows are written, and over rows that lie in many generations."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import cycle
from threading import Event

import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.data import batches
from benchmarks.support.result import Reach, Result, at_most_ratio
from benchmarks.support.timing import Work, interleaved, seconds
from benchmarks.support.workspace import Workspace, enabled_table
from benchmarks.warm_sql import (
    AGGREGATE,
    GROUPS,
    LOOKUP,
    Asked,
    DataFusion,
    DuckDb,
    at_random,
    check_same_answers,
    named_rows,
    ours_of,
)
from exec_nodes.resident.store import STORE
from memwal_sql.read.live.settings import Live

_REGIONS = "bucket(id, 4)"
# Live rows take half of it at most: these take 2.4 GB.
_MEMORY = "6GiB"
_SLOWEST = 99.9


def beside_writes(work: Workspace) -> Iterator[Result]:
    """One thread upserts durably without pause, one asks an aggregate."""
    sizes = work.sizes
    base = named_rows(np.arange(sizes.base_rows, dtype=np.int64), 0)
    table = enabled_table(work.folder / "beside-writes", base, regions=_REGIONS)
    duck, ours = DuckDb(work.folder / "beside-writes.duckdb", base), ours_of(table)
    random = np.random.default_rng(3)
    ids = [random.choice(sizes.base_rows, sizes.append_rows, replace=False) for _ in range(64)]
    written = [named_rows(each, number) for number, each in enumerate(ids)]
    with table.writer(memtable_age_s=None) as writer:
        for _ in range(3):
            ours.ask(AGGREGATE)
        mine = _together(writer.upsert, written, ours, sizes.busy_seconds / 2)
        theirs = _together(duck.upsert, written, duck, sizes.busy_seconds / 2)
        for upserted in written:
            writer.upsert(upserted)
            duck.upsert(upserted)
        check_same_answers(AGGREGATE, ours, duck)
    for name, unit, our, their in zip(
        ("aggregates beside upserts", f"upserts of {sizes.append_rows:,} rows beside aggregates"),
        ("queries/s", "calls/s"),
        mine,
        theirs,
        strict=True,
    ):
        yield Result(name, our, unit, their, "DuckDB", Reach(our / their, 2, "at least"))


def _together(
    upsert: Callable[[pa.Table], object], written: list[pa.Table], asked: Asked, wanted: float
) -> tuple[float, float]:
    """Aggregates and upserts a second, of two threads for so many seconds."""
    is_over = Event()

    def write() -> int:
        count = 0
        while not is_over.is_set():
            upsert(written[count % len(written)])
            count += 1
        return count

    def ask() -> int:
        count = 0
        while not is_over.is_set():
            asked.ask(AGGREGATE)
            count += 1
        return count

    with ThreadPoolExecutor(2) as pool:
        start = time.perf_counter()
        counts = [pool.submit(ask), pool.submit(write)]
        is_over.wait(wanted)
        is_over.set()
        asks, upserts = (count.result() for count in counts)
        took = time.perf_counter() - start
    return asks / took, upserts / took


def generations_sql(work: Workspace) -> Iterator[Result]:
    """The same upserts in one generation of each of four regions, and in many."""
    sizes = work.sizes
    base = named_rows(np.arange(sizes.base_rows, dtype=np.int64), 0)
    random = np.random.default_rng(7)
    ids = random.choice(sizes.base_rows, sizes.base_rows // 10, replace=False)
    upserts = named_rows(ids, 1)
    many = sizes.generation_counts[-1]
    sessions = {count: ours_of(_in_generations(work, base, upserts, count)) for count in (1, many)}
    for query in (AGGREGATE, GROUPS, LOOKUP):
        check_same_answers(query.format(ids[0]), *sessions.values())
        works = {
            str(count): at_random(session, query, sizes.base_rows)
            for count, session in sessions.items()
        }
        times = interleaved(works, sizes.rounds, warm_up=min(200, sizes.base_rows // 500))
        name = f"{query.format('?')}, {many} generations in each of 4 regions"
        yield at_most_ratio(name, times[str(many)], times["1"], "in 1", 1.15)


def _in_generations(work: Workspace, base: pa.Table, upserts: pa.Table, count: int) -> mw.Table:
    table = enabled_table(work.folder / f"generations-sql-{count}", base, regions=_REGIONS)
    with table.writer(durable=False, memtable_rows=2 * upserts.num_rows) as writer:
        for batch in batches(upserts, -(-upserts.num_rows // count)):
            writer.upsert(batch)
            writer.flush()
    return table


def many_rows_sql(work: Workspace) -> Iterator[Result]:
    """Lookups and aggregates in many rows, and lookups there beside aggregates and upserts."""
    budget = STORE.max_bytes
    mw.configure(memory=_MEMORY)
    try:
        yield from _many_rows(work)
    finally:
        STORE.max_bytes = budget


def _many_rows(work: Workspace) -> Iterator[Result]:
    sizes, theirs = work.sizes, DataFusion()
    base = named_rows(np.arange(sizes.many_rows, dtype=np.int64), 0)
    few = enabled_table(work.folder / "few", base.slice(0, sizes.base_rows), regions=_REGIONS)
    many = enabled_table(work.folder / "many", base, regions=_REGIONS)
    random = np.random.default_rng(13)
    ids = [random.choice(len(base), sizes.append_rows, replace=False) for _ in range(64)]
    upserts = [named_rows(each, number) for number, each in enumerate(ids, 1)]
    with many.writer(memtable_age_s=None) as writer:
        values = base["val"].to_numpy().copy()
        for upserted in upserts[:30]:
            writer.upsert(upserted)
            values[upserted["id"].to_numpy()] = upserted["val"].to_numpy()
        fresh = base.set_column(1, "val", pa.array(values))
        theirs.session.register_record_batches("events", [fresh.to_batches(8192)])
        small, large = _with_all_columns(few), _with_all_columns(many)

        lookup = at_random(large, LOOKUP, len(base))
        works: dict[str, Work] = {"many": lookup, "few": at_random(small, LOOKUP, sizes.base_rows)}
        times = interleaved(works, sizes.lookups)
        name = f"{LOOKUP.format('?')}, {len(base):,} rows"
        yield at_most_ratio(name, times["many"], times["few"], f"{sizes.base_rows:,} rows", 1.3)

        check_same_answers(AGGREGATE, large, theirs)
        works = {"ours": partial(large.ask, AGGREGATE), "theirs": partial(theirs.ask, AGGREGATE)}
        times = interleaved(works, sizes.rounds)
        name = f"{AGGREGATE}, {len(base):,} rows"
        yield at_most_ratio(name, times["ours"], times["theirs"], "DataFusion", 1.35)

        alone = _slowest(lookup, sizes.tail_lookups)
        written = cycle(upserts)
        scan = partial(ours_of(many).ask, AGGREGATE)
        with _meanwhile(scan, lambda: writer.upsert(next(written))):
            beside_both = _slowest(lookup, sizes.tail_lookups)
        name = f"p{_SLOWEST} of lookups in {len(base):,} rows beside aggregates and upserts"
        yield at_most_ratio(name, beside_both, alone, "alone", 3)


def _with_all_columns(table: mw.Table) -> DataFusion:
    """A session with a table, whose columns are in memory: one query pays for each."""
    session = ours_of(table)
    with Live.set(waited=1):
        for query in (AGGREGATE, GROUPS, "SELECT max(id) FROM events"):
            session.ask(query)
    return session


def _slowest(ask: Work, count: int) -> float:
    return float(np.percentile([seconds(ask) for _ in range(count)], _SLOWEST))


@contextmanager
def _meanwhile(*works: Work) -> Iterator[None]:
    """A context in which threads do each of the works again and again."""
    is_over = Event()

    def repeat(work: Work) -> None:
        while not is_over.is_set():
            work()

    with ThreadPoolExecutor(len(works)) as pool:
        under_way = [pool.submit(repeat, work) for work in works]
        try:
            yield
        finally:
            is_over.set()
    for each in under_way:
        each.result()
