"""The change feed of one region: its writes after a given place, in order.

It reads the WAL, so it has all durable rows and no others. Fences are skipped, and so are intents
of transactions that are not committed; it ends before one that is undecided. Collected entries
are a gap, and a gap is an error. Generations that were published past the WAL (protocol rule 24)
show as generations without entries: generations never decrease along the WAL and every one up to
the manifest's is in storage (rule 6), so between an entry of generation 2 and one of generation 5
the generations 3 and 4 must have been published whole.

Lance before version 14, which LanceDB 0.40 has, leaves the generation out of its entries. Its
generations without entries are told from published ones by the writer of their files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from exec_nodes.evolution.known import stored_rows
from exec_nodes.evolution.project import CurrentSchema
from exec_nodes.lance.errors import lance_errors
from exec_nodes.lance.reading import batches_of
from exec_nodes.lance.stored_generation import open_generation
from memwal_sql.errors import (
    ChangesCollectedError,
    CorruptFileError,
    SourceGoneError,
    TornEntryError,
)
from memwal_sql.read.changes.offsets import ChangeOffset
from memwal_sql.read.changes.old_rows import BEFORE, OldRows, struct_of
from memwal_sql.read.changes.stored_changes import StoredChanges
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.state.entry_rows import entry_rows
from memwal_sql.state.memtable import conform, memtable_schema
from memwal_sql.state.replay import read_ahead
from memwal_sql.storage.base.manifest import read_writer
from memwal_sql.storage.base.versions import version_numbers
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.paths import generation_folder, generation_uri
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.wal.log import WalEntry
from memwal_sql.storage.wal.order import Order
from memwal_sql.storage.wal.torn import is_skipped, whole_end
from memwal_sql.storage.wal.undecided import is_undecided
from planner.model import TableInfo

_NAMES_GENERATIONS = 14  # the first major version of Lance whose WAL entries do

UPSERT = "upsert"
DELETE = "delete"
FEED_FIELDS = (
    pa.field("_change", pa.string(), nullable=False),
    pa.field("_region", pa.string(), nullable=False),
    pa.field("_position", pa.int64(), nullable=False),
    pa.field("_generation", pa.int64(), nullable=False),
    pa.field("_transaction", pa.string()),
)


def feed_schema(info: TableInfo, columns: Sequence[str], *, old_rows: bool = False) -> pa.Schema:
    """`columns`, of which those outside the primary key are null in deletes, `FEED_FIELDS`, and
    with `old_rows` a struct of the columns."""
    fields = [info.schema.field(name) for name in columns]
    key = info.primary_key
    own = (
        [*FEED_FIELDS, pa.field(BEFORE, struct_of(info.schema, columns))]
        if old_rows
        else FEED_FIELDS
    )
    return pa.schema([*(f if f.name in key else f.with_nullable(True) for f in fields), *own])


class RegionChanges:
    """The changes of one region."""

    def __init__(
        self,
        context: TableContext,
        region: RegionReader,
        base: BaseTable,
        columns: Sequence[str],
        *,
        old_rows: bool = False,
    ) -> None:
        info = base.info
        self._context = context
        self._region = region
        self._wal = context.wal(region.region_id, base.stored)
        self._names = CurrentSchema(base.names.schema, keeps_types=True)
        self._memtable_schema = memtable_schema(info.schema)
        self._key = info.primary_key
        self._columns = tuple(columns)
        self._schema = feed_schema(info, columns, old_rows=old_rows)
        self._old_rows = OldRows(context, region, base, columns) if old_rows else None

    def end(self) -> ChangeOffset:
        """The place after all current entries. Raises CorruptFileError if the end of the WAL is
        damaged."""
        manifest = self._region.refresh()
        flushed = manifest.replay_after_wal_entry_position
        newest = manifest.current_generation - 1
        positions = self._wal.positions()
        last = min(flushed, max(positions, default=0))
        above = [position for position in positions if position > flushed]
        if above:
            seen = manifest.wal_entry_position_last_seen
            end = whole_end(self._wal, above[0], above[-1] + 1, seen)
            above = [position for position in above if position < end]
        last = above[-1] if above else last
        for position in reversed(above):
            entry = self._read(position)
            if entry is not None and is_undecided(self._wal, entry):
                last = position - 1
            elif entry is not None and not entry.is_fence:
                newest = max(newest, entry.generation or manifest.current_generation)
                break
        return ChangeOffset(last, newest)

    def reaches(self, offset: ChangeOffset) -> bool:
        """Whether the region has ever reached `offset`. Raises CorruptFileError if the entry there,
        which was complete when the place was recorded, is damaged."""
        if self._is_flushed(offset.position):
            return True
        try:
            if self._wal.read(offset.position) is not None:
                return True
        except TornEntryError:
            if not is_skipped(self._wal, offset.position):
                raise
            return True
        # It may have been flushed and collected meanwhile (protocol rule 15).
        return self._is_flushed(offset.position)

    def batches(
        self, after: ChangeOffset, until: ChangeOffset | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The writes after `after`, up to `until` (default: the current end).

        A batch is an entry, or a part of a published generation; a reader that continues at its
        place misses nothing. Raises ChangesCollectedError if changes in between, or old rows, were
        collected, and CorruptFileError for a damaged WAL.
        """
        changes = self._stored(after, until)
        if self._old_rows is None:
            yield from (self._changes(change) for change in changes)
            return
        for change, old in self._old_rows.of(changes):
            yield self._changes(change, old)

    def _stored(self, after: ChangeOffset, until: ChangeOffset | None) -> Iterator[StoredChanges]:
        position = after.position
        generation = self._generation_at(after)
        manifest, last = self._extent(after.position, until)
        flushed = manifest.replay_after_wal_entry_position
        order = Order(self._wal, frozenset(manifest.transactions))
        pending: StoredChanges | None = None
        unnumbered = False
        for position, entry in read_ahead(self._wal, after.position + 1, last + 1):
            if entry is None:
                raise self._missing(position)
            if isinstance(entry, WalEntry) and entry.intent is not None:
                if position > flushed and is_undecided(self._wal, entry):
                    break
                if self._wal.verdict(entry) is None and not self._wal.exists(position):
                    raise self._missing(position)  # collected meanwhile, and then its record
            rows = order.rows_of(position, entry)
            if rows is None:
                continue
            if pending is not None:
                yield pending
                pending = None
            transaction = None if rows.intent is None else rows.intent.id
            stored = stored_rows(rows.batch, self._memtable_schema)
            batch = entry_rows(stored, self._memtable_schema, self._key, self._wal.path(position))
            if rows.generation is None and position <= flushed:
                before = ChangeOffset(position - 1, generation)
                pending = StoredChanges(batch, position, generation, before)
                unnumbered = True
                continue
            reached = max(generation, rows.generation or manifest.current_generation)
            for published in self._between(manifest, generation, reached, unnumbered):
                yield from self._published(manifest, published, position - 1)
                generation = published
            before = ChangeOffset(position - 1, generation)
            generation = reached
            yield StoredChanges(batch, position, generation, before, transaction)
        # Flushed, seen or recorded entries were complete; a torn tail above them does not count.
        complete = max(flushed, manifest.wal_entry_position_last_seen)
        complete = complete if until is None else max(complete, until.position)
        for torn, error in order.torn.items():
            if torn <= complete and not is_skipped(self._wal, torn):
                raise error
        newest = generation
        if until is None or until.generation is not None:
            newest = manifest.current_generation - 1
            if until is not None and until.generation is not None:
                newest = min(newest, until.generation)
        newer = self._between(manifest, generation, newest + 1, unnumbered)
        if pending is not None:
            # A reader that goes on after it need not check generations in the WAL again.
            reached = generation if newer else max(generation, newest)
            yield replace(pending, generation=reached)
        for published in newer:
            yield from self._published(manifest, published, position)

    def _between(
        self, manifest: RegionManifest, after: int, before: int, unnumbered: bool
    ) -> list[int]:
        """The generations between two that were published without WAL entries.

        Raises ChangesCollectedError if one is gone and, after entries that are `unnumbered`, if
        there is any: it may have come before them.
        """
        published = [
            generation
            for generation in range(after + 1, before)
            if self._is_published(manifest, generation)
        ]
        if published and unnumbered:
            raise ChangesCollectedError(
                f"region {self._region.name}: generation {published[0]} was published without WAL "
                "entries, among entries of Lance before version 14, which do not say whether they "
                "are older: take table.change_offsets(), then the rows of table.scan(), and go on "
                "from there"
            )
        return published

    def _is_published(self, manifest: RegionManifest, generation: int) -> bool:
        """Whether a generation that no entry names has no entries: true if it was written by a
        Lance that names the generation in every entry."""
        folder = generation_folder(self._region.region_id, self._flushed(manifest, generation).path)
        versions = version_numbers(self._context.store, folder)
        if not versions:
            raise self._missing_generation(generation)
        library, version = read_writer(self._context.store, folder, versions[-1])
        major = version.partition(".")[0]
        return not (library == "lance" and major.isdecimal() and int(major) < _NAMES_GENERATIONS)

    def _generation_at(self, after: ChangeOffset) -> int:
        """The generation reached at a place: that of the last entry up to it."""
        if after.generation is not None:
            return after.generation
        for position in range(after.position, 0, -1):
            try:
                entry = self._wal.read(position)
            except TornEntryError:
                if not is_skipped(self._wal, position):
                    raise
                continue
            if entry is None:
                raise ChangesCollectedError(
                    f"region {self._region.name}: the entries up to WAL position {after.position} "
                    "were collected, so the generation reached there is unknown: give "
                    "[position, generation] as the place"
                )
            if entry.generation is not None:
                return entry.generation
        return 0

    def _extent(self, position: int, until: ChangeOffset | None) -> tuple[RegionManifest, int]:
        """A manifest, and the last position to read: not before its flushed position.

        A missing next entry ends the feed only if a manifest that is read later has not flushed it
        (protocol rule 15), and if it is not known to be lost.
        """
        manifest = self._region.refresh()
        while not self._wal.exists(position + 1):
            if position + 1 <= manifest.replay_after_wal_entry_position:
                raise self._missing(position + 1)
            is_due = until is not None and until.position > position
            passed = is_due or self._region.log_end.is_passed(position + 1)
            newer = self._region.refresh()
            if newer.version == manifest.version:
                if passed:
                    break  # it was written since, or reading it shows that it is lost
                return manifest, position
            manifest = newer
        if until is not None:
            return manifest, until.position
        return manifest, self._region.log_end.last()

    def _is_flushed(self, position: int) -> bool:
        return position <= self._region.refresh().replay_after_wal_entry_position

    def _missing(self, position: int) -> ChangesCollectedError | CorruptFileError:
        if not self._is_flushed(position):
            return self._wal.missing(position)
        return ChangesCollectedError(
            f"region {self._region.name}: the changes at WAL position {position} were collected: "
            "take table.change_offsets(), then the rows of table.scan(), and go on from there"
        )

    def _published(
        self, manifest: RegionManifest, generation: int, position: int
    ) -> Iterator[StoredChanges]:
        before = ChangeOffset(position, generation - 1)
        flushed = self._flushed(manifest, generation)
        uri = generation_uri(lance_uri(self._context.uri), self._region.region_id, flushed.path)
        name, options = f"generation {generation}", self._context.storage_options
        try:
            with lance_errors(name, uri):
                dataset = self._names.project(open_generation(uri, name, flushed.rows, options))
                pending = None
                for batch in batches_of(dataset.scanner(scan_in_order=True)):
                    if pending is not None:
                        # A reader that stops here and goes on later begins the generation again.
                        yield StoredChanges(pending, position, generation - 1, before, log=False)
                    pending = conform(batch, self._memtable_schema)
                if pending is not None:
                    yield StoredChanges(pending, position, generation, before, log=False)
        except SourceGoneError as error:
            raise self._missing_generation(generation) from error

    def _flushed(self, manifest: RegionManifest, generation: int) -> FlushedGeneration:
        flushed = _listed(manifest, generation) or _listed(self._region.refresh(), generation)
        if flushed is None:
            raise self._missing_generation(generation)
        return flushed

    def _missing_generation(self, generation: int) -> ChangesCollectedError:
        return ChangesCollectedError(
            f"region {self._region.name}: generation {generation}, which was published without WAL "
            "entries, was collected: take table.change_offsets(), then the rows of table.scan(), "
            "and go on from there"
        )

    def _changes(self, change: StoredChanges, old: pa.StructArray | None = None) -> pa.RecordBatch:
        """Stored rows as the feed shows them."""
        batch, count = change.batch, change.batch.num_rows
        deleted = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False)
        # In a column that is not nullable, a delete has a placeholder.
        upserted = pa.array(np.arange(count), mask=deleted) if deleted.any() else None
        columns = []
        for name in self._columns:
            column = batch.column(name)
            columns.append(
                column if upserted is None or name in self._key else column.take(upserted)
            )
        kinds = pa.DictionaryArray.from_arrays(deleted.astype(np.int8), [UPSERT, DELETE])
        columns += [
            kinds.dictionary_decode(),
            pa.repeat(pa.scalar(str(self._region.region_id)), count),
            pa.repeat(pa.scalar(change.position, pa.int64()), count),
            pa.repeat(pa.scalar(change.generation, pa.int64()), count),
            pa.repeat(pa.scalar(change.transaction, pa.string()), count),
        ]
        if old is not None:
            columns.append(old)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _read(self, position: int) -> WalEntry | None:
        try:
            return self._wal.read(position)
        except TornEntryError:
            return None


def _listed(manifest: RegionManifest, generation: int) -> FlushedGeneration | None:
    return next((g for g in manifest.flushed_generations if g.generation == generation), None)
