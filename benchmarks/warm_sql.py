"""SQL over a table with fresh rows, beside DataFusion and DuckDB over the same rows in their own
tables: default sessions, keys at random, in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import duckdb
import numpy as np
import pyarrow as pa
from datafusion import SessionContext

import memwal_sql as mw
from benchmarks.support.data import SCHEMA, Ids, WrongResultError, merged
from benchmarks.support.result import Reach, Result, at_most_ratio, beside
from benchmarks.support.timing import interleaved, lower_quartile, seconds
from benchmarks.support.workspace import Workspace, enabled_table

AGGREGATE = "SELECT count(*), avg(val) FROM events"
GROUPS = "SELECT name, count(*) FROM events GROUP BY name ORDER BY name"
LOOKUP = "SELECT * FROM events WHERE id = {0}"
_RANGE = "SELECT id, val FROM events WHERE id BETWEEN {0} AND {0} + 99 ORDER BY id"
_NAMES = 997
_THREADS = 4
_UPSERTS = 10
# Columns and keys are read into memory once queries have paid for that.
_WARM_UP = 200


@dataclass(frozen=True)
class _Query:
    """A query, with the bounds of its time by DataFusion's and by DuckDB's."""

    text: str
    by_datafusion: float
    by_duckdb: float | None = None


_QUERIES = (
    _Query(AGGREGATE, 1.35),
    _Query("SELECT count(*) FROM events WHERE val > 0.9", 1.25),
    _Query(GROUPS, 1.2),
    _Query(_RANGE, 0.9),
    _Query(LOOKUP, 0.5, 1.2),
)


class Asked(Protocol):
    """A session with a table `events`."""

    def ask(self, query: str) -> pa.Table:
        """The answer."""


class DataFusion:
    """A default session."""

    def __init__(self) -> None:
        self.session = SessionContext()

    def ask(self, query: str) -> pa.Table:
        return self.session.sql(query).to_arrow_table()


class DuckDb:
    """A database file with its log, and an index of the keys."""

    def __init__(self, file: Path, base: pa.Table) -> None:
        self._connection = duckdb.connect(file)
        self._connection.execute(
            "CREATE TABLE events (id BIGINT PRIMARY KEY, val DOUBLE, name VARCHAR)"
        )
        self.upsert(base)

    def upsert(self, upserted: pa.Table) -> None:
        cursor = self._connection.cursor()
        cursor.register("upserted", upserted)
        cursor.execute("INSERT OR REPLACE INTO events SELECT * FROM upserted")
        cursor.unregister("upserted")

    def ask(self, query: str) -> pa.Table:
        return self._connection.cursor().sql(query).to_arrow_table()


def ours_of(table: mw.Table) -> DataFusion:
    """A session with a table of this package."""
    ours = DataFusion()
    mw.register(ours.session, "events", table)
    return ours


def warm_sql(work: Workspace) -> Iterator[Result]:
    """Aggregates, conditions, groups, ranges and lookups, in one thread and in four, and the first
    aggregate after some upserts."""
    sizes = work.sizes
    base = named_rows(np.arange(sizes.base_rows, dtype=np.int64), 0)
    table = enabled_table(work.folder / "warm-sql", base, regions="bucket(id, 4)")
    random = np.random.default_rng(11)

    def fresh(count: int) -> pa.Table:
        ids = random.choice(sizes.base_rows, count, replace=False)
        return named_rows(ids, int(random.integers(1 << 30)))

    newer = fresh(sizes.base_rows * 3 // 100)
    duck = DuckDb(work.folder / "warm-sql.duckdb", base)
    theirs, ours = DataFusion(), ours_of(table)
    theirs.session.register_record_batches("events", [merged([base, newer]).to_batches(8192)])
    duck.upsert(newer)
    every: dict[str, Asked] = {"ours": ours, "DataFusion": theirs, "DuckDB": duck}
    with table.writer(memtable_age_s=None) as writer:
        writer.upsert(newer)
        for query in _QUERIES:
            yield from _compared(query, every, sizes.base_rows, sizes.rounds)
        yield _threads(table, sizes.rounds)
        first: dict[str, list[float]] = {"ours": [], "DuckDB": []}
        for _ in range(max(1, sizes.rounds // 3)):
            for _ in range(_UPSERTS):
                upserted = fresh(sizes.append_rows)
                writer.upsert(upserted)
                duck.upsert(upserted)
            for name, times in first.items():
                times.append(seconds(lambda name=name: every[name].ask(AGGREGATE)))
        check_same_answers(AGGREGATE, ours, duck)
    ours_s, duck_s = (lower_quartile(times) for times in first.values())
    name = f"{_name(AGGREGATE)} after {_UPSERTS} upserts of {sizes.append_rows:,} rows"
    yield at_most_ratio(name, ours_s, duck_s, "DuckDB", 1)


def _compared(
    query: _Query, every: dict[str, Asked], base_rows: int, rounds: int
) -> Iterator[Result]:
    check_same_answers(query.text.format(base_rows // 2), *every.values())
    works = {name: at_random(session, query.text, base_rows) for name, session in every.items()}
    times = interleaved(works, rounds, warm_up=min(_WARM_UP, base_rows // 500))
    name = _name(query.text)
    yield at_most_ratio(name, times["ours"], times["DataFusion"], "DataFusion", query.by_datafusion)
    if query.by_duckdb is None:
        yield beside(name, times["ours"], times["DuckDB"], "DuckDB")
    else:
        yield at_most_ratio(name, times["ours"], times["DuckDB"], "DuckDB", query.by_duckdb)


def _name(query: str) -> str:
    return query.replace("SELECT ", "").replace(" FROM events", "").replace("{0}", "?")


def named_rows(ids: Ids, seed: int) -> pa.Table:
    """One row an id: a double in [0, 1), drawn by `seed`, and one of 997 names."""
    names = pa.array([f"name {number}" for number in range(_NAMES)])
    values = np.random.default_rng(seed).random(len(ids))
    return pa.table([pa.array(ids), values, names.take(pa.array(ids % _NAMES))], schema=SCHEMA)


def at_random(session: Asked, query: str, base_rows: int) -> Callable[[], pa.Table]:
    """Asks a query about a key that is another one each time."""
    keys = np.random.default_rng(5)
    return lambda: session.ask(query.format(keys.integers(base_rows - 100)))


def check_same_answers(query: str, *sessions: Asked) -> None:
    """Raise unless all sessions give the same answer; sums may differ in their last digits."""
    ours, *others = (session.ask(query) for session in sessions)
    for theirs in others:
        pairs = zip(ours.columns, theirs.columns, strict=True)
        same = ours.num_rows == theirs.num_rows and all(
            np.allclose(mine, other) if pa.types.is_floating(mine.type) else mine.equals(other)
            for mine, other in pairs
        )
        if not same:
            raise WrongResultError(f"{query}: {ours}, {theirs}")


def _threads(table: mw.Table, rounds: int) -> Result:
    """Aggregates a second in several threads, each with a session of its own, and in one."""

    def rate(threads: int) -> float:
        sessions = [ours_of(table) for _ in range(threads)]

        def ask(session: DataFusion) -> None:
            for _ in range(rounds):
                session.ask(AGGREGATE)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(ask, sessions))
            start = time.perf_counter()
            list(pool.map(ask, sessions))
            return threads * rounds / (time.perf_counter() - start)

    alone, together = rate(1), rate(_THREADS)
    reach = Reach(together / alone, 1.6, "at least")
    name = f"{_name(AGGREGATE)} in {_THREADS} threads"
    return Result(name, together, "queries/s", alone, "in one", reach)
