"""Operations on a table of four regions, and the same ones on plain Lance where it has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from math import inf
from multiprocessing import get_context
from typing import Any

import datafusion
import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.s3.requests import Log, Request
from benchmarks.s3.server import BUCKET
from benchmarks.support.timing import lower_quartile, seconds
from exec_nodes.resident.store import STORE

_ROWS = 100_000
_REGIONS = 4
_OURS, _LANCE = f"s3://{BUCKET}/ours", f"s3://{BUCKET}/plain"
_KEY = 4_321
# An operation is repeated: the requests of the last run count, and the lower quartile of the times.
_TIMES = 12
_HOUR = 3600.0
_MONTH_HOURS = 730
_MANY = 1_000

Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Bound:
    """What an operation may take: rounds and requests."""

    rounds: float
    requests: float


@dataclass(frozen=True, slots=True)
class Run:
    """What an operation took.

    Attributes:
        seconds: the lower quartile where it was done several times; None where it was not timed.
    """

    requests: list[Request]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """One line of the report.

    Attributes:
        name: what was done.
        run: what it took.
        bound: the goal; None where there is none.
        lance: what plain Lance took; None where it has no such operation.
        priced: its price is told of so many.
    """

    name: str
    run: Run
    bound: Bound | None = None
    lance: Run | None = None
    priced: int = 1_000_000


class Counter:
    """Runs operations and takes their requests from the log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def of(self, operation: Callable[[], Any]) -> Run:
        """One operation."""
        self._log.take()
        taken = seconds(operation)
        return Run(self._log.take(), taken)

    def so_far(self) -> list[Request]:
        """The requests since the last ones that were taken."""
        return self._log.take()

    def again(self, operation: Callable[[], Any]) -> Run:
        """An operation that is done again and again."""
        runs = [self.of(operation) for _ in range(_TIMES)]
        return replace(runs[-1], seconds=lower_quartile([run.seconds or 0.0 for run in runs]))


def operations(options: Options, log: Log, *, many: bool) -> Iterator[Operation]:
    """Each operation, in the order of a table's life; given `many`, of a table of 1,000 regions
    too, which takes some minutes more."""
    counter = Counter(log)
    storage = dict(options)
    rows, few, single = table_of(0, _ROWS), table_of(500, 1_000), table_of(7, 1)
    regions = [mw.bucket("id", _REGIONS)]

    plain = counter.of(lambda: lance.write_dataset(rows, _LANCE, storage_options=storage))
    created = counter.of(
        lambda: mw.create_table(
            _OURS, rows.schema, primary_key="id", regions=regions, storage_options=storage
        )
    )
    yield Operation("create_table", created, Bound(12, 16), plain)

    dataset = lance.dataset(_LANCE, storage_options=storage)
    btree = counter.of(lambda: dataset.create_scalar_index("id", "BTREE"))
    merge_insert = counter.of(lambda: _merge_insert(storage, few))
    table = mw.open_table(_OURS, storage_options=storage)
    writer = table.writer()
    yield Operation("first upsert: claims", counter.of(lambda: writer.upsert(rows)), Bound(8, 40))
    yield Operation("flush", counter.of(writer.flush), Bound(6, 40))
    merged = counter.of(table.merge)
    yield Operation("merge of all regions", merged, Bound(40, 100), merge_insert)
    built = counter.of(table.build_indexes)
    yield Operation("build_indexes", built, Bound(20, 30), btree)
    upserted = counter.again(lambda: writer.upsert(single))
    yield Operation("durable upsert, 1 row", upserted, Bound(1.5, 1), merge_insert)
    upserted = counter.again(lambda: writer.upsert(few))
    yield Operation("durable upsert, 1,000 rows", upserted, Bound(1.5, _REGIONS), merge_insert)
    writer.flush()
    writer.upsert(few)
    yield from _first(storage, counter)
    yield from _again(storage, counter)
    writer.close()
    yield from _idle(storage, counter)
    if many:
        yield from _many(storage, counter)


def _idle(storage: dict[str, str], counter: Counter) -> Iterator[Operation]:
    """Jobs where nothing happens, by a clock that goes on with each pause: the first hour, in which
    the pauses grow, and the second."""
    table = mw.open_table(_OURS, storage_options=storage)
    table.flush()
    mw.run_all_jobs(table)
    collect = counter.again(lambda: table.collect_garbage(older_than=timedelta(hours=1)))
    yield Operation("collect_garbage, nothing to do", collect)
    moment = 0.0
    hours: list[list[Request]] = []

    def sleep(seconds: float) -> None:
        nonlocal moment
        moment += seconds
        if moment > (len(hours) + 1) * _HOUR:
            hours.append(counter.so_far())
        if len(hours) == 2:
            raise TimeoutError

    counter.so_far()
    with suppress(TimeoutError):
        mw.run_jobs_forever(table, clock=lambda: moment, sleep=sleep)
    yield Operation("run, the first idle hour", Run(hours[0]), priced=1)
    bound = Bound(inf, 140)
    yield Operation("run, later idle hours; a month", Run(hours[1]), bound, priced=_MONTH_HOURS)


