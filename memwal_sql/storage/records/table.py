"""Our own state of a table: the folder `_memwal_sql` (protocol rule 1).

Every record is a numbered, put-if-absent JSON object. The first, `table`, says which format the
folder has and which *incarnation* of the table its regions belong to. The same id is in the base
table's schema metadata, which an overwrite of the base drops; comparing the two finds a base that
was replaced (rule 22).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from memwal_sql.errors import (
    ConflictError,
    InvalidCallError,
    NotFoundError,
    OutcomeUnknownError,
    ReopenError,
    StoreUnavailableError,
    TableReplacedError,
)
from memwal_sql.storage.decoding import decoding, json_object, number_of
from memwal_sql.storage.format_versions import (
    Needs,
    check_needs,
    check_record_version,
    needs_of,
    stamp,
    stamp_of_table,
)
from memwal_sql.storage.objects.create_once import settle_put
from memwal_sql.storage.objects.options import COMMIT_LOG
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.objects.two_phase import TwoPhaseStore
from memwal_sql.storage.paths import MEM_WAL_FOLDER, RECORD_FOLDER

INCARNATION_KEY = b"memwal_sql:incarnation"
UPGRADE_KEY = "upgrade"
"""Of a table record: the older index's message in base64, while an upgrade is under way."""
DROPPING_KEY = "dropping"
"""True in a table record once somebody has begun to delete the table."""

_TWO_PHASE_KEY = "two_phase"
_DIGITS = 20
_SUFFIX = ".json"
_NAME = re.compile(rf"[0-9]{{{_DIGITS}}}\.json")


@dataclass(frozen=True, slots=True)
class Record:
    """One version of a named record."""

    version: int
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TableRecord:
    """Which table the regions of this folder belong to, and what it needs; `number` is that of the
    record that says so. `is_dropping`: nobody may write it any more."""

    incarnation: UUID
    number: int = 0
    needs: Needs = field(default_factory=Needs)
    is_dropping: bool = False


class Records:
    """The versions of one named record, such as `table` or `maintenance`."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self.name = name
        self._store = store
        self._folder = f"{RECORD_FOLDER}/{name}"

    def path(self, version: int) -> str:
        """Where a version is, relative to the table's root."""
        return f"{self._folder}/{version:0{_DIGITS}}{_SUFFIX}"

    def latest(self) -> Record | None:
        """The newest version; None when there is none.

        Raises `UnknownFormatError` for one that a newer version of this package wrote, and
        `CorruptFileError`.
        """
        versions = self.versions()
        return self.read(versions[-1]) if versions else None

    def versions(self) -> list[int]:
        names = (meta.path.rpartition("/")[2] for meta in self._store.list(self._folder))
        numbers = (number_of(name.removesuffix(_SUFFIX)) for name in names if _NAME.fullmatch(name))
        return sorted(number for number in numbers if number is not None)

    def exists(self, version: int) -> bool:
        """Whether a version is there: one request."""
        return self._store.exists(self.path(version))

    def read(self, version: int) -> Record:
        return self._decode(version, self._store.get(self.path(version)))

    def put(self, version: int, content: Mapping[str, Any]) -> Record | None:
        """Create a version. None when it was created, else what somebody else had created.

        A version among those that were deleted is never won (protocol rule 8): the one before it
        must be there, or none that is newer. Raises `OutcomeUnknownError` when what happened could
        not be found out.
        """
        existing = self.create(version, content)
        try:
            if existing is not None or (version > 1 and self.exists(version - 1)):
                return existing
            versions = self.versions()
        except StoreUnavailableError as error:
            raise OutcomeUnknownError(
                f"{self.path(version)} was written, but could not be checked; try again: {error}"
            ) from error
        if versions and versions[-1] > version:
            self._store.delete([self.path(version)])
            return self.read(versions[-1])
        return None

    def create(self, version: int, content: Mapping[str, Any]) -> Record | None:
        """The same at the price of one request, without a check of the record below."""
        data = json.dumps({**content, **stamp(), "nonce": uuid4().hex}, indent=1).encode()
        stored = settle_put(self._store, self.path(version), data)
        return None if stored is None else self._decode(version, stored)

    def delete(self, versions: Iterable[int]) -> None:
        """Remove versions that nobody needs any more, the oldest first."""
        self._store.delete([self.path(version) for version in sorted(versions)])

    def _decode(self, version: int, data: bytes) -> Record:
        path = self.path(version)
        with decoding(path, "a record"):
            content = json_object(data)
            check_record_version(path, content)
        return Record(version, content)


def read_record(store: ObjectStore) -> TableRecord | None:
    """The record of the table; None where only native code has been.

    Raises `InvalidCallError` for a table whose upgrade was not finished: it lacks rows, and
    `UnknownFormatError` for one that this package is too old to read.
    """
    return _newest(store, None)


def check_current(store: ObjectStore, record: TableRecord | None, *, writes: bool) -> None:
    """Raise `UnknownFormatError` if the table has come to need a newer package than this one since
    its record was `record`, and `ReopenError` to who writes if it is another table, and
    `TableReplacedError` if it is about to be deleted.

    One request while the record is the same. Tables of native code may get one at any time.
    """
    latest = _newest(store, record)
    if latest is None:
        return
    check_needs(store.uri, latest.needs, writes=writes)
    if writes and record is not None and latest.incarnation != record.incarnation:
        raise made_again(store.uri)
    if writes and latest.is_dropping:
        raise TableReplacedError(
            f"{store.uri} is being dropped: its rows are gone soon; if memwal_sql.drop_table has "
            "failed there, call it again"
        )


