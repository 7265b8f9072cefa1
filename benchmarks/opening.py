"""Opening a table of many regions with nothing cached, and taking its first snapshot."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import lance
import numpy as np

import memwal_sql as mw
from benchmarks.support.child import run_child
from benchmarks.support.data import WrongResultError, rows
from benchmarks.support.raw import forget
from benchmarks.support.result import Reach, Result
from benchmarks.support.timing import lower_quartile
from benchmarks.support.workspace import Workspace, enabled_table
from memwal_sql.storage.base.memwal_index import commit_details, read_details
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.paths import MEM_WAL_FOLDER, region_of
from memwal_sql.storage.region.manifest import RegionManifests
from memwal_sql.storage.region.snapshot_file import INLINE_REGIONS, encode_regions, external_path


def opening(work: Workspace) -> Iterator[Result]:
    """`open_table` and a snapshot, in a fresh process, with the table's files out of memory.

    Every region has one flushed generation.
    """
    count, rounds = work.sizes.regions, work.sizes.cold_starts
    one_each = rows(np.arange(count, dtype=np.int64), 1)
    folder = work.folder / "regions"
    table = enabled_table(folder, one_each.slice(0, 0), regions=[mw.identity("id")])
    with table.writer(durable=False) as writer:
        writer.upsert(one_each)
        writer.flush()
    record_regions(table)
    for consistency, source, limit in (
        ("manifest", "manifests", 1.0),
        ("eventual", "the region snapshot", 0.2),
        ("strong", "manifests, and looking for WAL entries", None),
    ):
        seconds = lower_quartile([_cold(folder, consistency, count) for _ in range(rounds)])
        reach = None if limit is None else Reach(seconds, limit, "at most", "s")
        yield Result(
            f"opening a table with {count:,} regions, cold, from {source}",
            seconds,
            "s",
            reach=reach,
        )


def _cold(folder: Path, consistency: str, count: int) -> float:
    forget(folder)
    seconds, regions, generations = run_child(
        "benchmarks.children.open", str(folder), consistency
    ).words
    if (int(regions), int(generations)) != (count, count):
        raise WrongResultError(f"opened {regions} regions with {generations} generations")
    return float(seconds)


def record_regions(table: mw.Table) -> None:
    """Record the states of all regions in the MemWAL index (Specification 1, region snapshots)."""
    store = open_store(table.uri)
    dataset = lance.dataset(table.uri)
    found = read_details(store, dataset)
    if found is None:
        raise WrongResultError(f"{table.uri} has no MemWAL index")
    ids = (region_of(name) for name in store.list_folders(MEM_WAL_FOLDER))
    manifests = [RegionManifests(store, one).latest() for one in ids if one is not None]
    data = encode_regions(manifests, table.snapshot("manifest").info.region_specs)
    index = uuid4()
    inline = len(manifests) <= INLINE_REGIONS
    if not inline:
        store.put(external_path(index), data)
    details = replace(
        found.details,
        snapshot_ts_millis=int(time.time() * 1000),
        num_regions=len(manifests),
        inline_snapshots=data if inline else None,
    )
    commit_details(dataset, details, index)
