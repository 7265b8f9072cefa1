"""Publishing staged rows into one region (protocol rule 24).

The publisher is a writer like any other: it claims the region, so a writer that is alive elsewhere
is fenced and says so, and it never claims a second time within one batch: who is fenced in the
middle of one reports it. A claim is kept from batch to batch for as long as nobody else takes the
region, so that a stream leaves one fence and not one a batch.

Few rows become one WAL entry with the batch's mark. Many become generations, in one manifest commit
with the mark; what the WAL holds by then is flushed first, so that generations follow each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa

from memwal_sql.bulk.stage import StagedPiece
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.state.replay import MakeMemTable, ReplayedMemTable
from memwal_sql.storage import paths
from memwal_sql.storage.generation.write import random_hex
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.region.manifest import FlushedGeneration, RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import Wal
from memwal_sql.write.claim import RegionClaim, claim
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
        values: Mapping[str, RegionValue] | None = None,
        claimed: Callable[[int], None] = lambda _: None,
    ) -> None:
        """`check` raises where the table must not be written any more; `merged` is the
        region's merge progress by the base version that the publisher began with; `claimed` is
        given the epoch of each claim."""
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
        self._values = values
        self._note_claim = claimed
        self._region_claim: RegionClaim | None = None
        self._manifest: RegionManifest | None = None
        self._wal: WalWriter | None = None
        self._tail: list[ReplayedMemTable] = []

    def publish(self, batch: RegionBatch, mark: BatchMark | None) -> bool:
        """Make the batch part of the region; False when it is already, and nothing was done.

        Raises FencedError when another writer takes the region meanwhile. After any error nothing
        is known of the batch but that publishing it again is right.
        """
        try:
            region_claim, manifest, wal = self._claimed()
            if mark is not None and self._published(manifest, mark.query_id) >= mark.batch_id:
                return False
            small = batch.rows <= self._limits.rows and batch.nbytes <= self._limits.bytes
            if small and not batch.whole:
                for rows in batch.tables():  # one, being small
                    self._append(region_claim, wal, rows, mark)
            else:
                self._publish_generations(region_claim, batch, mark)
        except BaseException:
            self._region_claim = None  # whatever it was, the next batch starts with a claim
            raise
        return True

    def empty_wal(self) -> int:
        """Claim the region and turn what its WAL holds into generations; the claim's epoch."""
        region_claim, _, _ = self._claimed()
        self._flush_tail(region_claim, self._tail)
        return region_claim.epoch

    def _claimed(self) -> tuple[RegionClaim, RegionManifest, WalWriter]:
        region_claim, manifest, wal = self._region_claim, self._manifest, self._wal
        if region_claim is not None and manifest is not None and wal is not None:
            manifest = self._manifests.newer(manifest) or manifest
            if manifest.writer_epoch == region_claim.epoch:
                self._manifest = manifest
                return region_claim, manifest, wal
        won = claim(
            self._manifests, self._log, self._make, self._check, self._values, merged=self._merged
        )
        self._note_claim(won.claim.epoch)
        wal = WalWriter(
            self._log,
            self.region_id,
            won.claim.epoch,
            won.next_position,
            self._schema,
            _FLUSHED_WITHIN,
        )
        self._region_claim, self._manifest, self._wal = won.claim, won.claim.manifest, wal
        self._tail = list(won.memtables)
        return won.claim, won.claim.manifest, wal

    def _published(self, manifest: RegionManifest, query_id: str) -> int:
        batches = [memtable.published.get(query_id, -1) for memtable in self._tail]
        return max([manifest.published.get(query_id, -1), *batches])

    def _append(
        self, region_claim: RegionClaim, wal: WalWriter, rows: pa.Table, mark: BatchMark | None
    ) -> None:
        in_wal = self._tail[-1].memtable.rows if self._tail else 0
        full = in_wal + rows.num_rows > self._limits.rows
        if len(self._tail) > 1 or full:
            self._flush_tail(region_claim, self._tail if full else self._tail[:-1])
        if not self._tail:
            generation = self._latest().current_generation
            self._tail = [ReplayedMemTable(self._make(generation), 0)]
        active = self._tail[-1]
        (batch,) = rows.combine_chunks().to_batches()
        generation = active.memtable.generation
        active.last_position = wal.append(batch, generation, None if mark is None else str(mark))
        active.memtable.append(batch)
        if mark is not None:
            active.published[mark.query_id] = mark.batch_id

    def _publish_generations(
        self, region_claim: RegionClaim, batch: RegionBatch, mark: BatchMark | None
    ) -> None:
        self._flush_tail(region_claim, self._tail)
        number = self._latest().current_generation
        flushed = []
        for piece in batch.whole:
            flushed.append(self._place(piece, number))
            number += 1
        for rows in batch.tables():
            flushed.append(self._write(self.region_id, number, rows))
            number += 1
        if flushed:
            published = {} if mark is None else {mark.query_id: mark.batch_id}
            self._manifest = commit_flush(
                self._manifests, self._latest(), region_claim, flushed, published=published
            )

    def _flush_tail(self, region_claim: RegionClaim, tail: Sequence[ReplayedMemTable]) -> None:
        for replayed in tuple(tail):
            if not replayed.memtable.rows:  # only intents without rows
                self._tail.remove(replayed)
                continue
            written = self._write(
                self.region_id, replayed.memtable.generation, replayed.memtable.newest_rows()
            )
            self._manifest = commit_flush(
                self._manifests,
                self._latest(),
                region_claim,
                (written,),
                last_position=replayed.last_position,
                published=replayed.published,
                last_transaction=replayed.last_transaction,
            )
            self._tail.remove(replayed)

    def _place(self, piece: StagedPiece, generation: int) -> FlushedGeneration:
        """Give a staged generation its number, which is part of its folder's name."""
        name = paths.generation_name(random_hex(), generation)
        self._store.move(str(piece.folder), paths.generation_folder(self.region_id, name))
        return FlushedGeneration(generation, name, piece.size, piece.rows, piece.bloom_checksum)

    def _latest(self) -> RegionManifest:
        return self._manifest or self._manifests.latest()