def _newest(store: ObjectStore, after: TableRecord | None) -> TableRecord | None:
    """The newest record from `after` on, which was read before."""
    records, record = Records(store, "table"), None
    number = 1 if after is None else after.number + 1
    # No record is ever deleted: asking for the next numbers costs less than a listing.
    with contextlib.suppress(NotFoundError):
        while True:
            record = records.read(number)
            number += 1
    return after if record is None else _table_record(store, record)


def _table_record(store: ObjectStore, record: Record) -> TableRecord:
    records = Records(store, "table")
    if UPGRADE_KEY in record.content:
        raise InvalidCallError(
            f"the upgrade of {store.uri} from the older format was not finished: run it again, "
            "with `memwal upgrade` or memwal_sql.upgrade(uri)"
        )
    _check_commit_log(store, record)
    with decoding(records.path(record.version), "the record of a table"):
        incarnation = UUID(record.content["incarnation"])
        needs = needs_of(record.content)
        is_dropping = bool(record.content.get(DROPPING_KEY))
    check_needs(store.uri, needs, writes=False)
    return TableRecord(incarnation, record.version, needs, is_dropping)


def table_content(store: ObjectStore, incarnation: UUID) -> dict[str, Any]:
    """The record `table` of a table in `store`."""
    two_phase = isinstance(store, TwoPhaseStore)
    content = {"incarnation": str(incarnation), **stamp_of_table()}
    return {**content, **({_TWO_PHASE_KEY: True} if two_phase else {})}


def write_record(
    store: ObjectStore, incarnation: UUID, before: TableRecord | None = None
) -> TableRecord:
    """Record that the regions of `store` belong to the table of `incarnation`, unless `before` says
    so: the newest record, read before the incarnation was found in the base table or put there.

    The caller has made sure that there are no regions yet. Raises `ConflictError` when somebody
    else has recorded another one since.
    """
    if before is not None and before.incarnation == incarnation:
        return before
    number = 1 if before is None else before.number + 1
    return _put_next(store, number, table_content(store, incarnation), incarnation)


def record_drop(store: ObjectStore, before: TableRecord) -> TableRecord:
    """Record that the table is about to be deleted: who claims a region after that is refused.
    `before` is its record. Raises `ConflictError` when the table was made again meanwhile."""
    content = {**table_content(store, before.incarnation), DROPPING_KEY: True}
    while not before.is_dropping:
        before = _put_next(store, before.number + 1, content, before.incarnation)
    return before


def _put_next(
    store: ObjectStore, number: int, content: Mapping[str, Any], incarnation: UUID
) -> TableRecord:
    # No record is ever deleted: a free number is the next one.
    existing = Records(store, "table").create(number, content) or Record(number, content)
    record = _table_record(store, existing)
    if record.incarnation != incarnation:
        raise ConflictError(
            f"{store.uri} was recorded as another table by somebody else just now: call this again"
        )
    return record


def _check_commit_log(store: ObjectStore, record: Record) -> None:
    """Some writers with a commit log and some without would overwrite each other's objects."""
    recorded = bool(record.content.get(_TWO_PHASE_KEY))
    if recorded and not isinstance(store, TwoPhaseStore):
        raise InvalidCallError(
            f"{store.uri} was made with a commit log: open it with the same one, as the storage "
            f"option {COMMIT_LOG!r}"
        )
    if not recorded and isinstance(store, TwoPhaseStore):
        raise InvalidCallError(
            f"{store.uri} was made without a commit log: leave out the storage option "
            f"{COMMIT_LOG!r}"
        )


def check_incarnation(
    store: ObjectStore,
    metadata: Mapping[bytes, bytes] | None,
    *,
    has_index: bool,
    is_copy: bool = False,
    record: TableRecord | None = None,
) -> None:
    """Raise `TableReplacedError` unless the regions of `store` belong to this base version, and
    `ReopenError` when they do, but `record` is of a table that was there before.

    `metadata` is the Arrow schema metadata of the base, `has_index` whether it has a MemWAL index.
    Tables of native code have neither a record nor an incarnation, and pass, unless this `is_copy`
    of one that Lance has made, and nobody has written to it. `record` saves reading it again.
    """
    stamp = (metadata or {}).get(INCARNATION_KEY, b"").decode(errors="replace")
    record = record or read_record(store)
    if record is None:
        is_clone = is_copy and not store.list_folders(MEM_WAL_FOLDER)
        if has_index and (stamp or is_clone):  # a table's record comes before its index
            raise TableReplacedError(
                f"{store.uri} lacks the folder {RECORD_FOLDER if stamp else MEM_WAL_FOLDER}, as a "
                "clone or a branch made by plain Lance does, which has only the rows that were "
                "merged: copy the table's whole folder; or memwal_sql.enable(uri) makes it a table "
                "of its own, with these rows"
            )
        return
    if has_index and stamp == str(record.incarnation):
        return
    if stamp == str(record.incarnation):
        raise TableReplacedError(
            f"{store.uri} has lost its MemWAL index; restore a version that has it"
        )
    now = read_record(store)
    if has_index and now is not None and stamp == str(now.incarnation):
        raise made_again(store.uri)
    remedy = (
        "copy the rows to another place and enable them there"
        if has_index
        else f"move _mem_wal and {RECORD_FOLDER} away and enable the table again"
    )
    raise TableReplacedError(
        f"{store.uri} was overwritten: it has incarnation {stamp or 'none'}, and its regions hold"
        f" rows of {record.incarnation}; restore a version of that, or {remedy}"
    )


def made_again(uri: str) -> ReopenError:
    """The error for a handle of a table that was at this place before."""
    return ReopenError(
        f"{uri} is another table than this handle was opened for: it was deleted and made again;"
        " open it again, and make views and frames of it again"
    )
