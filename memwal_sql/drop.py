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
from memwal_sql.maintain.gc.dropping import aborted_lately, settle_and_hand_over
from memwal_sql.state.enable import Uri
from memwal_sql.state.open_writers import stop_writers_at
from memwal_sql.storage.objects.errors import store_error
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.objects.open import canonical_uri, open_store, refuse_linked_root
from memwal_sql.storage.objects.options import checked_options
from memwal_sql.storage.objects.two_phase import TwoPhaseStore
from memwal_sql.storage.paths import BASE_FOLDERS, MEM_WAL_FOLDER, RECORD_FOLDER
from memwal_sql.storage.records.table import read_record

_log = life_log(__name__)

_BASE_FOLDERS = (*BASE_FOLDERS, "_refs", "tree")
"""What Lance writes, branches too."""
_TABLE_RECORDS = f"{RECORD_FOLDER}/table"
"""They go last: a drop that was stopped goes on by them."""


def drop_table(uri: Uri, storage_options: Mapping[str, str] | None = None) -> None:
    """Delete a table with all that is in its folder: rows, versions, checkpoints. Rows that its
    transactions have written to other tables stay. What says that a transaction of the last hour
    was aborted stays in the folder, and then also files that are not of the table.

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
    was_stopped = record is None and bool(store.list(_TABLE_RECORDS))
    committed = frozenset[str]() if record is None else _settle(uri, options)
    has_records = record is not None or was_stopped
    stay = aborted_lately(store, committed) if has_records else frozenset[str]()
    if not stay:
        _drop_base(uri, options, may_be_gone=was_stopped)
    # Lance deletes all that is in a folder, and what stays may not be gone for a moment.
    base = _BASE_FOLDERS if stay else ()
    for folder in (*base, MEM_WAL_FOLDER, RECORD_FOLDER):
        paths = [meta.path for meta in (*store.list(folder), *store.leftovers(folder))]
        last = [path for path in paths if path.startswith(f"{_TABLE_RECORDS}/")]
        store.delete_in_bulk([path for path in paths if path not in {*stay, *last}])
        store.delete_in_bulk(last)
    _log.info("dropped %s", uri)


def _drop_base(uri: str, options: dict[str, str] | None, *, may_be_gone: bool) -> None:
    try:
        with lance_panics(BASE_NAME, uri):
            lance.LanceDataset.drop(lance_uri(uri), options)
    except ValueError as error:
        raise InvalidCallError(f"{uri} is not a table, and nothing was deleted: {error}") from error
    except OSError as error:
        if not is_not_found(error):
            raise store_error(f"{uri} could not be deleted", str(error), str(error)) from error
        if not may_be_gone:
            raise InvalidCallError(f"{uri} is not a table: nothing is there") from None


def _settle(uri: str, options: dict[str, str] | None) -> frozenset[str]:
    """The ids of committed transactions. A table that can't be opened has nobody to settle with."""
    try:
        table = open_table(uri, storage_options=options)
    except (InvalidCallError, RepairError, UnknownFormatError) as error:
        _log.info("%s is dropped as it is: %s", uri, type(error).__name__)
        return frozenset()
    with closing(table):
        if not table.context.takes_transactions:
            return frozenset()
        return settle_and_hand_over(table.context)
