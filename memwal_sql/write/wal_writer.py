"""Appending to the WAL of a claimed region (protocol rule 5)."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import pyarrow as pa

from memwal_sql.errors import (
    CorruptFileError,
    OutcomeUnknownError,
    StoreUnavailableError,
    TornEntryError,
    WriterFailedError,
)
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.storage.deadlines import unbounded
from memwal_sql.storage.records.intent import MOST_NOTES, Intent, Note
from memwal_sql.storage.wal.log import Wal, encode_entry, encode_fence
from memwal_sql.telemetry import WRITTEN_ROWS, Attributes
from memwal_sql.write.claim import fenced


class WalWriter:
    """Appends one entry at a time, in order; the caller ensures that.

    After an error the object must not be used again: the next position may be taken.
    """

    def __init__(
        self,
        wal: Wal,
        region_id: UUID,
        epoch: int,
        next_position: int,
        schema: pa.Schema,
        flushed_within: int | None = None,
        keeps_region: bool = False,
        notes: Iterable[Note] = (),
    ) -> None:
        """`flushed_within` and `keeps_region` are those of `WalEntry`. `notes` go into the first
        entry."""
        self._wal = wal
        self._region_id = region_id
        self._epoch = epoch
        self._next = next_position
        self._schema = schema
        self._flushed_within = flushed_within
        self._keeps_region = keeps_region
        self._notes = tuple(notes)

    @property
    def notes(self) -> tuple[Note, ...]:
        """What the next entry will say of intents before it."""
        return self._notes

    def note(self, position: int, intent: Intent, counts: bool) -> None:
        """Let the next entry say whether an intent counts."""
        self._notes = (*self._notes, Note(position, intent.name, counts))[-MOST_NOTES:]

    @property
    def attributes(self) -> Attributes:
        """The attributes of its metrics."""
        return self._wal.attributes

    @property
    def schema(self) -> pa.Schema:
        """The schema of the entries: the columns, with their field ids."""
        return self._schema

    @property
    def last_position(self) -> int:
        """The highest position known to be taken."""
        return self._next - 1

    def next_epoch(self) -> int:
        """The epoch that has written at the next position; 0 if it is free, or torn."""
        try:
            entry = self._wal.read(self._next)
        except TornEntryError:
            return 0
        return 0 if entry is None else entry.writer_epoch

    def append(
        self,
        batch: pa.RecordBatch,
        generation: int,
        staged: BatchMark | None = None,
        intent: Intent | None = None,
    ) -> int:
        """Make the rows of `batch` durable and return the position of their entry.

        `staged` is the batch that the rows were staged as; `intent` is that of a transaction, which
        may have no rows in the region.

        Raises FencedError (nothing was written), WriterFailedError (the message says whether the
        rows may have been written) and CorruptFileError.
        """
        notes = self._notes
        stored = pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
        if intent is not None and not stored.num_rows:
            data = encode_fence(writer_epoch=self._epoch, intent=intent, notes=notes)
        else:
            data = encode_entry(
                stored,
                writer_epoch=self._epoch,
                generation=generation,
                batch_id=None if staged is None else str(staged),
                flushed_within=self._flushed_within,
                keeps_region=self._keeps_region,
                intent=intent,
                notes=notes,
            )
        while True:
            position = self._next
            try:
                # Others may wait for the entry, and must learn whether it landed.
                with unbounded():
                    other = self._wal.append(position, data).existing
            except OutcomeUnknownError as error:
                if intent is not None:
                    raise WriterFailedError(
                        f"region {self._region_id}: transaction {intent.id} was given up, as it is "
                        f"unknown whether its entry was written at WAL position {position}; "
                        f"nothing of it counts: open a new writer and run it again: {error}"
                    ) from error
                raise WriterFailedError(
                    f"region {self._region_id}: it is unknown whether {batch.num_rows} rows were "
                    f"written at WAL position {position}; open a new writer, which settles it, "
                    f"and read the rows back or write them again: {error}"
                ) from error
            except (StoreUnavailableError, TornEntryError) as error:
                raise WriterFailedError(
                    f"region {self._region_id}: {batch.num_rows} rows were not written at WAL "
                    f"position {position}; open a new writer once the store works: {error}"
                ) from error
            self._next = position + 1
            if other is None:
                self._notes = self._notes[len(notes) :]
                WRITTEN_ROWS(batch.num_rows, self._wal.attributes)
                return position
            if other.writer_epoch > self._epoch:
                raise fenced(self._region_id, self._epoch, other.writer_epoch)
            if not other.is_fence or other.writer_epoch == self._epoch:
                raise CorruptFileError(
                    f"{self._wal.path(position)} was written by epoch {other.writer_epoch} above "
                    f"the fence of epoch {self._epoch}"
                )
            # The fence of a claim that lost to this one: it came late and means nothing.
