"""A folder of tables, laid out as Lance's directory namespace: `name.lance` each, so that LanceDB
has the same ones."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from enum import Enum

from memwal_sql.errors import InvalidCallError, StoreUnavailableError
from memwal_sql.state.enable import Uri, find_lance
from memwal_sql.storage.base.memwal_index import read_details
from memwal_sql.storage.objects.memory import is_in_memory
from memwal_sql.storage.objects.open import canonical_uri, open_store
from memwal_sql.storage.objects.options import checked_options
from memwal_sql.storage.paths import MEM_WAL_FOLDER

_SUFFIX = ".lance"
_NAME = re.compile(r"[A-Za-z0-9_.-]+")


class Kind(Enum):
    """What a folder has under a name."""

    NOTHING = 0
    PLAIN_LANCE = 1
    TABLE = 2


class Place:
    """The names of the tables of a folder, and where they are."""

    def __init__(self, uri: Uri, storage_options: Mapping[str, str] | None) -> None:
        """Raises InvalidCallError for a place that has no folder above it to list it from."""
        self.uri = canonical_uri(uri)
        self.storage_options = storage_options
        self.lance_options = checked_options(storage_options) or None
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
        if not is_name(name):
            raise InvalidCallError(
                f"{name!r}: a table of a catalog has letters, digits, dots, dashes and underscores "
                "in its name, which is that of a folder"
            )
        return f"{self.uri}/{name}{_SUFFIX}"

    def kind(self, name: str) -> Kind:
        """What is there under a name, which may be invalid."""
        if not is_name(name):
            return Kind.NOTHING
        place = self.location(name)
        dataset = find_lance(place, self.lance_options)
        if dataset is None:
            return Kind.NOTHING
        store = open_store(place, self.storage_options)
        if read_details(store, dataset) is None and not store.list_folders(MEM_WAL_FOLDER):
            return Kind.PLAIN_LANCE
        return Kind.TABLE


def is_name(name: str) -> bool:
    """Whether a table of a catalog may have the name."""
    return _NAME.fullmatch(name) is not None
