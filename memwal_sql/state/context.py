"""The context that all parts of a table handle share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

import pyarrow as pa

from exec_nodes.base.lazy import lazy_property
from exec_nodes.resident.store import Scope
from memwal_sql.state.known_verdicts import is_committed_by_any_region
from memwal_sql.storage.objects.concurrent import seconds
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.intent import place_from
from memwal_sql.storage.records.table import TableRecord, check_current
from memwal_sql.storage.records.verdicts import Verdicts
from memwal_sql.storage.wal.log import Wal


@dataclass(frozen=True)
class TableContext:
    """A table's place, its store and its resident artefacts.

    Attributes:
        first_version: the etag of version 1 as long as it exists: it distinguishes a table that
            native code made, and that has no record, from an earlier one at the same place.
    """

    uri: str
    store: ObjectStore
    record: TableRecord | None
    storage_options: dict[str, str] | None = field(default=None, repr=False)
    first_version: str | None = None
    scope: Scope = field(default_factory=Scope, repr=False)
    clock: Callable[[], float] = field(default=seconds, repr=False)

    @lazy_property
    def identity(self) -> tuple[str, str]:
        """Tells the table from all others, also from one that was deleted at the same place."""
        return self.uri, str(self.incarnation) if self.record else str(self.first_version)

    def check_reads(self) -> None:
        """Raise UnknownFormatError when this package has become too old to read the table, at the
        price of a request; `format_versions` says when to ask."""
        check_current(self.store, self.record, writes=False)

    def check_writes(self) -> None:
        """The same for writing it; ReopenError when the table was enabled again meanwhile."""
        check_current(self.store, self.record, writes=True)

    @property
    def takes_transactions(self) -> bool:
        """Whether every reader and writer of the table knows transactions. One that Lance or
        LanceDB has made has no record."""
        return self.record is not None

    @lazy_property
    def verdicts(self) -> Verdicts:
        """The verdicts over the intents in the table's logs."""
        return self.new_verdicts()

    def new_verdicts(self) -> Verdicts:
        """The same, with nothing known yet."""
        known = partial(is_committed_by_any_region, self.store)
        return Verdicts(self.incarnation, self.home, known)

    def home(self, place: str) -> ObjectStore:
        """The store of the table at a place relative to this one's folder; "" is this one."""
        return (
            open_store(place_from(self.uri, place), self.storage_options) if place else self.store
        )

    def wal(self, region_id: UUID, columns: pa.Schema | None = None) -> Wal:
        """The log of a region, see `Wal`."""
        return Wal(self.store, region_id, columns, self.verdicts)

    @property
    def incarnation(self) -> UUID:
        """The incarnation that region ids are derived from; the nil UUID for a table that native
        code made."""
        return UUID(int=0) if self.record is None else self.record.incarnation
