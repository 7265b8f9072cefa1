"""The tables of a folder, in a session of DataFusion."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from memwal_native import MountedTable
from memwal_sql.catalog.place import Kind, Place, is_name
from memwal_sql.catalog.plain_lance import LanceProvider
from memwal_sql.create import open_table
from memwal_sql.errors import ReopenError, RepairError, UnsupportedError
from memwal_sql.registration import METADATA_TABLES, metadata_tables
from memwal_sql.session.provider import TableProvider
from memwal_sql.session.registered import Registered
from memwal_sql.session.transaction_slot import TransactionSlot
from memwal_sql.state.enable import Uri, find_lance
from memwal_sql.table import Table


class Folder(Place):
    """The tables of a folder. Tables that were used stay open, and show their newest state."""

    def __init__(
        self,
        uri: Uri,
        storage_options: Mapping[str, str] | None,
        consistency: str,
        missing: str,
        slot: TransactionSlot,
    ) -> None:
        """`slot` is the session's. Raises what `Place` raises."""
        super().__init__(uri, storage_options)
        self._consistency = consistency
        self._missing = missing
        self._slot = slot
        self._open: dict[str, Table] = {}
        self._lock = Lock()
        self._opening: dict[str, Lock] = {}

    def has(self, name: str) -> bool:
        """Whether there is a table, or metadata table, of this name."""
        return self._table_of(name) in self.names()

    def mounted(self, name: str) -> MountedTable | None:
        """What a session reads under a name: a table, a plain Lance table or a metadata table; None
        if there is none."""
        of = self._table_of(name)
        table = self._table(of)
        if of != name:
            about = None if table is None else dict(metadata_tables(of, table))
            return None if about is None else about[name.rpartition("$")[2]]
        if table is not None:
            return MountedTable(
                TableProvider(None, table, self._consistency, self._missing, slot=self._slot)
            )
        if not is_name(name):
            return None
        dataset = find_lance(self.location(name), self.lance_options)
        return None if dataset is None else MountedTable(LanceProvider(dataset))

    def registered(self, name: str) -> Registered | None:
        """A table of this package in its newest state; None if it is another table or does not
        exist."""
        table = self._table(name)
        if table is None:
            return None
        return Registered(name, table, table.schema, self._consistency, None, self._missing)

    def forget(self, name: str) -> None:
        """Open it again where it is asked for next."""
        with self._lock_of(name):
            self._open.pop(name, None)

    def _table(self, name: str) -> Table | None:
        if not is_name(name):
            return None
        with self._lock_of(name):  # while others have other names
            table = self._open.get(name)
            if table is not None:
                try:
                    table.refresh()
                    return table
                except (ReopenError, RepairError):  # another one is there now, or none
                    del self._open[name]
            if self.kind(name) is not Kind.TABLE:
                return None
            place = self.location(name)
            self._open[name] = open_table(place, storage_options=self.storage_options)
            return self._open[name]

    def _lock_of(self, name: str) -> Lock:
        with self._lock:
            return self._opening.setdefault(name, Lock())

    def _table_of(self, name: str) -> str:
        of, _, about = name.rpartition("$")
        return of if about in METADATA_TABLES else name


def not_here(what: str) -> UnsupportedError:
    """The error for a call that a plain DataFusion session can't make in a catalog."""
    return UnsupportedError(
        f"{what} a table of a catalog is a statement of mw.sql(ctx, ...), which ctx.sql of "
        "DataFusion can't run"
    )
