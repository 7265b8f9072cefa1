"""Durable and sustained upserts, against plain system calls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event

import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.data import batches, check_same, merged, rows
from benchmarks.support.result import Reach, Result, at_most_ratio
from benchmarks.support.timing import interleaved, write_and_sync
from benchmarks.support.workspace import Workspace, enabled_table

_REGIONS = 4
_ROW_BYTES = 100
_WARM_UP = 3
_FLUSHED_UPSERTS = 10


def durable_upserts(work: Workspace) -> Iterator[Result]:
    """Small durable writes to one region, each waited for."""
    sizes = work.sizes
    calls = sizes.appends + _WARM_UP
    stream = rows(np.arange(calls * sizes.append_rows, dtype=np.int64), 1)
    table = enabled_table(work.folder / "durable", stream.slice(0, 0))
    raw = work.folder / "raw"
    raw.mkdir()
    with table.writer(durable=True) as ours:
        parts, numbers = iter(batches(stream, sizes.append_rows)), count()
        ours.upsert(rows(np.array([-1], dtype=np.int64), 0))
        data = _entry_bytes(Path(table.uri), rows(np.arange(sizes.append_rows), 2), ours)
        works = {
            "ours": lambda: ours.upsert(next(parts)),
            "raw": lambda: write_and_sync(raw / f"{next(numbers)}.arrow", data),
        }
        times = interleaved(works, sizes.appends, _WARM_UP)
        rows_read = table.scan(filter="id >= 0").read_all()
        check_same(rows_read, merged([rows(np.arange(sizes.append_rows), 2), stream]), "durable")
    name = f"durable upserts of {sizes.append_rows:,} rows, one region, local disk"
    yield at_most_ratio(name, times["ours"], times["raw"], "write + fsync", 2)


def upserts_beside_work(work: Workspace) -> Iterator[Result]:
    """Durable upserts while every few of them are flushed and another thread queries."""
    sizes = work.sizes
    size = sizes.append_rows
    stream = rows(np.arange((sizes.appends + _WARM_UP) * size, dtype=np.int64), 1)
    table = enabled_table(work.folder / "busy", stream.slice(0, 0))
    raw = work.folder / "raw-busy"
    raw.mkdir()
    stopped = Event()

    def query() -> None:
        while not stopped.is_set():
            table.get([1])
            table.count_rows()

    with table.writer(memtable_rows=_FLUSHED_UPSERTS * size) as writer:
        writer.upsert(rows(np.array([-1], dtype=np.int64), 0))
        data = _entry_bytes(Path(table.uri), rows(np.arange(size), 2), writer)
        parts, numbers = iter(batches(stream, size)), count()
        works = {
            "ours": lambda: writer.upsert(next(parts)),
            "raw": lambda: write_and_sync(raw / f"{next(numbers)}.arrow", data),
        }
        with ThreadPoolExecutor(1) as pool:
            querying = pool.submit(query)
            try:
                times = interleaved(works, sizes.appends, _WARM_UP)
            finally:
                stopped.set()
            querying.result()
        check_same(table.scan(filter="id >= 0").read_all(), stream, "busy")
    name = f"durable upserts of {size:,} rows beside flushes and queries, local disk"
    yield at_most_ratio(name, times["ours"], times["raw"], "write + fsync", 2)


def sustained_upserts(work: Workspace) -> Iterator[Result]:
    """A long stream of 100-byte rows into four regions, flushes and the last close included."""
    sizes = work.sizes
    text_bytes = _ROW_BYTES - 16
    stream = rows(np.arange(sizes.stream_rows, dtype=np.int64), 1, text_bytes)
    parts = batches(stream, sizes.stream_batch)
    table = enabled_table(
        work.folder / "sustained", stream.slice(0, 0), regions=[mw.bucket("id", _REGIONS)]
    )
    start = time.perf_counter()
    with table.writer() as writer:
        for batch in parts:
            writer.upsert(batch)
        writer.flush()
    rate = sizes.stream_rows / (time.perf_counter() - start)
    check_same(table.scan().read_all(), stream, "sustained upserts")
    yield Result(
        f"sustained upserts with flushes, {_REGIONS} regions, {_ROW_BYTES}-byte rows, durable",
        rate,
        "rows/s",
        reach=Reach(rate, 200_000, "at least", "rows/s"),
    )


def _entry_bytes(table: Path, data: pa.Table, writer: mw.TableWriter) -> bytes:
    """The bytes of the WAL entry that upserting `data` makes."""
    wal = "_mem_wal/*/wal/*.arrow"
    before = set(table.glob(wal))
    writer.upsert(data)
    (entry,) = set(table.glob(wal)) - before
    return entry.read_bytes()
