"""The peer: the MemWAL writer and readers inside pylance, at its best settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
from lance.mem_wal import LsmPointLookupPlanner, LsmScanner, ShardSnapshot

from benchmarks.support.data import NATIVE_SCHEMA

_GENERATION = re.compile(r"[0-9a-f]{8}_gen_(\d+)")
# The flush interval is the latency of a durable write, 100 ms unless set.
_FASTEST = {"max_wal_flush_interval_ms": 1}


class NativeTable:
    """A base table and one shard written by pylance."""

    def __init__(self, folder: Path, base: pa.Table | None = None, **options: Any) -> None:
        """Over these rows, or over the Lance table that is there; `options` are those of
        `initialize_mem_wal`."""
        self._folder = folder
        if base is not None:
            dataset = lance.write_dataset(base.cast(NATIVE_SCHEMA), folder)
            dataset.create_scalar_index("id", "BTREE")
        lance.dataset(folder).initialize_mem_wal(unsharded=True, **options)
        self.dataset = lance.dataset(folder)
        self.shard = str(uuid4())

    @property
    def wal_folder(self) -> Path:
        """Where the shard's WAL entries are."""
        return self._folder / "_mem_wal" / self.shard / "wal"

    def writer(self, durable: bool, **options: Any) -> Any:
        """A writer of the shard; closing it flushes its MemTable into a generation."""
        settings = _FASTEST | {"durable_write": durable} | options
        return self.dataset.mem_wal_writer(self.shard, **settings)

    def write_generation(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Put `batches` and flush them into one generation."""
        with self.writer(durable=False) as writer:
            put_all(writer, batches)

    def snapshot(self) -> ShardSnapshot:
        """The shard with its flushed generations."""
        snapshot = ShardSnapshot(self.shard)
        generations = self._generations()
        for number, path in generations:
            snapshot = snapshot.with_sstable(number, path)
        return snapshot.with_current_generation(len(generations) + 1)

    def _generations(self) -> list[tuple[int, str]]:
        folders = (self._folder / "_mem_wal" / self.shard).iterdir()
        matches = (_GENERATION.fullmatch(folder.name) for folder in folders)
        return sorted((int(match[1]), match[0]) for match in matches if match)

    def lookup_planner(self) -> LsmPointLookupPlanner:
        """Point lookups over the base and the flushed generations."""
        return LsmPointLookupPlanner(self.dataset, [self.snapshot()])


def put_all(writer: Any, batches: Iterable[pa.RecordBatch]) -> None:
    """Put each batch on its own; those of the shared tables get their key marked."""
    for batch in batches:
        own = batch.schema.names == NATIVE_SCHEMA.names
        writer.put(batch.cast(NATIVE_SCHEMA) if own else batch)


def native_scan(writer: Any, columns: Sequence[str], where: str | None = None) -> pa.Table:
    """Everything that is live, MemTable included, through the writer's own scanner."""
    scanner: LsmScanner = writer.lsm_scanner().project(list(columns))
    if where is not None:
        scanner = scanner.filter(where)
    return scanner.to_table()
