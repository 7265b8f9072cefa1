"""The change feed: what was written to a region after a given place, in the order of writing.

It reads the WAL, so it holds what is durable and nothing else. Fences are passed over. Entries
that were collected are a gap, and a gap is an error. Generations that were published past the WAL
(protocol rule 24) show as generations that no entry belongs to: generations never decrease along
the WAL and every one up to the manifest's is in storage (rule 6), so between an entry of generation
2 and one of generation 5 the generations 3 and 4 must have been published whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from exec_nodes.sources.lance_errors import lance_errors
from exec_nodes.sources.stored_generation import open_generation
from memwal_sql.errors import (
    ChangesCollectedError,
    CorruptFileError,
    SourceGoneError,
    TornEntryError,
)
from memwal_sql.read.base import BaseTable
from memwal_sql.read.change_offsets import ChangeOffset
from memwal_sql.read.context import TableContext
from memwal_sql.read.region import RegionReader
from memwal_sql.storage.memory_store import lance_uri
from memwal_sql.storage.paths import generation_uri
from memwal_sql.storage.region_manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.wal import Wal, WalEntry
from memwal_sql.write.memtable import conform, memtable_schema
from memwal_sql.write.replay import read_ahead
from planner.model import TableInfo

UPSERT = "upsert"
DELETE = "delete"
FEED_FIELDS = (
    pa.field("_change", pa.string(), nullable=False),
    pa.field("_region", pa.string(), nullable=False),
    pa.field("_position", pa.int64(), nullable=False),
    pa.field("_generation", pa.int64(), nullable=False),
)


def feed_schema(info: TableInfo, columns: Sequence[str]) -> pa.Schema:
    """`columns`, of which those outside the primary key are null in deletes, and `FEED_FIELDS`."""
    fields = [info.schema.field(name) for name in columns]
    key = info.primary_key
    return pa.schema(
        [*(f if f.name in key else f.with_nullable(True) for f in fields), *FEED_FIELDS]
    )


class RegionChanges:
    """The changes of one region."""

    def __init__(
        self, context: TableContext, region: RegionReader, base: BaseTable, columns: Sequence[str]
    ) -> None:
        info = base.info
        self._context = context
        self._region = region
        self._wal = Wal(context.store, region.region_id, base.stored)
        self._names = base.names
        self._stored = memtable_schema(info.schema)
        self._key = frozenset(info.primary_key)
        self._columns = tuple(columns)
        self._schema = feed_schema(info, columns)

    def end(self) -> ChangeOffset:
        """The place after everything that is there now."""
        manifest = self._region.refresh()
        flushed = manifest.replay_after_wal_entry_position
        newest = manifest.current_generation - 1
        last = max(self._wal.positions(), default=0)
        while last > flushed and (entry := self._read(last)) is None:
            last -= 1  # cut off, or still on its way: nobody was told that it is there
        for position in range(last, flushed, -1):
            entry = self._read(position)
            if entry is not None and entry.generation is not None:
                newest = max(newest, entry.generation)
                break
        return ChangeOffset(last, newest)

    def reaches(self, offset: ChangeOffset) -> bool:
        """Whether the region has ever come as far as `offset`."""
        if offset.position <= self._region.refresh().replay_after_wal_entry_position:
            return True
        return self._wal.exists(offset.position)

    def batches(
        self, after: ChangeOffset, until: ChangeOffset | None = None
    ) -> Iterator[pa.RecordBatch]:
        """What was written after `after`, up to `until` (default: all that is there now).

        A batch is an entry, or a part of a published generation; its place is where to go on after
        it without missing anything. Raises ChangesCollectedError when something in between was
        collected, and CorruptFileError for a damaged WAL.
        """
        position = after.position
        generation = self._generation_at(after)
        manifest, last = self._extent(after.position, until)
        order = _Order(self._wal)
        for position, entry in read_ahead(self._wal, after.position + 1, last + 1):
            if entry is None:
                raise self._missing(position)
            rows = order.rows_of(position, entry)
            if rows is None:
                continue
            own = max(generation, rows.generation or 0)
            for published in range(generation + 1, own):
                yield from self._published(manifest, published, position - 1)
            generation = own
            yield self._changes(conform(rows.batch, self._stored), position, generation)
        if until is None or until.generation is not None:
            newest = manifest.current_generation - 1
            if until is not None and until.generation is not None:
                newest = min(newest, until.generation)
            for published in range(generation + 1, newest + 1):
                yield from self._published(manifest, published, position)

    def _generation_at(self, after: ChangeOffset) -> int:
        """The generation that was reached at a place: that of the last entry up to it."""
        if after.generation is not None:
            return after.generation
        for position in range(after.position, 0, -1):
            entry = self._read(position)
            if entry is None:
                raise ChangesCollectedError(
                    f"region {self._region.name}: the entries up to WAL position {after.position} "
                    "were collected, so that the generation reached there is not known: give "
                    "[position, generation] as the place"
                )
            if entry.generation is not None:
                return entry.generation
        return 0

    def _extent(self, position: int, until: ChangeOffset | None) -> tuple[RegionManifest, int]:
        """A manifest, and the last position to be read: not before the one it has flushed.

        That the next position is not there ends the feed only if a manifest that is read after
        that has not flushed it (protocol rule 15).
        """
        manifest = self._region.refresh()
        while not self._wal.exists(position + 1):
            if position + 1 <= manifest.replay_after_wal_entry_position:
                raise self._missing(position + 1)
            newer = self._region.refresh()
            if newer.version == manifest.version:
                return manifest, position
            manifest = newer
        if until is not None:
            return manifest, until.position
        return manifest, max(self._wal.positions(), default=position)

    def _missing(self, position: int) -> ChangesCollectedError | CorruptFileError:
        if position > self._region.refresh().replay_after_wal_entry_position:
            return CorruptFileError(
                f"{self._wal.path(position)} is missing, but later WAL entries are there"
            )
        return ChangesCollectedError(
            f"region {self._region.name}: the changes at WAL position {position} were collected: "
            "take table.change_offsets(), then the rows of table.scan(), and go on from there"
        )

    def _published(
        self, manifest: RegionManifest, generation: int, position: int
    ) -> Iterator[pa.RecordBatch]:
        flushed = _listed(manifest, generation) or _listed(self._region.refresh(), generation)
        if flushed is None:
            raise self._missing_generation(generation)
        uri = generation_uri(lance_uri(self._context.uri), self._region.region_id, flushed.path)
        name, options = f"generation {generation}", self._context.storage_options
        try:
            with lance_errors(name, uri):
                dataset = self._names.given_to(open_generation(uri, name, flushed.rows, options))
                held = None
                for batch in dataset.scanner(scan_in_order=True).to_batches():
                    if held is not None:
                        # Who stops here and goes on later begins the generation again.
                        yield self._changes(held, position, generation - 1)
                    held = conform(batch, self._stored)
                if held is not None:
                    yield self._changes(held, position, generation)
        except SourceGoneError as error:
            raise self._missing_generation(generation) from error

    def _missing_generation(self, generation: int) -> ChangesCollectedError:
        return ChangesCollectedError(
            f"region {self._region.name}: generation {generation}, which was published without WAL "
            "entries, was collected: take table.change_offsets(), then the rows of table.scan(), "
            "and go on from there"
        )

    def _changes(self, batch: pa.RecordBatch, position: int, generation: int) -> pa.RecordBatch:
        """The rows of a stored batch as the feed shows them."""
        count = batch.num_rows
        deleted = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False)
        # Where a column admits no null, a delete holds a placeholder.
        kept = pa.array(np.arange(count), mask=deleted) if deleted.any() else None
        columns = []
        for name in self._columns:
            column = batch.column(name)
            columns.append(column if kept is None or name in self._key else column.take(kept))
        kinds = pa.DictionaryArray.from_arrays(deleted.astype(np.int8), [UPSERT, DELETE])
        columns += [
            kinds.dictionary_decode(),
            pa.repeat(pa.scalar(str(self._region.region_id)), count),
            pa.repeat(pa.scalar(position, pa.int64()), count),
            pa.repeat(pa.scalar(generation, pa.int64()), count),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _read(self, position: int) -> WalEntry | None:
        try:
            return self._wal.read(position)
        except TornEntryError:
            return None


class _Order:
    """Sees to it that entries follow each other as a WAL's do (protocol rules 5 and 9)."""

    def __init__(self, wal: Wal) -> None:
        self._wal = wal
        self._epoch = 0
        self._torn: dict[int, TornEntryError] = {}

    def rows_of(self, position: int, entry: WalEntry | TornEntryError) -> WalEntry | None:
        """The entry if it has rows. Raises CorruptFileError naming the file."""
        if isinstance(entry, TornEntryError):
            self._torn[position] = entry
            return None
        if entry.batch is None:
            self._epoch = max(self._epoch, entry.writer_epoch)
            for skipped in entry.skipped:
                self._torn.pop(skipped, None)
            return None
        if self._torn:
            raise next(iter(self._torn.values()))
        if entry.writer_epoch < self._epoch:
            raise CorruptFileError(
                f"{self._wal.path(position)} was written by epoch {entry.writer_epoch} above the "
                f"fence of epoch {self._epoch}"
            )
        return entry


def _listed(manifest: RegionManifest, generation: int) -> FlushedGeneration | None:
    return next((g for g in manifest.flushed_generations if g.generation == generation), None)
