"""Tables on a local disk with a writer, without the read side: what is there is read plainly."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import lance
import pyarrow as pa

from memwal_sql.state.context import TableContext
from memwal_sql.state.schema import with_primary_key
from memwal_sql.storage import paths
from memwal_sql.storage.objects.open import canonical_uri, open_store
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.table import TableRecord
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import Wal
from memwal_sql.write.conditional.resolve import LiveRows
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.region_opener import FindRegions, WrittenTable
from memwal_sql.write.table_writer import TableWriter
from planner.model import TableInfo
from planner.regions.check import validate
from planner.regions.factories import unsharded
from planner.regions.field import RegionField
from planner.regions.spec import RegionSpec

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("val", pa.string())])


class Table:
    """A Lance table, its store and its region spec."""

    def __init__(
        self,
        folder: Path,
        schema: pa.Schema = SCHEMA,
        primary_key: Sequence[str] = ("id",),
        regions: Sequence[RegionField] | None = (unsharded(),),
    ) -> None:
        self.uri = str(folder / "table")
        marked = with_primary_key(schema, primary_key)
        self.base = lance.write_dataset(marked.empty_table(), self.uri)
        self.primary_key = tuple(primary_key)
        self.schema = schema
        specs: tuple[RegionSpec, ...] = ()
        if regions is not None:
            specs = (validate(RegionSpec(1, tuple(regions)), schema, primary_key),)
        self.info = TableInfo(schema, self.primary_key, specs)
        self.store = open_store(self.uri)
        self.incarnation = UUID(int=7)
        self.identity = (canonical_uri(self.uri), str(self.incarnation))

    def writer(
        self,
        store: ObjectStore | None = None,
        *,
        region: str | None = None,
        live: LiveRows | None = None,
        regions_of: FindRegions | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = lambda seconds: None,
        **options: Any,
    ) -> TableWriter:
        context = TableContext(self.uri, store or self.store, TableRecord(self.incarnation))
        table = WrittenTable(
            context=context,
            info=self.info,
            base=self.base,
            find=regions_of or (lambda spec_id, regions: [None] * len(regions)),
        )
        return TableWriter(
            table,
            live or cast(LiveRows, self),  # what depends on rows that are there reads it
            region=region,
            options=WriterOptions(**options),
            clock=clock,
            sleep=sleep,
        )

    def regions(self) -> list[RegionManifest]:
        folders = self.store.list_folders(paths.MEM_WAL_FOLDER)
        ids = [UUID(folder.rstrip("/").rpartition("/")[2]) for folder in folders]
        return [RegionManifests(self.store, one).latest() for one in sorted(ids)]

    def rows(self) -> dict[Any, dict[str, Any]]:
        """Every live row by key, from the region manifests, generations and WAL entries."""
        held: dict[Any, dict[str, Any]] = {}
        for manifest in self.regions():
            for flushed in manifest.flushed_generations:
                uri = paths.generation_uri(self.uri, manifest.region_id, flushed.path)
                self._apply(held, lance.dataset(uri).to_table())
            wal = Wal(self.store, manifest.region_id)
            for position in wal.positions():
                entry = wal.read(position)
                if position > manifest.replay_after_wal_entry_position and entry.batch is not None:
                    self._apply(held, entry.batch)
        return held

    def values(self) -> dict[Any, Any]:
        """`rows` by key, their column `val` alone."""
        return {key: row["val"] for key, row in self.rows().items()}

    def _apply(self, held: dict[Any, dict[str, Any]], rows: pa.Table | pa.RecordBatch) -> None:
        for row in rows.to_pylist():
            gone = row.pop("_tombstone")
            parts = tuple(row[name] for name in self.primary_key)
            key = parts[0] if len(parts) == 1 else parts
            if gone:
                held.pop(key, None)
            else:
                held[key] = row
