"""Publishing staged rows into one region (protocol rule 24).

The publisher is a writer like any other: it claims the region, so a writer that is alive elsewhere
is fenced and says so, and it never claims a second time within one batch: who is fenced in the
middle of one reports it. A claim is kept from batch to batch for as long as nobody else takes the
region, so that a stream leaves one fence and not one a batch.

Few rows become one WAL entry with the batch's mark, which is an intent if all regions of the batch
have few rows. Many become generations, in one manifest commit with the mark; what the WAL holds by
then is flushed first, so that generations follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pyarrow as pa

from memwal_sql.bulk.stage import StagedPiece
from memwal_sql.errors import MemWalError, WriterFailedError
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.state.replay import MakeMemTable, ReplayedMemTable
from memwal_sql.state.tail import Mark
from memwal_sql.storage import paths
from memwal_sql.storage.generation.write import random_hex
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.records.transactions import Part
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import Wal
from memwal_sql.write.claim import RegionClaim, claim
from memwal_sql.write.commit_queue import PendingWrite
from memwal_sql.write.flusher import commit_flush
from memwal_sql.write.wal_writer import WalWriter
from planner.regions.values import RegionValue

_MIB = 1 << 20
# Who takes the region over after that stops nobody: the next batch claims it again.
_FLUSHED_WITHIN = 60
WriteGeneration = Callable[[UUID, int, pa.Table], FlushedGeneration]


@dataclass(frozen=True, slots=True)
class PublishLimits:
    """The limits of batches that go through the WAL.

    Attributes:
        rows: the most rows of a region in its WAL, with those of the batch; native code
            opens no larger unflushed MemTable than the default.
        bytes: so large may the region's part of a batch be.
    """

    rows: int = 100_000
    bytes: int = 8 * _MIB


@dataclass(frozen=True, slots=True)
class RegionBatch:
    """A region's part of a batch, every key once.

    Attributes:
        whole: pieces staged as generations, which can stay as they are. rows: the number of the
            other rows. nbytes: their most bytes in memory.
        tables: reads them, in a MemTable's schema, in tables of a bounded size.
    """

    whole: tuple[StagedPiece, ...]
    rows: int
    nbytes: int
    tables: Callable[[], Iterator[pa.Table]]

    def goes_through_wal(self, limits: PublishLimits) -> bool:
        """Whether its rows become one WAL entry."""
        return self.rows <= limits.rows and self.nbytes <= limits.bytes and not self.whole


@dataclass(frozen=True, slots=True)
class _Own:
    """A claim, the newest manifest since, and what appends under it."""

    claim: RegionClaim
    manifest: RegionManifest
    wal: WalWriter


class RegionPublisher:
    """Publishes into one region. Used by one thread at a time."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        log: Wal,
        manifests: RegionManifests,
        make_memtable: MakeMemTable,
        entry_schema: pa.Schema,
        write: WriteGeneration,
        limits: PublishLimits,
        check: Callable[[], None],
        merged: int,
        check_columns: Callable[[], None],
        seen_epoch: int,
        values: Mapping[str, RegionValue] | None = None,
        claimed: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`check` raises where the table must not be written any more, `check_columns` where it has
        other columns by now; `seen_epoch` is the region's epoch before that could be so; `merged`
        is the region's merge progress by the base version that the publisher began with; `claimed`
        is given the epoch of each claim."""
        self.region_id = manifests.region_id
        self._store = store
        self._log = log
        self._manifests = manifests
        self._make = make_memtable
        self._schema = entry_schema
        self._write = write
        self._limits = limits
        self._check = check
        self._merged = merged
        self._check_columns = check_columns
        self._seen_epoch = seen_epoch
        self._values = values
        self._note_claim = claimed
        self._own: _Own | None = None
        self._mark: BatchMark | None = None
        self._tail: list[ReplayedMemTable] = []

    @property
    def epoch(self) -> int:
        return self._claimed.claim.epoch

    def publish(self, batch: RegionBatch, mark: BatchMark | None) -> bool:
        """Make the batch part of the region; False when it is already, and nothing was done.

        Raises FencedError when another writer takes the region meanwhile. After any error nothing
        is known of the batch but that publishing it again is right.
        """
        try:
            if not self.begin(mark):
                return False
            if batch.goes_through_wal(self._limits):
                for rows in batch.tables():  # one, being small
                    batch_rows = self.room_for(rows)
                    write = PendingWrite(batch_rows, batch_rows.nbytes)
                    write.position = self._append(write, None)
                    self._take_in(write)
            else:
                self._publish_generations(batch)
        except BaseException:
            self.forget_claim()
            raise
        return True

    def begin(self, mark: BatchMark | None) -> bool:
        """Claim the region for a batch; False when it has the batch already."""
        own = self._claimed_now()
        self._mark = mark
        return mark is None or self._published(own.manifest, mark.query_id) < mark.batch_id

    def room_for(self, rows: pa.Table) -> pa.RecordBatch:
        """The rows as one batch, once the newest MemTable has room for them."""
        in_wal = self._tail[-1].memtable.rows if self._tail else 0
        full = in_wal + rows.num_rows > self._limits.rows
        if len(self._tail) > 1 or full:
            self._flush_tail(self._tail if full else self._tail[:-1])
        if not self._tail:
            generation = self._claimed.manifest.current_generation
            self._tail = [ReplayedMemTable(self._make(generation), 0)]
        (batch,) = rows.combine_chunks().to_batches()
        return batch

    def forget_claim(self) -> None:
        """Begin the next batch with a claim: something failed."""
        self._own = None

    # For the coordinator: see `IntentWriter`.

    def enqueue_intent(self, write: PendingWrite) -> None:
        """Nothing waits here: nobody else writes."""

    def begin_intent(self, write: PendingWrite) -> None:
        """Nothing: the intent is the next entry."""

    def put_intent(self, write: PendingWrite, intent: Intent) -> int:
        """Write the entry; its position."""
        write.intent = intent
        write.position = self._append(write, intent)
        return write.position

    def end_intent(
        self, write: PendingWrite, parts: tuple[Part, ...] = (), *, decided: bool = True
    ) -> None:
        """Take in the rows of a committed transaction; else the claim is forgotten."""
        if parts and write.intent is not None:
            self._take_in(write, parts)
            self._claimed.wal.note(write.position, write.intent, True)
        else:
            self.forget_claim()

    def next_epoch(self) -> int:
        """The epoch that has written behind the intent; 0 without any."""
        return self._claimed.wal.next_epoch()

    def stop(self, error: MemWalError) -> None:
        """Write nothing any more before another claim."""
        self.forget_claim()

    def empty_wal(self) -> int:
        """Claim the region and turn what its WAL holds into generations; the claim's epoch."""
        own = self._claimed_now()
        self._flush_tail(self._tail)
        return own.claim.epoch

    def take(self) -> None:
        """Claim the region."""
        self._claimed_now()

    @property
    def _claimed(self) -> _Own:
        if self._own is None:
            raise WriterFailedError(f"region {self.region_id}: the claim was given up")
        return self._own

    def _claimed_now(self) -> _Own:
        """The claim that the last batch left, if nobody has claimed the region since; or another
        one."""
        if self._own is not None:
            manifest = self._manifests.newer(self._own.manifest) or self._own.manifest
            if manifest.writer_epoch == self._own.claim.epoch:
                self._own = replace(self._own, manifest=manifest)
                return self._own
        won = claim(
            self._manifests,
            self._log,
            self._make,
            self._check,
            self._values,
            merged=self._merged,
            check_columns=self._check_columns,
            seen_epoch=self._seen_epoch,
        )
        self._seen_epoch = -1
        self._note_claim(won.claim.epoch)
        wal = WalWriter(
            self._log,
            self.region_id,
            won.claim.epoch,
            won.next_position,
            self._schema,
            _FLUSHED_WITHIN,
            keeps_region=True,
            notes=won.notes,
        )
        self._own = _Own(won.claim, won.claim.manifest, wal)
        self._tail = list(won.memtables)
        return self._own

    def _published(self, manifest: RegionManifest, query_id: str) -> int:
        batches = [memtable.published.get(query_id, -1) for memtable in self._tail]
        return max([manifest.published.get(query_id, -1), *batches])

    def _append(self, write: PendingWrite, intent: Intent | None) -> int:
        generation = self._tail[-1].memtable.generation
        batch_id = None if self._mark is None else str(self._mark)
        return self._claimed.wal.append(write.batch, generation, batch_id, intent)

    def _take_in(self, write: PendingWrite, parts: tuple[Part, ...] = ()) -> None:
        active = self._tail[-1]
        memtable, active.last_position = active.memtable, write.position
        if write.intent is not None:
            name = write.intent.name
            mark = Mark(write.position, memtable.generation, memtable.rows, parts, name)
            active.marks.append(mark)
        memtable.append(write.batch)
        if self._mark is not None:
            active.published[self._mark.query_id] = self._mark.batch_id

    def _publish_generations(self, batch: RegionBatch) -> None:
        self._flush_tail(self._tail)
        number, mark = self._claimed.manifest.current_generation, self._mark
        flushed = []
        for piece in batch.whole:
            flushed.append(self._place(piece, number))
            number += 1
        for rows in batch.tables():
            flushed.append(self._write(self.region_id, number, rows))
            number += 1
        if flushed:
            published = {} if mark is None else {mark.query_id: mark.batch_id}
            self._commit(flushed, published=published)

    def _flush_tail(self, tail: Sequence[ReplayedMemTable]) -> None:
        for replayed in tuple(tail):
            if not replayed.memtable.rows:  # only intents without rows
                self._tail.remove(replayed)
                continue
            written = self._write(
                self.region_id, replayed.memtable.generation, replayed.memtable.newest_rows()
            )
            self._commit(
                (written,),
                last_position=replayed.last_position,
                published=replayed.published,
                last_transaction=replayed.last_transaction,
                transactions=replayed.transactions,
            )
            self._tail.remove(replayed)

    def _commit(self, flushed: Sequence[FlushedGeneration], **also: Any) -> None:
        own = self._claimed
        manifest = commit_flush(self._manifests, own.manifest, own.claim, flushed, **also)
        self._own = replace(own, manifest=manifest)

    def _place(self, piece: StagedPiece, generation: int) -> FlushedGeneration:
        """Give a staged generation its number, which is part of its folder's name."""
        name = paths.generation_name(random_hex(), generation)
        self._store.move(str(piece.folder), paths.generation_folder(self.region_id, name))
        return FlushedGeneration(generation, name, piece.size, piece.rows, piece.bloom_checksum)
