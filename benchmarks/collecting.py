"""Garbage collection of many files: how many requests an object store would see, and how long."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

import memwal_sql as mw
from benchmarks.support.data import WrongResultError, rows
from benchmarks.support.result import Reach, Result
from benchmarks.support.workspace import Workspace, enabled_table
from memwal_sql.maintain.gc.collector import collect_garbage
from memwal_sql.state.context import TableContext
from memwal_sql.storage import paths
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.table import read_record
from memwal_sql.storage.region.manifest import RegionManifests

_GENERATIONS = 20
_GENERATION_ROWS = 100
_REQUESTS = 150
_PAGE = 1000  # objects of one listing or bulk deletion of S3


def collecting(work: Workspace) -> Iterator[Result]:
    """Merged generations, flushed WAL entries and old manifests of one region, all garbage."""
    folder = work.folder / "collecting"
    table = _make(folder, work.sizes.garbage_files)
    before = table.scan(["id"]).read_all()["id"].to_numpy()
    copy = work.folder / "collecting-copy"
    shutil.copytree(folder, copy, copy_function=os.link)
    store = _Counting(open_store(table.uri))
    context = TableContext(table.uri, store, read_record(store))
    start = time.perf_counter()
    report = collect_garbage(
        context,
        older_than=timedelta(0),
        versions_older_than=timedelta(0),
        clock=lambda: time.time() + 1,
    )
    seconds = time.perf_counter() - start
    gone = [path for path in copy.rglob("*") if path.is_file() and not _twin(path, copy, folder)]
    start = time.perf_counter()
    for path in gone:
        path.unlink()
    plain = time.perf_counter() - start
    shutil.rmtree(copy)
    files = sum(report["files"].to_pylist())
    if files < work.sizes.garbage_files or not np.array_equal(
        np.sort(before), np.sort(mw.open_table(table.uri).scan(["id"]).read_all()["id"].to_numpy())
    ):
        raise WrongResultError(f"collecting: {files} files of {work.sizes.garbage_files}")
    reach = Reach(store.requests, _REQUESTS, "at most", "requests")
    yield Result(f"collect {files:,} files: requests", store.requests, "requests", reach=reach)
    yield Result(
        f"collect {files:,} files on a local disk", seconds * 1e3, "ms", plain * 1e3, "deleting"
    )


def _twin(path: Path, copy: Path, folder: Path) -> bool:
    return (folder / path.relative_to(copy)).exists()


def _make(folder: Path, files: int) -> mw.Table:
    """`files` files of garbage: as many WAL entries as it takes beside those of generations."""
    table = enabled_table(folder, rows(np.arange(10, dtype=np.int64), 0))
    with table.writer(durable=False) as writer:
        for number in range(_GENERATIONS):
            writer.upsert(rows(np.arange(_GENERATION_ROWS, dtype=np.int64), number))
            writer.flush()
    table.merge()
    store = open_store(table.uri)
    (region,) = (paths.region_of(name) for name in store.list_folders(paths.MEM_WAL_FOLDER))
    if region is None:
        raise WrongResultError("the table has no region")
    manifests = RegionManifests(store, region)
    flushed = manifests.latest().replay_after_wal_entry_position
    entry = folder / paths.wal_path(region, flushed)
    for position in range(flushed + 1, flushed + files + 2):
        os.link(entry, folder / paths.wal_path(region, position))
    manifests.commit(
        manifests.latest(),
        replay_after_wal_entry_position=flushed + files + 1,
        wal_entry_position_last_seen=flushed + files + 1,
    )
    return table


class _Counting:
    """The requests that S3 would see: a page of a listing and a bulk deletion are one each."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.requests = 0

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value) or name in ("leftovers", "refuse_links"):  # a bucket has none
            return value

        def counted(first: Any, *rest: Any) -> Any:
            if name.startswith("delete"):
                first = list(first)
            result = value(first, *rest)
            if name == "list":
                self.requests += max(1, -(-len(result) // _PAGE))
            elif name == "delete_in_bulk":
                self.requests += -(-len(first) // _PAGE)
            else:
                self.requests += len(first) if name == "delete" else 1
            return result

        return counted
