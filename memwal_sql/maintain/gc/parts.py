"""Where the parts of transactions are, for a collector and a check of their home table."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from uuid import UUID

from memwal_sql.errors import NotFoundError
from memwal_sql.maintain.gc.listing import Survey
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.table import read_record
from memwal_sql.storage.records.transactions import Part
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from memwal_sql.storage.wal.log import Wal


class PartState(Enum):
    """Where the intent of a part is."""

    GONE = auto()  # its region, or its table, is not there any more
    COLLECTED = auto()  # it is flushed, and its entry is not there any more
    FLUSHED = auto()  # it is flushed, and its entry is still there
    LANDED = auto()  # it is in the log alone
    LOST = auto()  # it is neither flushed nor in the log


class Parts:
    """The states of parts: those in this table by its files, which were listed before its manifests
    were read; those in other tables by requests, of which the newest manifest of a region is read
    once."""

    def __init__(
        self, context: TableContext, survey: Survey, manifests: Mapping[UUID, RegionManifest]
    ) -> None:
        self._context = context
        self._survey = survey
        self._manifests = manifests
        self._elsewhere: dict[tuple[str, UUID], RegionManifest | None] = {}
        self._incarnations: dict[str, UUID | None] = {}

    def state(self, part: Part) -> PartState:
        """Where a part is. Raises StoreUnavailableError, and RepairError for damage of another
        table."""
        return self._state_elsewhere(part) if part.table else self._state_here(part)

    def _state_here(self, part: Part) -> PartState:
        files = self._survey.regions.get(part.region)
        if part.incarnation != self._context.incarnation or files is None:
            return PartState.GONE
        manifest = self._manifests.get(part.region)
        if manifest is None:  # nobody can read it
            return PartState.LANDED
        return _state(part, part.position in files.wal, manifest)

    def _state_elsewhere(self, part: Part) -> PartState:
        store = self._context.home(part.table)
        if part.table not in self._incarnations:
            record = read_record(store)
            self._incarnations[part.table] = None if record is None else record.incarnation
        if self._incarnations[part.table] != part.incarnation:
            return PartState.GONE
        has_entry = Wal(store, part.region).exists(part.position)
        place = part.table, part.region
        if place not in self._elsewhere:
            self._elsewhere[place] = _newest(store, part.region)
        manifest = self._elsewhere[place]
        return PartState.GONE if manifest is None else _state(part, has_entry, manifest)


def _newest(store: ObjectStore, region: UUID) -> RegionManifest | None:
    try:
        return RegionManifests(store, region).latest()
    except NotFoundError:
        return None


def _state(part: Part, has_entry: bool, manifest: RegionManifest) -> PartState:
    if part.position > manifest.replay_after_wal_entry_position:
        return PartState.LANDED if has_entry else PartState.LOST
    return PartState.FLUSHED if has_entry else PartState.COLLECTED
