"""The context that all parts of a table handle share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

from exec_nodes.base.lazy import lazy_property
from exec_nodes.resident.store import Scope
from memwal_sql.storage.cache.disk_cache import DiskCache
from memwal_sql.storage.cache.settings import CACHE
from memwal_sql.storage.objects.concurrent import seconds
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.records.table import TableRecord, check_current


@dataclass(frozen=True)
class TableContext:
    """A table's place, its store and its resident artefacts.

    `first_version` is the etag of version 1 as long as it exists: it distinguishes a table that
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

    @lazy_property
    def cache(self) -> DiskCache | None:
        """Where copies of its files are kept on a local disk; None where they are on one, or where
        nothing tells the table from others that were or will be at its place."""
        is_known = self.record is not None or self.first_version is not None
        return CACHE.get() if self.store.remote and is_known else None

    @property
    def incarnation(self) -> UUID:
        """The incarnation that region ids are derived from; the nil UUID for a table that native
        code made."""
        return UUID(int=0) if self.record is None else self.record.incarnation
