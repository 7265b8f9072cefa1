"""Writes rows of several regions, of one table or more, so that all of them count or none
(protocol rules T1 to T7 and T13).

The rows have their places in the order of writing of every region before anything is put. Then an
*intent* is put into each log, an ordinary entry that names the transaction, and when all have
landed the *record*, which commits the transaction. Only then do rows enter MemTables. Nobody
appends to a region behind an intent before that, so whoever reads or claims the region finds the
verdict by the record alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from uuid import UUID, uuid4

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.base.columns import TOMBSTONE
from exec_nodes.base.threads import outcomes
from memwal_sql.errors import (
    FencedError,
    MemWalError,
    OutcomeUnknownError,
    TransactionUnknownError,
    UnsupportedError,
    WriterFailedError,
)
from memwal_sql.state.batch_marks import BatchMark
from memwal_sql.state.context import TableContext
from memwal_sql.storage.deadlines import unbounded
from memwal_sql.storage.objects.concurrent import seconds
from memwal_sql.storage.records.intent import Intent, relative_place
from memwal_sql.storage.records.transactions import (
    LONGEST_SECONDS,
    MOST_PARTS,
    Part,
    TransactionRecord,
    Transactions,
    new_transaction_id,
    utc_now,
)
from memwal_sql.write.generations import PendingWrite
from memwal_sql.write.options import PARALLEL_REGIONS
from memwal_sql.write.region_writer import RegionWriter


@dataclass(frozen=True, slots=True)
class Participant:
    """A region of a transaction: its writer, which has claimed it, and its rows, which may be none
    where the transaction only read it."""

    context: TableContext
    writer: RegionWriter
    rows: pa.RecordBatch

    @property
    def order(self) -> tuple[str, str, str]:
        """Its place among the participants."""
        return (*self.context.identity, str(self.writer.region_id))


def home_of(tables: Iterable[TableContext]) -> TableContext:
    """The table, of those that a transaction writes or must find unchanged, that has its record,
    so a drop of that table finds an intent of the transaction in it."""
    return min(tables, key=lambda table: table.identity)


@dataclass(frozen=True, slots=True)
class Description:
    """What a transaction's record says besides its verdict; see `TransactionRecord`. A statement is
    refused if it can't be one transaction and `must_be_atomic`, or has an actor. `staged` is the
    batch that its rows were staged as."""

    id: str | None = None
    actor: str | None = None
    operation: str | None = None
    must_be_atomic: bool = False
    staged: BatchMark | None = None


def takes_none(context: TableContext) -> UnsupportedError:
    """The error for a table that programs read and write which know no transactions."""
    return UnsupportedError(
        f"{context.uri} takes no transactions, as Lance or LanceDB has made it: copy its rows into "
        "a new table, which takes them"
    )


class AtomicWrite:
    """One transaction, from the places of its rows to its verdict. Used by one thread.

    If an interrupt keeps it from being landed, its places are free again once the object is
    dropped. An interrupt of `land` stops the writers: those that are opened next settle it.

    Attributes:
        is_record_own: whether the record that `land` returned committed this attempt.
    """

    def __init__(
        self,
        participants: Sequence[Participant],
        description: Description,
        clock: Callable[[], float] = seconds,
    ) -> None:
        """Give all rows their places; the caller holds the `enqueue_lock` of every writer, and has
        checked what must be so. Raises UnsupportedError for more than `MOST_PARTS` participants,
        and for tables whose places do not lie near each other; nothing is enqueued then."""
        self._began: float | None = None
        self.is_record_own = False
        self._writes: list[tuple[Participant, PendingWrite]] = []
        self.id = description.id or new_transaction_id(utc_now())
        self._description = description
        self._clock = clock
        self._participants = sorted(participants, key=lambda participant: participant.order)
        self._home = home_of(participant.context for participant in participants)
        self._places = self._places_of()
        self._attempt = uuid4().hex[:16]
        self._record: TransactionRecord | None = None
        try:
            for participant in self._participants:
                write = PendingWrite(
                    participant.rows,
                    participant.rows.nbytes,
                    staged=description.staged,
                    is_intent=True,
                )
                self._writes.append((participant, write))  # first, so that it is always given up
                participant.writer.enqueue_intent(write)
        except BaseException:
            self._end()
            raise

    def __del__(self) -> None:
        if not getattr(self, "_writes", None):  # an interrupt may come before there are any
            return
        if self._began is None:
            self._end()
        else:
            self._stop_all("interrupted twice")

    @property
    def regions(self) -> list[UUID]:
        """The regions that it writes."""
        return [p.writer.region_id for p in self._participants if p.rows.num_rows]

    def land(self) -> TransactionRecord:
        """Commit the transaction; its record, or that of another attempt with its id that came
        first: then nothing of this one was written.

        Raises what stopped a writer, and FencedError where a claimant was first: nothing was
        written. Raises TransactionUnknownError if nobody can say whether the record was written.
        """
        if self._record is None:
            self._began = self._clock()
            try:
                self._record = self._landed(self._began)
            except BaseException as error:
                self._stop_all(error)
                raise
        if not self._record.committed:
            raise FencedError(
                f"transaction {self.id} was aborted by {self._record.by}: nothing of it was "
                "written, run it again"
            )
        return self._record

    @property
    def _tables(self) -> tuple[str, ...]:
        uris = (participant.context.uri for participant in self._participants)
        return tuple(dict.fromkeys(uris))

    @property
    def _records(self) -> Transactions:
        return Transactions(self._home.store)

    def _places_of(self) -> list[tuple[str, str]]:
        """The place of each participant's table from home, and of home from there."""
        if len(self._participants) > MOST_PARTS:
            raise UnsupportedError(
                f"a transaction over {len(self._participants)} regions: {MOST_PARTS} are the most"
            )
        places = []
        for participant in self._participants:
            uri, home = participant.context.uri, self._home.uri
            there, back = relative_place(home, uri), relative_place(uri, home)
            if there is None or back is None:
                raise UnsupportedError(
                    f"{home} and {uri} can't be written in one transaction: their folders must be "
                    "in the same store, at most two levels apart"
                )
            places.append((there, back))
        return places

    def _landed(self, began: float) -> TransactionRecord:
        """The record that is there, once all writers show the rows or have given them up. An error
        before that leaves open what the verdict is."""
        try:
            parts = self._put_intents()
            if self._is_late(began):
                raise WriterFailedError(f"transaction {self.id} took too long and was given up")
            record = self._put_record(parts)
            if self._is_late(began):
                self._check_unclaimed()
        except TransactionUnknownError:
            raise
        except MemWalError:
            self._abort()
            raise
        self.is_record_own = record.committed and self._is_of_these(record, parts)
        self._end(record.parts if self.is_record_own else ())
        return record

    def _put_intents(self) -> list[Part]:
        """Wait until each intent is the next entry of its log, and put them all."""
        for participant, write in self._writes:
            participant.writer.begin_intent(write)

        def put(place: int) -> Part:
            participant, write = self._writes[place]
            there, back = self._places[place]
            intent = Intent(self.id, back, self._home.incarnation, self._attempt)
            writer = participant.writer
            with unbounded():
                position = writer.put_intent(write, intent)
            deleted = pc.sum(participant.rows.column(TOMBSTONE)).as_py() or 0
            return Part(
                there,
                participant.context.incarnation,
                writer.region_id,
                position,
                writer.epoch,
                participant.rows.num_rows - deleted,
                deleted,
            )

        results = outcomes(put, range(len(self._writes)), PARALLEL_REGIONS, all_end=True)
        errors = []
        for (participant, _), result in zip(self._writes, results, strict=True):
            if isinstance(result.error, MemWalError):
                participant.writer.stop(result.error)
            if result.error is not None:
                errors.append(result.error)
        if errors:
            raise next((e for e in errors if not isinstance(e, MemWalError)), errors[0])
        return [result.get() for result in results]

    def _put_record(self, parts: Sequence[Part]) -> TransactionRecord:
        try:
            with unbounded():
                return self._records.commit(
                    self.id, parts, self._description.actor, self._description.operation
                )
        except OutcomeUnknownError as error:
            raise TransactionUnknownError(
                f"it is unknown whether transaction {self.id} was committed: memwal_sql.outcome() "
                f"tells of {list(self._tables)}, and so does running it again with the same "
                f"id: {error}",
                self.id,
                self._tables,
            ) from error

    def _is_late(self, began: float) -> bool:
        return self._clock() - began > LONGEST_SECONDS

    def _check_unclaimed(self) -> None:
        """Raise TransactionUnknownError where others have claimed a region since its intent landed:
        they may have refused the transaction, and that record may be gone."""
        claimed = [p.writer.region_id for p, _ in self._writes if p.writer.next_epoch()]
        if claimed:
            raise TransactionUnknownError(
                f"putting the record of transaction {self.id} took more than an hour, and others "
                f"have claimed region {claimed[0]} since its rows were written: they may have been "
                "refused there: read them back",
                self.id,
                self._tables,
            )

    def _is_of_these(self, record: TransactionRecord, parts: Sequence[Part]) -> bool:
        return all(record.counts(part.place, part.position) for part in parts)

    def _abort(self) -> None:
        """Give up, and then say so, which saves readers from asking again."""
        has_landed = any(write.position for _, write in self._writes)
        self._end()
        if has_landed:
            with suppress(MemWalError):
                self._records.abort(self.id, "its writer")

    def _stop_all(self, reason: object) -> None:
        """Stop the writers, unless the rows have been shown or given up."""
        error = WriterFailedError(
            f"it is unknown whether transaction {self.id} was committed: memwal_sql.outcome() "
            f"tells; open a new writer, which settles it: {reason!r}"
        )
        for participant, _ in self._writes:
            participant.writer.stop(error)
        self._end(decided=False)

    def _end(self, parts: tuple[Part, ...] = (), *, decided: bool = True) -> None:
        """Show the rows that are committed with these parts; without any, give them up."""
        for participant, write in self._writes:
            participant.writer.end_intent(write, parts, decided=decided)
        self._writes.clear()
