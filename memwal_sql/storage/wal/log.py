"""A region's write-ahead log: numbered entries, each put once and in order.

The log itself is ours to append to and to read; `entry.py` says what an entry holds. What
a taken position means for a writer (fenced, a stray fence, corruption) is the writer's to decide
(protocol rule 5).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import compress, count
from uuid import UUID

import pyarrow as pa

from exec_nodes.base.tasks import map_concurrently
from exec_nodes.evolution.match import FIELD_ID_KEY
from exec_nodes.evolution.project import ByFieldId, project_batch
from memwal_sql.errors import (
    CorruptFileError,
    NotFoundError,
    RepairError,
    TornEntryError,
    UnknownFormatError,
)
from memwal_sql.storage import paths
from memwal_sql.storage.decoding import decoding
from memwal_sql.storage.objects.create_once import settle_put
from memwal_sql.storage.objects.protocol import ObjectMeta, ObjectStore
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.records.transactions import TransactionRecord
from memwal_sql.storage.records.verdicts import Verdicts
from memwal_sql.storage.wal.entry import WalEntry, decode_entry, encode_entry, encode_fence
from memwal_sql.telemetry import WAL_BYTES, WAL_SECONDS, timed

__all__ = [
    "AppendOutcome",
    "Wal",
    "WalEntry",
    "decode_entry",
    "encode_entry",
    "encode_fence",
]


@dataclass(frozen=True, slots=True)
class AppendOutcome:
    """`existing` is None when the entry landed, else what another writer had put there before."""

    existing: WalEntry | None

    @property
    def landed(self) -> bool:
        """Whether the entry is durable at its position."""
        return self.existing is None


# The number of positions above a missing entry that are searched for later entries.
_NEAR = 8
# Begins the names of columns that Lance adds to entries, such as `__wal_row_id` (lance 9150).
_PHYSICAL = "__wal_"


class Wal:
    """The log of one region. Positions start at 1.

    With `columns`, an `entry_schema`, entries are read under the names that the base table's
    columns, and the fields inside them, have now. `verdicts` tells which intents count; without it
    there may be none.
    """

    def __init__(
        self,
        store: ObjectStore,
        region_id: UUID,
        columns: pa.Schema | None = None,
        verdicts: Verdicts | None = None,
    ) -> None:
        self._store = store
        self._region_id = region_id
        self._columns = columns
        self._verdicts = verdicts
        self._by_id: ByFieldId | None = None
        self.attributes = {"table": store.uri}

    @property
    def remote(self) -> bool:
        return self._store.remote

    def path(self, position: int) -> str:
        return paths.wal_path(self._region_id, position)

    def append(self, position: int, data: bytes) -> AppendOutcome:
        """Put an encoded entry, which carries a nonce, at a position.

        Raises `OutcomeUnknownError` when nobody can say whether it landed (the writer is then
        poisoned), `StoreUnavailableError` when it did not.
        """
        with timed(WAL_SECONDS, self.attributes):
            existing = settle_put(self._store, self.path(position), data)
        if existing is None:
            WAL_BYTES(len(data), self.attributes)
            return AppendOutcome(None)
        return AppendOutcome(decode_entry(position, existing, self.path(position)))

    def read(self, position: int) -> WalEntry | None:
        """The entry at a position; None when there is none.

        Raises `TornEntryError` and `CorruptFileError` (protocol rule 9), RepairError as `ByFieldId`
        does, and UnknownFormatError where the rows have columns that no table has had.
        """
        try:
            data = self._store.get(self.path(position))
        except NotFoundError:
            return None
        path = self.path(position)
        entry = decode_entry(position, data, path)
        stored = None if entry.batch is None else entry.batch.schema
        if stored is None or self._columns is None or stored.equals(self._columns, True):
            return entry
        with decoding(path, "a WAL entry of this table"):
            try:
                by_id = self._by_id_from(stored, self._columns)
            except RepairError as error:
                raise type(error)(f"{path}: {error}") from error
            return replace(entry, batch=project_batch(entry.batch, by_id))

    def entries(self, first: int) -> Iterator[WalEntry]:
        """The entries from position `first` up to the first position without one."""
        position = first
        while (entry := self.read(position)) is not None:
            yield entry
            position += 1

    def exists(self, position: int) -> bool:
        """Whether there is an entry at a position: one request."""
        return self._store.exists(self.path(position))

    def near(self, first: int) -> frozenset[int]:
        """Which positions are taken of `first` and the next few, asked for at once."""
        window = range(first, first + _NEAR)
        present = map_concurrently(self.exists, window) if self.remote else map(self.exists, window)
        return frozenset(compress(window, present))

    def is_lost(self, position: int) -> bool:
        """Whether there is no entry at a position but one soon above it: see `missing`. More than a
        few that are missing in a row pass for the end, as only a listing of the whole log tells."""
        # Asked in this order, as both may be written meanwhile.
        return bool(self.near(position + 1)) and not self.exists(position)

    def missing(self, position: int) -> CorruptFileError:
        """The error for a position without an entry below one with an entry: a writer has one
        append under way at a time (protocol rule 5), and what is flushed goes in order."""
        return CorruptFileError(
            f"{self.path(position)} is missing, but later WAL entries are there: a writer that is "
            "still open has its rows: writer.flush(); else restore the file from a copy, "
            "without one its rows are lost; what is flushed still reads with "
            'consistency="manifest"; see table.check()'
        )

    def first_free(self, position: int) -> int:
        """The first free position from this one on; one request if it is this one."""
        while self.exists(position):
            position += 1
            taken = self.near(position) if self.remote else ()
            while position in taken:
                position += 1
        return position

    def verdict(self, entry: WalEntry) -> bool | None:
        """Whether the rows of an entry count; None for an intent that is undecided. Raises as
        `Verdicts` and `noted` do."""
        if entry.intent is None:
            return True
        noted = partial(self.noted, entry.intent, entry.position, entry.writer_epoch)
        return self._decided.verdict(self._region_id, entry.intent, entry.position, noted)

    def noted(self, intent: Intent, position: int, epoch: int) -> bool | None:
        """Whether an intent counts by the first entry behind it that is not a fence; None without
        such an entry, or if it does not say so. Raises RepairError where its writer must have."""
        for above in count(position + 1):
            try:
                entry = self.read(above)
            except TornEntryError:
                return None
            if entry is None:
                return None
            for note in entry.notes:
                if note.position == position:
                    return note.counts
            if entry.batch is not None or entry.intent is not None:
                if intent.attempt and entry.writer_epoch == epoch:
                    raise RepairError(
                        f"{self.path(position)} is of transaction {intent.id}, whose record is "
                        f"missing, and {self.path(above)}, written after it by the same writer, "
                        "does not say whether it was committed: restore both, or the record, from "
                        "a copy"
                    )
                return None
        return None

    def record(self, entry: WalEntry) -> TransactionRecord | None:
        return None if entry.intent is None else self._decided.record(entry.intent)

    def sync_record(self, intent: Intent) -> None:
        """Make the record of an intent's transaction durable, if there is one: on a local disk it
        can be read before whoever puts it has synced it."""
        self._decided.sync_record(intent)

    def learn(self, entries: Iterable[WalEntry]) -> None:
        """Ask for the verdicts over the intents among some entries side by side."""
        intents = {entry.intent for entry in entries if entry.intent is not None}
        if intents:
            self._decided.learn(intents)

    def settle(self, entry: WalEntry, by: str | int) -> None:
        """Decide over an intent, as the region's claimant of an epoch (protocol rule T8), or as who
        is named."""
        if entry.intent is not None:
            if isinstance(by, int):
                by = f"claim of region {self._region_id}, epoch {by}"
            noted = partial(self.noted, entry.intent, entry.position, entry.writer_epoch)
            self._decided.settle(self._region_id, entry.intent, entry.position, by, noted)

    @property
    def _decided(self) -> Verdicts:
        if self._verdicts is None:
            raise UnknownFormatError(
                f"the log of region {self._region_id} has an entry of a transaction, and its table "
                "has no record that says so: restore the table's record"
            )
        return self._verdicts

    def positions(self) -> list[int]:
        """All positions that are taken, ascending: one listing."""
        return sorted(self.modified())

    def modified(self) -> dict[int, float | None]:
        """When the entry at each taken position was written, see `ObjectMeta`: one listing."""
        return {number: meta.modified for number, meta in self._listed()}

    def sizes(self) -> dict[int, int]:
        """The bytes of the entry at each taken position: one listing."""
        return {number: meta.size for number, meta in self._listed()}

    def _listed(self) -> Iterator[tuple[int, ObjectMeta]]:
        for meta in self._store.list(paths.wal_folder(self._region_id)):
            number = paths.numbered(meta.path, paths.WAL_SUFFIX)
            if number is not None:
                yield number, meta

    def _by_id_from(self, stored: pa.Schema, columns: pa.Schema) -> ByFieldId:
        """How entries of a schema are read; most have that of the entry before."""
        by_id = self._by_id
        if by_id is None or not by_id.stored.equals(stored, check_metadata=True):
            _check_columns(stored, columns)
            self._by_id = by_id = ByFieldId(stored, columns)
        return by_id


def _check_columns(stored: pa.Schema, columns: pa.Schema) -> None:
    """Refuse columns that no table has had: what they mean for the rows is not known here.

    A column that was dropped since has its field id.
    """
    strange = [
        field.name
        for field in stored
        if field.name not in columns.names
        and (field.name.startswith(_PHYSICAL) or FIELD_ID_KEY not in (field.metadata or {}))
    ]
    if strange:
        raise UnknownFormatError(
            f"its rows have the columns {strange}, which the table does not have and this version "
            "of memwal_sql does not know: install a newer one, or flush them with the program that "
            "wrote them"
        )