def _many(storage: dict[str, str], counter: Counter) -> Iterator[Operation]:
    """A table of a thousand regions."""
    rows = table_of(0, 10 * _MANY)
    uri, regions = f"s3://{BUCKET}/many", [mw.bucket("id", _MANY)]
    table = mw.create_table(
        uri, rows.schema, primary_key="id", regions=regions, storage_options=storage
    )
    with table.writer() as writer:
        writer.upsert(rows)
    context = datafusion.SessionContext()
    mw.register(context, "t", mw.open_table(uri, storage_options=storage))

    def query(text: str) -> Callable[[], Any]:
        return lambda: context.sql(text).to_arrow_table()

    query("SELECT count(*) FROM t")()
    requests = counter.again(query(f"SELECT * FROM t WHERE id IN ({_KEY}, {_KEY + 1})"))
    yield Operation("1,000 regions: rows of 2", requests, Bound(2.5, 3 * 2 + 3))
    requests = counter.again(query("SELECT count(*) FROM t"))
    yield Operation("1,000 regions: count(*)", requests, Bound(inf, 3 * _MANY + 3))


def _first(storage: dict[str, str], counter: Counter) -> Iterator[Operation]:
    """In processes of their own."""

    def begun(
        open_table: Callable[..., None], work: Callable[[], int], *arguments: Any
    ) -> tuple[Run, Run]:
        with ProcessPoolExecutor(1, get_context("spawn"), import_all) as process:
            process.submit(int).result()
            opened = counter.of(lambda: process.submit(open_table, *arguments).result())
            return opened, counter.of(lambda: process.submit(work).result())

    lance_opened, lance_found = begun(open_lance, get_lance, storage)
    _, lance_counted = begun(open_lance, count_lance, storage)
    opened, requests = begun(open_ours, get_ours, storage)
    yield Operation("open_table", opened, Bound(3, 5), lance_opened)
    yield Operation("first get of a process", requests, Bound(8, 26), lance_found)
    _, counted = begun(open_ours, count_ours, storage)
    yield Operation("first count(*) of a process", counted, Bound(9, 58), lance_counted)
    mw.open_table(_OURS, storage_options=storage).snapshot_regions()
    _, counted = begun(open_ours, partial(count_ours, "eventual"), storage)
    yield Operation("first count(*), eventual", counted, Bound(5, 20), lance_counted)


def _again(storage: dict[str, str], counter: Counter) -> Iterator[Operation]:
    """By a reader that is at it for a while."""
    table = mw.open_table(_OURS, storage_options=storage)
    dataset = lance.dataset(_LANCE, storage_options=storage)
    keys = list(range(0, _ROWS, _ROWS // 100))

    def query(consistency: str, text: str) -> Callable[[], Any]:
        context = datafusion.SessionContext()
        mw.register(context, "t", table, consistency=consistency)
        return lambda: context.sql(text).to_arrow_table()

    def taken() -> pa.Table:
        return dataset.to_table(filter=f"id = {_KEY}")

    lookup, count = f"SELECT * FROM t WHERE id = {_KEY}", "SELECT count(*) FROM t"
    plain = counter.again(taken)
    yield Operation("get, strong", counter.again(lambda: table.get(_KEY)), Bound(1.5, 6), plain)
    yield Operation("get of 100 keys", counter.again(lambda: table.get(keys)), Bound(2.5, 20))
    requests = counter.again(query("strong", lookup))
    yield Operation("SQL lookup, strong", requests, Bound(2.5, 8), plain)
    counted = counter.again(lambda: dataset.count_rows("id >= 0"))
    most = 3 * _REGIONS + 3
    requests = counter.again(query("strong", count))
    yield Operation("count(*), strong", requests, Bound(1.5, most), counted)
    with nothing_resident():
        requests = counter.again(query("strong", count))
    yield Operation("count(*), strong, columns not kept", requests, Bound(2.5, inf), counted)
    requests = counter.again(query("manifest", count))
    yield Operation("count(*), manifest", requests, Bound(1.5, 2 * _REGIONS + 3), counted)
    requests = counter.again(query("eventual", count))
    yield Operation("count(*), eventual", requests, Bound(1.5, 2), counted)


def table_of(first: int, count: int) -> pa.Table:
    """Rows of so many keys from `first` on: a number, a score and a text."""
    ids = np.arange(first, first + count, dtype=np.int64)
    texts = pa.array([f"text {number}" for number in ids.tolist()])
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("score", pa.float64()), ("body", pa.string())]
    )
    return pa.Table.from_arrays([pa.array(ids), pa.array(ids / 7), texts], schema=schema)


def _merge_insert(storage: dict[str, str], rows: pa.Table) -> None:
    dataset = lance.dataset(_LANCE, storage_options=storage)
    insert = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    insert.execute(rows)


# What the other process has open.
_opened: dict[str, Any] = {}


@contextmanager
def nothing_resident() -> Iterator[None]:
    """Keep nothing in memory between queries."""
    before = STORE.max_bytes
    mw.configure(memory=0)
    try:
        yield
    finally:
        STORE.max_bytes = before


def import_all() -> None:
    """Make a new process import this module, which is not part of what is timed."""


def open_ours(storage: dict[str, str]) -> None:
    """Open the table in this process."""
    _opened["ours"] = mw.open_table(_OURS, storage_options=storage)


def get_ours() -> int:
    """Look a key up in it."""
    return int(_opened["ours"].get(_KEY).num_rows)


def count_ours(consistency: str = "strong") -> int:
    """Count its rows."""
    context = datafusion.SessionContext()
    mw.register(context, "t", _opened["ours"], consistency)
    return int(context.sql("SELECT count(*) AS n FROM t").to_pydict()["n"][0])


def open_lance(storage: dict[str, str]) -> None:
    """Open plain Lance's table in this process."""
    _opened["lance"] = lance.dataset(_LANCE, storage_options=storage)


def get_lance() -> int:
    """Look a key up in it."""
    return int(_opened["lance"].to_table(filter=f"id = {_KEY}").num_rows)


def count_lance() -> int:
    """Count its rows by their keys, as who must leave some out."""
    return int(_opened["lance"].count_rows("id >= 0"))
