"""Native MemWAL through pylance: the other client that our files must make sense to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
from lance.mem_wal import LsmPointLookupPlanner, LsmScanner, ShardSnapshot

from tests.model.merging import manifests, merged_generations
from tests.model.waiting import eventually

_KEY = {b"lance-schema:unenforced-primary-key": b"true"}


# Writers that a test has opened; one that is dropped closes and flushes its rows.
OPEN: list[Any] = []


def native_schema(schema: pa.Schema, primary_key: Sequence[str]) -> pa.Schema:
    """`schema` with the primary key marked as native code wants it."""
    for position, name in enumerate(primary_key, start=1):
        index = schema.get_field_index(name)
        metadata = dict(_KEY)
        if len(primary_key) > 1:
            metadata[b"lance-schema:unenforced-primary-key:position"] = str(position).encode()
        schema = schema.set(index, schema.field(index).with_nullable(False).with_metadata(metadata))
    return schema


def create_native(uri: str, rows: pa.Table, primary_key: Sequence[str], **mem_wal: Any) -> None:
    """A table whose base and MemWAL index were made by native code."""
    schema = native_schema(rows.schema, primary_key)
    dataset = lance.write_dataset(rows.cast(schema), uri, schema=schema)
    for name in primary_key:
        dataset.create_scalar_index(name, "BTREE")
    dataset.initialize_mem_wal(**mem_wal)


def native_writer(uri: str, region_id: UUID | str, **options: Any) -> Any:
    """A native writer at a short WAL interval; opening it claims the region and replays."""
    settings = {"max_wal_flush_interval_ms": 1, **options}
    writer = lance.dataset(uri).mem_wal_writer(str(region_id), **settings)
    OPEN.append(writer)
    return writer


def wait_for_flushes(writer: Any, generations: int) -> None:
    """Native flushes in the background: wait until so many generations are committed, and no more
    are under way."""

    def done() -> bool:
        enough = writer.stats()["memtable_flush_count"] >= generations
        return enough and not writer.memtable_stats()["frozen_count"]

    eventually(done)


def snapshots(uri: str, without: UUID | None = None) -> list[ShardSnapshot]:
    """What a native reader is told of our regions."""
    merged = merged_generations(uri)
    found = []
    for region_id, manifest in manifests(uri).items():
        if region_id == without:
            continue
        shard = ShardSnapshot(str(region_id))
        shard = shard.with_current_generation(manifest.current_generation)
        for one in manifest.flushed_generations:
            if one.generation > merged.get(region_id, 0):
                shard = shard.with_sstable(one.generation, one.path)
        found.append(shard)
    return found


def native_scan(uri: str) -> pa.Table:
    """The base table and every flushed generation, by the native scanner."""
    return LsmScanner.from_snapshots(lance.dataset(uri), snapshots(uri)).to_table()


def native_scan_with_tail(uri: str, region_id: UUID) -> pa.Table:
    """The same with the unflushed rows of one region, which this takes over."""
    with native_writer(uri, region_id) as writer:
        return writer.lsm_scanner(snapshots(uri, without=region_id)).to_table()


def native_lookup(uri: str, key: pa.Array) -> pa.Table:
    """One key by the native point lookup; `key` has one row, a struct for a composite key."""
    planner = LsmPointLookupPlanner(lance.dataset(uri), snapshots(uri))
    return planner.plan_lookup(key).to_table()


def folder_of(tmp_path: Path, name: str = "table") -> str:
    """A table's URI in a test's folder."""
    return str(tmp_path / name)
