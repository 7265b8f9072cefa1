"""What pylance's own MemWAL reads: the oracle for files that we write."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
from lance import LsmScanner, ShardSnapshot

from exec_nodes.keys.bloom import BloomFilter
from exec_nodes.keys.hashing import hash_columns
from memwal_sql.storage.generation.write import write_generation
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.wal.entry import entry_schema

KEY = {b"lance-schema:unenforced-primary-key": b"true"}


def key_metadata(position: int) -> dict[bytes, bytes]:
    """Field metadata of the key column at `position`, from 1."""
    return {**KEY, b"lance-schema:unenforced-primary-key:position": b"%d" % position}


def base_table(path: Path, table: pa.Table) -> Any:
    """A Lance table with a native MemWAL index and no region."""
    dataset = lance.write_dataset(table, str(path))
    dataset.initialize_mem_wal(unsharded=True)
    return dataset


def rows(base: Any, upserts: dict[str, list[Any]], deletes: dict[str, list[Any]]) -> pa.Table:
    """Upserted rows, then tombstones, with the schema of entries and generations."""
    schema = entry_schema(base.schema, base.lance_schema)
    counts = [len(next(iter(part.values()), [])) for part in (upserts, deletes)]
    columns = {
        name: upserts.get(name, [None] * counts[0]) + deletes.get(name, [None] * counts[1])
        for name in schema.names[:-1]
    }
    columns["_tombstone"] = [False] * counts[0] + [True] * counts[1]
    return pa.table(columns, schema=schema)


def write(
    store: ObjectStore,
    base: Any,
    region_id: UUID,
    generation: int,
    table: pa.Table,
    primary_key: list[str],
    new_hex: str = "0123abcd",
) -> FlushedGeneration:
    """`write_generation` with a bloom filter of the table's keys."""
    columns = [table[name].combine_chunks() for name in primary_key]
    return write_generation(
        store,
        base.uri,
        region_id,
        generation,
        table,
        primary_key=primary_key,
        base=base,
        bloom_filter=BloomFilter.build(hash_columns(columns)).data,
        new_hex=lambda: new_hex,
    )


def snapshot(manifest: RegionManifest) -> ShardSnapshot:
    """The region's flushed generations as native readers take them."""
    result = ShardSnapshot(str(manifest.region_id))
    result = result.with_spec_id(manifest.region_spec_id)
    result = result.with_current_generation(manifest.current_generation)
    for one in manifest.flushed_generations:
        result = result.with_sstable(one.generation, one.path)
    return result


def scan(base: Any, manifest: RegionManifest, key: str = "id") -> list[dict[str, Any]]:
    """All live rows, by key."""
    table = LsmScanner.from_snapshots(base, [snapshot(manifest)]).to_table()
    return table.sort_by(key).to_pylist()
