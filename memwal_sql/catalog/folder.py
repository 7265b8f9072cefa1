"""A folder of tables, laid out as Lance's directory namespace: `name.lance` each, so that LanceDB
has the same ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from threading import Lock

from memwal_native import MountedTable
from memwal_sql.catalog.plain_lance import LanceProvider
from memwal_sql.create import open_table
from memwal_sql.errors import (
    InvalidCallError,
    ReopenError,
    RepairError,
    StoreUnavailableError,
    UnsupportedError,
)
from memwal_sql.registration import METADATA_TABLES, metadata_tables
from memwal_sql.session.provider import TableProvider
from memwal_sql.session.registered import Registered
from memwal_sql.session.transaction_slot import TransactionSlot
from memwal_sql.state.enable import Uri, find_lance
from memwal_sql.storage.base.memwal_index import read_details
from memwal_sql.storage.objects.memory import is_in_memory
from memwal_sql.storage.objects.open import canonical_uri, open_store
from memwal_sql.storage.objects.options import checked_options
from memwal_sql.storage.paths import MEM_WAL_FOLDER
from memwal_sql.table import Table

_SUFFIX = ".lance"
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class Folder:
    """The tables of a folder. Tables that were used stay open, and show their newest state."""

    def __init__(
        self,
        uri: Uri,
        storage_options: Mapping[str, str] | None,
        consistency: str,
        missing: str,
        slot: TransactionSlot,
    ) -> None:
        """`slot` is the session's. Raises InvalidCallError for a place that has no folder above it
        to list it from."""
        self.uri = canonical_uri(uri)
        self.storage_options = storage_options
        self._options = checked_options(storage_options) or None
        self._consistency = consistency
        self._missing = missing
        self._slot = slot
        self._open: dict[str, Table] = {}
        self._lock = Lock()
        self._opening: dict[str, Lock] = {}
        parent, _, self._folder = self.uri.rpartition("/")
        if is_in_memory(self.uri) or parent.endswith(":/") or not self._folder:
            raise InvalidCallError(
                f"{self.uri} can't be a catalog: give a folder on a disk or within a bucket"
            )
        self._parent = open_store(parent or "/", storage_options)

    def names(self) -> list[str]:
        """The names of all tables, in order. A link to a table's folder counts, as for
        `open_table`."""
        folders = self._folders()
        return sorted(
            folder.removesuffix(_SUFFIX) for folder in folders if folder.endswith(_SUFFIX)
        )

    def _folders(self) -> Iterable[str]:
        if "://" in self.uri:
            return self._parent.list_folders(self._folder)
        try:
            with os.scandir(self.uri) as entries:
                return [entry.name for entry in entries if entry.is_dir()]
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise StoreUnavailableError(
                f"{self.uri} could not be listed: {error.strerror}"
            ) from error

    def location(self, name: str) -> str:
        """The place of a table. Raises InvalidCallError for an invalid name."""
        if not _NAME.fullmatch(name) or "$" in name:
            raise InvalidCallError(
                f"{name!r}: a table of a catalog has letters, digits, dots, dashes and underscores "
                "in its name, which is that of a folder"
            )
        return f"{self.uri}/{name}{_SUFFIX}"

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
        if not _NAME.fullmatch(name):
            return None
        dataset = find_lance(self.location(name), self._options)
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
        if not _NAME.fullmatch(name):
            return None
        with self._lock_of(name):  # while others have other names
            table = self._open.get(name)
            if table is not None:
                try:
                    table.refresh()
                    return table
                except (ReopenError, RepairError):  # another one is there now, or none
                    del self._open[name]
            place = self.location(name)
            dataset = find_lance(place, self._options)
            if dataset is None:
                return None
            store = open_store(place, self.storage_options)
            if read_details(store, dataset) is None and not store.list_folders(MEM_WAL_FOLDER):
                return None
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
