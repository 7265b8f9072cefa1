"""One process among several that use a table: it draws what it does from a seed, and takes down
what it was told."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from math import inf
from multiprocessing.connection import Connection
from random import Random
from typing import Any

import datafusion
import pyarrow as pa

import memwal_sql as mw
from memwal_sql.session.errors import memwal_errors
from memwal_sql.storage.objects.concurrent import ReadWindow
from tests.histories.register import Kind, Operation, Value

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("op", pa.int64()), ("body", pa.string())])
KEYS = 10
BODY = "body of {}"
# What an error says to do next.
_NEXT = re.compile(r"\bagain\b|\bopen a new writer\b")
# How often a process does what.
Weights = dict[str, int]
READS = {"get": 4, "scan": 3, "query": 3, "manifest": 2, "eventual": 2}
WRITES = {
    "upsert": 8,
    "delete": 2,
    "insert": 3,
    "update": 2,
    "flush": 3,
    "reopen": 1,
    "buffered": 2,
}
JOBS = {
    "merge": 4,
    "collect": 2,
    "build": 2,
    "compact": 2,
    "record": 2,
    "checkpoint": 1,
    "index": 1,
    "create_table": 1,
}


@dataclass
class Told:
    """What a process was told.

    Attributes:
        operations: on keys.
        again: the errors that say to make the call again, or to open something again.
        failures: whatever else was raised, with its traceback.
        created: the tables that it made.
        done: what came to its end.
    """

    operations: list[Operation] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Orders:
    """Who a process is, and what it is to do."""

    uri: str
    options: dict[str, str]
    number: int
    seed: str
    steps: int
    weights: Weights
    wave_seconds: float


def work(orders: Orders, link: Connection) -> None:
    """Do all steps, then send what was told."""
    told = Told()
    worker = _Worker(orders, told)
    # Of the same length for all; stalled probes take longer now and then.
    with ReadWindow.set(seconds=orders.wave_seconds):
        for _ in range(orders.steps):
            worker.step()
        worker.close()
    link.send(told)


class _Worker:
    def __init__(self, orders: Orders, told: Told) -> None:
        self._orders = orders
        self._told = told
        self._rng = Random(f"{orders.seed}/{orders.number}")
        self._next = 0
        self._table: mw.Table | None = None
        self._writer: mw.TableWriter | None = None
        # By key, when the last write that was acknowledged began; those of them that were flushed.
        self._unflushed: dict[int, float] = {}
        self._flushed: dict[int, float] = {}

    def step(self) -> None:
        """One thing that is done, whatever comes of it."""
        weights = self._orders.weights
        name = self._rng.choices(list(weights), list(weights.values()))[0]
        with self._told_of(name):
            getattr(self, f"_{name}")()
            self._told.done.append(name)

    def close(self) -> None:
        """Give the writer up."""
        with self._told_of("close"):
            self._lose_writer()

    @contextmanager
    def _told_of(self, name: str) -> Iterator[None]:
        try:
            yield
        except (mw.RetryError, mw.ReopenError) as error:
            text = f"process {self._orders.number}, {name}: {error!r}"
            (self._told.again if _NEXT.search(str(error)) else self._told.failures).append(text)
            if isinstance(error, mw.ReopenError):
                with suppress(mw.RetryError, mw.ReopenError):
                    self._lose_writer()
        except Exception:
            text = f"process {self._orders.number}, {name}:\n{traceback.format_exc()}"
            self._told.failures.append(text)

    # Reads

    def _opened(self) -> mw.Table:
        if self._table is None or self._rng.random() < 0.05:
            self._table = mw.open_table(self._orders.uri, storage_options=self._orders.options)
        return self._table

    def _get(self) -> None:
        keys = self._keys(1, 3)
        self._read(keys, lambda: self._opened().get(keys))

    def _scan(self) -> None:
        self._read(range(KEYS), lambda: self._opened().scan().read_all())

    def _query(self) -> None:
        key = self._rng.randrange(KEYS)
        self._read([key], lambda: self._sql(f"SELECT * FROM t WHERE id = {key}"))

    def _sql(self, text: str) -> pa.Table:
        context = datafusion.SessionContext()
        mw.register(context, "t", self._opened())
        with memwal_errors():
            return context.sql(text).to_arrow_table()

    def _manifest(self) -> None:
        """What was flushed before is there."""
        known = dict(self._flushed)
        scan = lambda: self._opened().scan(consistency="manifest").read_all()  # noqa: E731
        self._read(range(KEYS), scan, lambda key, _: known.get(key, -inf))

    def _eventual(self) -> None:
        """Some state that was."""
        scan = lambda: self._opened().scan(consistency="eventual").read_all()  # noqa: E731
        self._read(range(KEYS), scan, lambda *_: -inf)

    def _read(
        self,
        keys: Sequence[int],
        read: Callable[[], pa.Table],
        since: Callable[[int, float], float] = lambda _, start: start,
    ) -> None:
        start = time.monotonic()
        found = read()
        end = time.monotonic()
        rows = dict(zip(found["id"].to_pylist(), found["op"].to_pylist(), strict=True))
        assert len(rows) == found.num_rows, f"a key is there twice: {found.to_pylist()}"
        for row in found.to_pylist():
            assert row["body"] == BODY.format(row["op"]), f"half of one row, half of another: {row}"
        for key in keys:
            self._note(Kind.READ, key, rows.get(key), since(key, start), end)

    # Writes

    def _keys(self, least: int, most: int) -> list[int]:
        return self._rng.sample(range(KEYS), self._rng.randint(least, most))

    def _rows(self, keys: Sequence[int]) -> tuple[int, pa.Table]:
        """A value that no other write has, and its rows."""
        self._next += 1
        value = self._orders.number * 100_000 + self._next
        count = len(keys)
        columns = {"id": keys, "op": [value] * count, "body": [BODY.format(value)] * count}
        return value, pa.table(columns, schema=SCHEMA)

    def _opened_writer(self) -> mw.TableWriter:
        if self._writer is None:
            self._unflushed = {}
            self._writer = self._opened().writer(memtable_rows=self._rng.choice((12, 1000)))
        return self._writer

    def _lose_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _upsert(self) -> None:
        keys = self._keys(1, 4)
        value, rows = self._rows(keys)
        self._write(Kind.WRITE, keys, value, lambda: self._opened_writer().upsert(rows))

    def _delete(self) -> None:
        keys = self._keys(1, 2)
        gone = pa.table({"id": pa.array(keys, pa.int64())})
        self._write(Kind.WRITE, keys, None, lambda: self._opened_writer().delete(gone))

    def _insert(self) -> None:
        [key] = self._keys(1, 1)
        value, rows = self._rows([key])
        start = time.monotonic()
        try:
            self._write(Kind.INSERT, [key], value, lambda: self._opened_writer().insert(rows))
        except mw.KeysExistError:
            # Nothing was written.
            self._told.operations.pop()
            self._note(Kind.TAKEN, key, None, start, time.monotonic())

    def _update(self) -> None:
        """A statement that depends on whether the row is there."""
        [key] = self._keys(1, 1)
        value, _ = self._rows([key])
        set_ = {"op": str(value), "body": f"'{BODY.format(value)}'"}
        start = time.monotonic()
        try:
            found = self._opened_writer().update(set_, where=f"id = {key}")
        except BaseException:
            self._note(Kind.WRITE, key, value, start, inf)
            raise
        if found.rows:
            self._note(Kind.WRITE, key, value, start, time.monotonic())
        else:
            self._note(Kind.READ, key, None, start, time.monotonic())

    def _buffered(self) -> None:
        """By a writer that acknowledges before rows are durable: they are once it is closed."""
        self._lose_writer()
        keys = self._keys(1, 4)
        value, rows = self._rows(keys)

        def write() -> None:
            with self._opened().writer(durable=False) as writer:
                writer.upsert(rows)

        self._write(Kind.WRITE, keys, value, write)

    def _write(
        self, kind: Kind, keys: Sequence[int], value: Value, write: Callable[[], Any]
    ) -> None:
        start, end = time.monotonic(), inf
        try:
            write()
            end = time.monotonic()
            if self._writer is not None:
                self._unflushed.update(dict.fromkeys(keys, start))
        finally:
            for key in keys:
                self._note(kind, key, value, start, end)

    def _flush(self) -> None:
        if self._writer is not None:
            self._writer.flush()
            self._flushed.update(self._unflushed)
            self._unflushed = {}

    def _reopen(self) -> None:
        self._lose_writer()

    # Jobs

    def _merge(self) -> None:
        self._opened().merge()

    def _collect(self) -> None:
        age = timedelta(seconds=self._rng.choice((0, 2)))
        versions = {"versions_older_than": age} if self._rng.random() < 0.3 else {}
        self._opened().collect_garbage(older_than=age, **versions)

    def _build(self) -> None:
        self._opened().build_indexes()

    def _compact(self) -> None:
        self._opened().compact(fragments=self._rng.choice((None, 2, 4)), deleted=0.2)

    def _record(self) -> None:
        self._opened().snapshot_regions()

    def _index(self) -> None:
        name = f"by-{self._orders.number}"
        self._opened().create_index("op", "BTREE", name=name, replace=True)

    def _checkpoint(self) -> None:
        name = f"by-{self._orders.number}"
        try:
            self._opened().drop_checkpoint(name)
        except mw.InvalidCallError:
            self._opened().checkpoint(name)

    def _create_table(self) -> None:
        """All processes make the same tables: each is made by at most one of them."""
        uri = f"{self._orders.uri}-{self._rng.randrange(3)}"
        options = self._orders.options
        try:
            mw.create_table(uri, SCHEMA, "id", regions="bucket(id, 2)", storage_options=options)
        except mw.InvalidCallError as error:
            if "is a table already" not in str(error) and "somebody else" not in str(error):
                raise
            mw.open_table(uri, storage_options=options)
        else:
            self._told.created.append(uri)

    def _note(self, kind: Kind, key: int, value: Value, start: float, end: float) -> None:
        by = f"process {self._orders.number}"
        self._told.operations.append(Operation(kind, key, value, start, end, by))
