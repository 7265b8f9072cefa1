"""SQL over rows that are in memory, beside DataFusion over the same rows in its own table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from datafusion import SessionConfig, SessionContext

import memwal_sql as mw
from benchmarks.support.data import WrongResultError, merged, rows
from benchmarks.support.result import Reach, Result, at_most_ratio
from benchmarks.support.timing import interleaved, lower_quartile, seconds
from benchmarks.support.workspace import Workspace, enabled_table

_AGGREGATE = "SELECT count(*), avg(val) FROM events"
_NAMES = 997
_THREADS = 4
_UPSERTS = 10
# Columns and keys are read into memory once queries have paid for that.
_WARM_UP = 200


def warm_sql(work: Workspace) -> Iterator[Result]:
    """Aggregates, conditions, groups, ranges and lookups, in one thread and in four, and the first
    aggregate after some upserts."""
    sizes = work.sizes
    middle = sizes.base_rows // 2
    queries = {
        f"{_AGGREGATE}": 2.0,
        "SELECT count(*) FROM events WHERE val > 0.9": 2.0,
        "SELECT name, count(*) FROM events GROUP BY name ORDER BY name": 1.3,
        f"SELECT id, val FROM events WHERE id BETWEEN {middle} AND {middle + 99} ORDER BY id": None,
        f"SELECT * FROM events WHERE id = {middle}": None,
    }
    base = _named(rows(np.arange(sizes.base_rows, dtype=np.int64), 0))
    table = enabled_table(work.folder / "warm-sql", base, regions="bucket(id, 4)")
    random = np.random.default_rng(11)

    def fresh(count: int, seed: int) -> pa.Table:
        return _named(rows(random.choice(sizes.base_rows, count, replace=False), seed))

    newer = fresh(sizes.base_rows * 3 // 100, 1)
    ours, theirs = _session(), _session()
    mw.register(ours, "events", table)
    theirs.register_record_batches("events", [merged([base, newer]).to_batches(8192)])
    with table.writer(memtable_age_s=None) as writer:
        writer.upsert(newer)
        for query, limit in queries.items():
            both = {"ours": _asked(ours, query), "DataFusion": _asked(theirs, query)}
            answers = [call() for call in both.values()]
            if not _same(*answers):
                raise WrongResultError(f"{query}: {answers}")
            for _ in range(min(_WARM_UP, sizes.lookups)):
                both["ours"]()
            times = interleaved(both, sizes.rounds)
            name = query.replace("SELECT ", "").replace(" FROM events", "")
            if limit is not None:
                yield at_most_ratio(name, times["ours"], times["DataFusion"], "DataFusion", limit)
                continue
            in_ms = {name: figure * 1e3 for name, figure in times.items()}
            most = 0.8 if "id =" in query else 1.5
            reach = Reach(in_ms["ours"], most, "at most", "ms")
            yield Result(name, in_ms["ours"], "ms", in_ms["DataFusion"], "DataFusion", reach)
        yield _threads(table, sizes.rounds)
        first, again = list[float](), list[float]()
        for number in range(max(1, sizes.rounds // 3)):
            for each in range(_UPSERTS):
                writer.upsert(fresh(sizes.append_rows, 2 + number * _UPSERTS + each))
            first.append(seconds(_asked(ours, _AGGREGATE)))
            again.append(seconds(_asked(ours, _AGGREGATE)))
    first_ms, again_ms = (lower_quartile(times) * 1e3 for times in (first, again))
    reach = Reach(first_ms - again_ms, 2, "at most", "ms more")
    name = f"count(*), avg(val) after {_UPSERTS} upserts of {sizes.append_rows:,} rows"
    yield Result(name, first_ms, "ms", again_ms, "asked again", reach)


def _session() -> SessionContext:
    return SessionContext(SessionConfig().with_target_partitions(1))


def _named(table: pa.Table) -> pa.Table:
    names = pa.array([f"name {number % _NAMES}" for number in table["id"].to_pylist()])
    return table.set_column(2, "name", names)


def _asked(session: SessionContext, query: str) -> Callable[[], pa.Table]:
    return lambda: session.sql(query).to_arrow_table()


def _same(ours: pa.Table, theirs: pa.Table) -> bool:
    """Whether two answers are equal; sums may differ in their last digits."""
    pairs = zip(ours.columns, theirs.columns, strict=True)
    return ours.num_rows == theirs.num_rows and all(
        np.allclose(mine, other) if pa.types.is_floating(mine.type) else mine.equals(other)
        for mine, other in pairs
    )


def _threads(table: mw.Table, rounds: int) -> Result:
    """Aggregates a second in several threads, each with a session of its own, and in one."""

    def rate(threads: int) -> float:
        sessions = [_session() for _ in range(threads)]
        for session in sessions:
            mw.register(session, "events", table)

        def ask(session: SessionContext) -> None:
            for _ in range(rounds):
                _asked(session, _AGGREGATE)()

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(ask, sessions))
            start = time.perf_counter()
            list(pool.map(ask, sessions))
            return threads * rounds / (time.perf_counter() - start)

    alone, together = rate(1), rate(_THREADS)
    reach = Reach(together / alone, 1.6, "at least")
    name = f"count(*), avg(val) in {_THREADS} threads"
    return Result(name, together, "queries/s", alone, "in one", reach)
