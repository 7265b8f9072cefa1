"""Deleting a table: `drop_table`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

import lance

from exec_nodes.lance.errors import BASE_NAME, is_not_found, lance_panics
from memwal_sql.create import open_table
from memwal_sql.errors import (
    InvalidCallError,
    RepairError,
    TableReplacedError,
    UnknownFormatError,
    UnsupportedError,
)
from memwal_sql.life_log import life_log
from memwal_sql.maintain.gc.dropping import settle_and_hand_over
from memwal_sql.state.enable import Uri
from memwal_sql.state.open_writers import stop_writers_at
from memwal_sql.storage.objects.errors import store_error
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.objects.open import canonical_uri, open_store, refuse_linked_root
from memwal_sql.storage.objects.options import checked_options
from memwal_sql.storage.objects.two_phase import TwoPhaseStore
from memwal_sql.storage.paths import MEM_WAL_FOLDER, RECORD_FOLDER
from memwal_sql.storage.records.table import read_record

_log = life_log(__name__)


def drop_table(uri: Uri, storage_options: Mapping[str, str] | None = None) -> None:
    """Delete a table with all that is in its folder: rows, versions, checkpoints. Rows that its
    transactions have written to other tables stay.

    The writers that this process has open for it are stopped; close those of other processes
    first, as they would go on writing there. A plain Lance table may be deleted as well.

    Raises InvalidCallError where there is no table, or a symbolic link to one, and
    UnsupportedError for a store with a commit log, whose entries would outlive it.
    """
    named, uri = uri, canonical_uri(uri)
    refuse_linked_root(named)
    options = checked_options(storage_options) or None
    store = open_store(uri, options)
    if isinstance(store, TwoPhaseStore):
        raise UnsupportedError(
            f"{uri} has a commit log, whose entries would be those of a new table: delete the "
            "folder and its entries by hand"
        )
    record = read_record(store)  # raises for a table with a commit log that was not given
    stop_writers_at(uri, TableReplacedError(f"{uri} was dropped: its rows are gone"))
    stay = {} if record is None else _settle(uri, options)
    try:
        with lance_panics(BASE_NAME, uri):
            lance.LanceDataset.drop(lance_uri(uri), options)
    except ValueError as error:
        raise InvalidCallError(f"{uri} is not a table, and nothing was deleted: {error}") from error
    except OSError as error:
        if is_not_found(error):
            raise InvalidCallError(f"{uri} is not a table: nothing is there") from None
        raise store_error(f"{uri} could not be deleted", str(error), str(error)) from error
    for folder in (MEM_WAL_FOLDER, RECORD_FOLDER):  # Lance deletes only its own
        store.delete_in_bulk([meta.path for meta in store.list(folder)])
    for path, data in stay.items():  # on a disk, Lance deletes the whole folder
        store.put_if_absent(path, data)
    _log.info("dropped %s", uri)


def _settle(uri: str, options: dict[str, str] | None) -> dict[str, bytes]:
    """The files that stay, by path. A table that can't be opened has nobody to settle with."""
    try:
        table = open_table(uri, storage_options=options)
    except (InvalidCallError, RepairError, UnknownFormatError) as error:
        _log.info("%s is dropped as it is: %s", uri, type(error).__name__)
        return {}
    with closing(table):
        if not table.context.takes_transactions:
            return {}
        return settle_and_hand_over(table.context, table.collector.catch_up())
