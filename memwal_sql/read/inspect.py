"""The state of a table as tables: the rows of `name$regions` and its siblings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa

from exec_nodes.lance.indexes import indexes_of
from memwal_sql.read.region import RegionReader
from memwal_sql.read.registry import RegionRegistry
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.memwal_index import INDEX_NAME
from memwal_sql.storage.wal.log import Wal, WalEntry
from memwal_sql.storage.wal.undecided import is_undecided

REGIONS = pa.schema(
    [
        pa.field("region_id", pa.string(), nullable=False),
        pa.field("region", pa.string(), nullable=False),
        pa.field("spec_id", pa.int64(), nullable=False),
        pa.field("region_values", pa.string()),
        pa.field("status", pa.string(), nullable=False),
        pa.field("writer_epoch", pa.int64(), nullable=False),
        pa.field("manifest_version", pa.int64(), nullable=False),
        pa.field("current_generation", pa.int64(), nullable=False),
        pa.field("merged_generation", pa.int64(), nullable=False),
        pa.field("flushed_generations", pa.int64(), nullable=False),
        pa.field("unflushed_rows", pa.int64(), nullable=False),
        pa.field("replay_after_wal_entry_position", pa.int64(), nullable=False),
        pa.field("wal_entry_position_last_seen", pa.int64(), nullable=False),
    ]
)
GENERATIONS = pa.schema(
    [
        pa.field("region_id", pa.string(), nullable=False),
        pa.field("region", pa.string(), nullable=False),
        pa.field("generation", pa.int64(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("path", pa.string()),
        pa.field("num_rows", pa.int64()),
        pa.field("bytes", pa.int64()),
    ]
)
WAL = pa.schema(
    [
        pa.field("region_id", pa.string(), nullable=False),
        pa.field("region", pa.string(), nullable=False),
        pa.field("position", pa.int64(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("writer_epoch", pa.int64(), nullable=False),
        pa.field("generation", pa.int64()),
        pa.field("num_rows", pa.int64(), nullable=False),
        pa.field("flushed", pa.bool_(), nullable=False),
        pa.field("transaction", pa.string()),
        pa.field("verdict", pa.string()),
    ]
)
INDEXES = pa.schema(
    [
        pa.field("name", pa.string(), nullable=False),
        pa.field("columns", pa.list_(pa.string()), nullable=False),
        pa.field("type", pa.string(), nullable=False),
        pa.field("rows_indexed", pa.int64()),
        pa.field("segments", pa.int64()),
        pa.field("maintained", pa.bool_(), nullable=False),
    ]
)


def regions(base: BaseTable, registry: RegionRegistry) -> pa.Table:
    """One row per region."""

    def row(region: RegionReader) -> dict[str, object]:
        unflushed = region.unflushed()
        manifest = unflushed.manifest
        return {
            **_names(region),
            "spec_id": region.spec_id,
            "region_values": _json(region.values),
            "status": manifest.status.name.lower(),
            "writer_epoch": manifest.writer_epoch,
            "manifest_version": manifest.version,
            "current_generation": manifest.current_generation,
            "merged_generation": base.details.merged_generations.get(region.region_id, 0),
            "flushed_generations": len(manifest.flushed_generations),
            "unflushed_rows": sum(memtable.rows for memtable in unflushed.memtables),
            "replay_after_wal_entry_position": manifest.replay_after_wal_entry_position,
            "wal_entry_position_last_seen": manifest.wal_entry_position_last_seen,
        }

    return _table(map(row, registry.regions(base)), REGIONS)


def generations(base: BaseTable, registry: RegionRegistry) -> pa.Table:
    """One row per generation: `merged` and `flushed` ones in storage, `memtable` ones in memory."""
    rows: list[dict[str, object]] = []
    for region in registry.regions(base):
        unflushed = region.unflushed()
        merged = base.details.merged_generations.get(region.region_id, 0)
        for flushed in unflushed.manifest.flushed_generations:
            rows.append(
                {
                    **_names(region),
                    "generation": flushed.generation,
                    "state": "merged" if flushed.generation <= merged else "flushed",
                    "path": flushed.path,
                    "num_rows": flushed.rows,
                    "bytes": flushed.bytes,
                }
            )
        for memtable in unflushed.memtables:
            rows.append(
                {
                    **_names(region),
                    "generation": memtable.generation,
                    "state": "memtable",
                    "path": None,
                    "num_rows": memtable.rows,
                    "bytes": memtable.nbytes,
                }
            )
    return _table(rows, GENERATIONS)


def wal(context: TableContext, base: BaseTable, registry: RegionRegistry) -> pa.Table:
    """One row per WAL entry, from the oldest that has not been collected."""
    rows: list[dict[str, object]] = []
    for region in registry.regions(base):
        log = context.wal(region.region_id)
        flushed = region.refresh().replay_after_wal_entry_position
        for position in log.positions():
            entry = log.read(position)
            if entry is None:
                continue  # collected since the listing
            rows.append(
                {
                    **_names(region),
                    "position": position,
                    "kind": _kind(entry),
                    "writer_epoch": entry.writer_epoch,
                    "generation": entry.generation,
                    "num_rows": entry.batch.num_rows if entry.batch is not None else 0,
                    "flushed": position <= flushed,
                    "transaction": None if entry.intent is None else entry.intent.id,
                    "verdict": _verdict(log, entry, flushed),
                }
            )
    return _table(rows, WAL)


def _kind(entry: WalEntry) -> str:
    """`read` is an intent without rows: its transaction has only read the region."""
    if entry.batch is not None:
        return "rows"
    return "fence" if entry.intent is None else "read"


def _verdict(log: Wal, entry: WalEntry, flushed: int) -> str | None:
    """Whether the transaction of an entry is committed. The record of one that is stays as long as
    the entry does; without one, what is flushed or has others behind it was given up."""
    if entry.intent is None:
        return None
    if log.verdict(entry):
        return "committed"
    is_open = entry.position > flushed and is_undecided(log, entry)
    return "undecided" if is_open else "aborted"


def indexes(base: BaseTable) -> pa.Table:
    """One row per index of the base table, except the MemWAL index."""
    maintained = set(base.details.maintained_indexes)
    key_columns: Sequence[Sequence[str]] = [[name] for name in base.info.primary_key]
    rows = (
        {
            "name": index.name,
            "columns": list(index.field_names),
            "type": index.type_url.rpartition(".")[2].removesuffix("IndexDetails"),
            "rows_indexed": index.num_rows_indexed,
            "segments": len(index.segments),
            "maintained": index.name in maintained or list(index.field_names) in key_columns,
        }
        for index in indexes_of(base.dataset)
        if index.name != INDEX_NAME
    )
    return _table(rows, INDEXES)


def _names(region: RegionReader) -> dict[str, object]:
    return {"region_id": str(region.region_id), "region": region.name}


def _json(values: Mapping[str, object] | None) -> str | None:
    return None if values is None else json.dumps(dict(values), default=repr)


def _table(rows: Iterable[Mapping[str, object]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema)
