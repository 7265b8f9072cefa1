"""Operations on a table of four regions, and the same ones on plain Lance where it has them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import datafusion
import lance
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.s3.requests import Log, Request
from benchmarks.s3.server import BUCKET

_ROWS = 100_000
_REGIONS = 4
_OURS, _LANCE = f"s3://{BUCKET}/ours", f"s3://{BUCKET}/plain"
_KEY = 4_321
# Of what is done again and again, the last is counted.
_TIMES = 4

Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Bound:
    """What an operation may take: rounds and requests."""

    rounds: float
    requests: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One line of the report.

    Attributes:
        name: what was done.
        requests: those it took.
        bound: the goal; None where there is none.
        lance: what plain Lance took; None where it has no such operation.
    """

    name: str
    requests: list[Request]
    bound: Bound | None = None
    lance: list[Request] | None = None


class Counter:
    """Runs operations and takes their requests from the log."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def of(self, operation: Callable[[], Any]) -> list[Request]:
        """The requests of one operation."""
        self._log.take()
        operation()
        return self._log.take()

    def again(self, operation: Callable[[], Any]) -> list[Request]:
        """The requests of an operation that is done again and again."""
        for _ in range(_TIMES):
            found = self.of(operation)
        return found


def operations(options: Options, log: Log) -> Iterator[Operation]:
    """Each operation, in the order of a table's life."""
    counter = Counter(log)
    storage = dict(options)
    rows, few, one = table_of(0, _ROWS), table_of(500, 1_000), table_of(7, 1)
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
    yield Operation("flush", counter.of(writer.flush), Bound(6, 48))
    merged = counter.of(table.merge)
    yield Operation("merge of all regions", merged, Bound(40, 100), merge_insert)
    built = counter.of(table.build_indexes)
    yield Operation("build_indexes", built, Bound(20, 30), btree)
    upserted = counter.again(lambda: writer.upsert(one))
    yield Operation("durable upsert, 1 row", upserted, Bound(1.5, 1), merge_insert)
    upserted = counter.again(lambda: writer.upsert(few))
    yield Operation("durable upsert, 1,000 rows", upserted, Bound(1.5, _REGIONS), merge_insert)
    writer.flush()
    writer.upsert(few)
    yield from _first(storage, counter)
    yield from _again(storage, counter)
    writer.close()


def _first(storage: dict[str, str], counter: Counter) -> Iterator[Operation]:
    """In a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as ours:
        ours.submit(int).result()
        opened = counter.of(lambda: ours.submit(open_ours, storage).result())
        found = counter.of(lambda: ours.submit(get_ours).result())
    with ProcessPoolExecutor(1, get_context("spawn")) as plain:
        plain.submit(int).result()
        lance_opened = counter.of(lambda: plain.submit(open_lance, storage).result())
        lance_found = counter.of(lambda: plain.submit(get_lance).result())
    yield Operation("open_table", opened, Bound(3, 4), lance_opened)
    yield Operation("first get of a process", found, Bound(8, 16), lance_found)


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
    found = counter.again(query("strong", lookup))
    yield Operation("SQL lookup, strong", found, Bound(2.5, 8), plain)
    counted = counter.again(lambda: dataset.count_rows("id >= 0"))
    most = 3 * _REGIONS + 3
    found = counter.again(query("strong", count))
    yield Operation("count(*), strong", found, Bound(1.5, most), counted)
    found = counter.again(query("manifest", count))
    yield Operation("count(*), manifest", found, Bound(1.5, 2 * _REGIONS + 3), counted)
    found = counter.again(query("eventual", count))
    yield Operation("count(*), eventual", found, Bound(1.5, 2), counted)


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


def open_ours(storage: dict[str, str]) -> None:
    """Open the table in this process."""
    _opened["ours"] = mw.open_table(_OURS, storage_options=storage)


def get_ours() -> int:
    """Look a key up in it."""
    return int(_opened["ours"].get(_KEY).num_rows)


def open_lance(storage: dict[str, str]) -> None:
    """Open plain Lance's table in this process."""
    _opened["lance"] = lance.dataset(_LANCE, storage_options=storage)


def get_lance() -> int:
    """Look a key up in it."""
    return int(_opened["lance"].to_table(filter=f"id = {_KEY}").num_rows)
