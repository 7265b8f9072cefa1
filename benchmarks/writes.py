"""Durable and sustained upserts, against plain system calls and the native writer."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.data import batches, check_same, merged, rows
from benchmarks.support.native import NativeTable, native_scan, put_all
from benchmarks.support.result import Reach, Result, at_most_ratio, beside
from benchmarks.support.timing import interleaved, sync, write_and_sync
from benchmarks.support.workspace import Workspace, enabled_table

_REGIONS = 4
_ROW_BYTES = 100
_WARM_UP = 3
_SETTLE_SECONDS = 10
_FLUSHED_UPSERTS = 10


def durable_upserts(work: Workspace) -> Iterator[Result]:
    """Small durable writes to one region, each waited for."""
    sizes = work.sizes
    calls = sizes.appends + _WARM_UP
    stream = rows(np.arange(calls * sizes.append_rows, dtype=np.int64), 1)
    empty = stream.slice(0, 0)
    table = enabled_table(work.folder / "durable", empty)
    peers = {
        name: NativeTable(work.folder / f"durable-{name}", empty) for name in ("native", "synced")
    }
    raw = work.folder / "raw"
    raw.mkdir()
    with (
        table.writer(durable=True) as ours,
        peers["native"].writer(durable=True) as native,
        peers["synced"].writer(durable=True) as synced,
    ):
        parts = {name: iter(batches(stream, sizes.append_rows)) for name in ("o", "n", "s")}
        numbers = count()

        def native_then_sync() -> None:
            folder = peers["synced"].wal_folder
            before = set(os.listdir(folder)) if folder.exists() else set()
            put_all(synced, [next(parts["s"])])
            for name in set(os.listdir(folder)) - before:
                sync(folder / name)
            sync(folder)

        ours.upsert(rows(np.array([-1], dtype=np.int64), 0))
        data = _entry_bytes(Path(table.uri), rows(np.arange(sizes.append_rows), 2), ours)
        works = {
            "ours": lambda: ours.upsert(next(parts["o"])),
            "raw": lambda: write_and_sync(raw / f"{next(numbers)}.arrow", data),
            "native": lambda: put_all(native, [next(parts["n"])]),
            "synced": native_then_sync,
        }
        times = interleaved(works, sizes.appends, _WARM_UP)
        rows_read = table.scan(filter="id >= 0").read_all()
        check_same(rows_read, merged([rows(np.arange(sizes.append_rows), 2), stream]), "durable")
        check_same(_settled_scan(native, stream), stream, "native durable")
    name = f"durable upserts of {sizes.append_rows:,} rows, one region, local disk"
    yield at_most_ratio(name, times["ours"], times["raw"], "write + fsync", 2)
    yield beside(name, times["ours"], times["native"], "native, never synced")
    yield beside(name, times["ours"], times["synced"], "native, then fsync")


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
    native_rate = _native_stream(work.folder / "sustained-native", parts)
    yield Result(
        f"sustained upserts with flushes, {_REGIONS} regions, {_ROW_BYTES}-byte rows, durable",
        rate,
        "rows/s",
        native_rate,
        "native, never synced",
        Reach(rate, 200_000, "at least", "rows/s"),
    )


def _native_stream(folder: Path, parts: list[pa.RecordBatch]) -> float:
    """Rows a second of four native writers, a thread each, with the rows divided beforehand."""
    shards = [NativeTable(folder / str(i), _empty(parts[0])) for i in range(_REGIONS)]
    shares = [
        [part.slice(i * part.num_rows // _REGIONS, part.num_rows // _REGIONS) for part in parts]
        for i in range(_REGIONS)
    ]

    def write(shard: NativeTable, share: list[pa.RecordBatch]) -> None:
        with shard.writer(durable=True) as writer:
            put_all(writer, share)

    start = time.perf_counter()
    with ThreadPoolExecutor(_REGIONS) as pool:
        list(pool.map(write, shards, shares))
    return float(sum(part.num_rows for part in parts)) / (time.perf_counter() - start)


def _settled_scan(writer: Any, written: pa.Table) -> pa.Table:
    """Native's rows, once there are as many: its scans miss a MemTable that is being flushed."""
    end = time.monotonic() + _SETTLE_SECONDS
    scanned = native_scan(writer, written.column_names)
    while scanned.num_rows < written.num_rows and time.monotonic() < end:
        time.sleep(0.1)
        scanned = native_scan(writer, written.column_names)
    return scanned


def _empty(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch.slice(0, 0)])


def _entry_bytes(table: Path, data: pa.Table, writer: mw.TableWriter) -> bytes:
    """The bytes of the WAL entry that upserting `data` makes."""
    wal = "_mem_wal/*/wal/*.arrow"
    before = set(table.glob(wal))
    writer.upsert(data)
    (entry,) = set(table.glob(wal)) - before
    return entry.read_bytes()
