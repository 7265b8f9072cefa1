"""Every error of the public surface, in one tree. Its kinds say what the caller does next
(`exec_nodes.base.errors`).

    MemWalError
        RetryError                     call again
            BackPressureError
            ConflictError
                ManifestConflictError
            ContentionError
            MaintenanceLostError
            NotFoundError
            OutcomeUnknownError
            SourceGoneError
            StoreUnavailableError
                DeadlineExceededError
        ReopenError                    open a new handle
            ChangesCollectedError
            FencedError
            PartlyWrittenError
            TransactionUnknownError
            WriterFailedError
        InvalidCallError               fix the call
            KeysExistError
            RegionSealedError
            UnsupportedError
        RepairError                    look with `table.check()`
            CorruptFileError
                TornEntryError
            TableReplacedError
            UnknownFormatError
"""

from __future__ import annotations

from collections.abc import Hashable
from uuid import UUID

from exec_nodes.base.errors import (
    CorruptFileError,
    InvalidCallError,
    MemWalError,
    ReopenError,
    RepairError,
    RetryError,
    SourceGoneError,
    StoreUnavailableError,
    UnsupportedError,
)

__all__ = [
    "BackPressureError",
    "ChangesCollectedError",
    "ConflictError",
    "ContentionError",
    "CorruptFileError",
    "DeadlineExceededError",
    "FencedError",
    "InvalidCallError",
    "KeysExistError",
    "MaintenanceLostError",
    "MemWalError",
    "NotAtomicWarning",
    "NotFoundError",
    "OutcomeUnknownError",
    "PartlyWrittenError",
    "RegionSealedError",
    "ReopenError",
    "RepairError",
    "RetryError",
    "SourceGoneError",
    "StoreUnavailableError",
    "TableReplacedError",
    "TornEntryError",
    "TransactionUnknownError",
    "UnknownFormatError",
    "UnrecordedVersionWarning",
    "UnsupportedError",
    "WriterFailedError",
]


class NotFoundError(RetryError):
    """An object is not there: it was never written, or it was collected meanwhile."""


class OutcomeUnknownError(RetryError):
    """A store did not say whether an object was written; reading it back settles that."""


class DeadlineExceededError(StoreUnavailableError):
    """The caller's deadline passed before the next request to a store. Rows that were written by
    then stay; the message names them where they are known."""


class ConflictError(RetryError):
    """Others came first; this call wrote nothing.

    Attributes:
        keys: the keys that the others wrote, if the call was to write rows.
        table: the URI of the table that they wrote, of a transaction.
        region: the region that they wrote.
        expected: the place up to which the region was to have been written.
        found: the WAL position of what they wrote.
    """

    def __init__(
        self,
        text: str = "",
        keys: frozenset[Hashable] = frozenset(),
        *,
        table: str | None = None,
        region: UUID | None = None,
        expected: object = None,
        found: int | None = None,
    ) -> None:
        super().__init__(text)
        self.keys = keys
        self.table = table
        self.region = region
        self.expected = expected
        self.found = found


class ContentionError(RetryError):
    """Other committers came first at every attempt; a new call makes all attempts again."""


class KeysExistError(InvalidCallError):
    """Rows to insert have existing keys; the call wrote nothing.

    Attributes:
        keys: these.
    """

    def __init__(self, text: str = "", keys: frozenset[Hashable] = frozenset()) -> None:
        super().__init__(text)
        self.keys = keys


class BackPressureError(RetryError):
    """The writer holds as many unflushed bytes as it may; the call wrote nothing."""


class MaintenanceLostError(RetryError):
    """A maintenance job was so slow that another one took its place; nothing is lost."""


class RegionSealedError(InvalidCallError):
    """The region is about to be dropped and takes no writers."""


class FencedError(ReopenError):
    """Another writer claimed the region; this writer acknowledges nothing any more."""


class ChangesCollectedError(ReopenError):
    """The changes after the requested place of a change feed were collected; begin again with a
    full copy, as the message says."""


class WriterFailedError(ReopenError):
    """The writer stopped after a failed WAL append; what the message calls unknown may or may
    not have been written, and the next claim of the region settles it."""


class PartlyWrittenError(ReopenError):
    """A call that depends on existing rows has written some regions, and then lost another one.
    Repeating it would change the written rows twice: read them back first.

    Attributes:
        regions: the ids of the regions that have its rows, or the first of them.
    """

    def __init__(self, text: str = "", regions: tuple[UUID, ...] = ()) -> None:
        super().__init__(text)
        self.regions = regions


class TransactionUnknownError(ReopenError):
    """The store did not say whether the record of a transaction was written; the next claim of a
    region that it writes settles that, and so does `memwal_sql.outcome()`.

    Attributes:
        id: the transaction's id.
        tables: the URIs of its tables, the one with its record among them.
    """

    def __init__(
        self,
        text: str = "",
        id: str = "",  # noqa: A002
        tables: tuple[str, ...] = (),
    ) -> None:
        super().__init__(text)
        self.id = id
        self.tables = tables


class NotAtomicWarning(UserWarning):
    """A statement was too large for one transaction, so that readers may have seen a part of it."""


class UnrecordedVersionWarning(UserWarning):
    """A version was opened in which the states of the regions were not recorded."""


class UnknownFormatError(RepairError):
    """A file has a format that this version does not know; a newer version may."""


class TornEntryError(CorruptFileError):
    """A WAL entry ends before its end-of-stream marker (protocol rule 9)."""


class TableReplacedError(RepairError):
    """The base table was overwritten or restored below what was merged: its regions belong to
    other rows (protocol rule 22)."""
