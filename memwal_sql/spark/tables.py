"""Tables that this process has opened: Spark keeps its Python workers, and they keep these.

Planning, tasks and commits run in worker processes that live on between calls, so what can't change
(keys, bloom filters, stale sets, listed regions) is read once a process and not once a task.
"""

from __future__ import annotations

from functools import lru_cache

from memwal_sql.create import open_table
from memwal_sql.read.pinned import PinnedTable
from memwal_sql.spark.options import Options
from memwal_sql.spark.workers import settle_worker
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.table import read_record
from memwal_sql.table import Table

_KEPT = 16
Storage = tuple[tuple[str, str], ...]


def table_of(options: Options, version: int | None = None) -> Table:
    """The table of the options. Raises what `open_table` raises."""
    return _table(options.uri, options.storage, _incarnation(options), version)


def pinned_table_of(options: Options) -> PinnedTable:
    """Rebuilds pinned snapshots of the options' table."""
    return _pinned(options.uri, options.storage, _incarnation(options))


def _incarnation(options: Options) -> str:
    """Tells a table from one that was at the same place before."""
    record = read_record(open_store(options.uri, options.storage_options))
    return "" if record is None else str(record.incarnation)


@lru_cache(_KEPT)
def _table(uri: str, storage: Storage, incarnation: str, version: int | None) -> Table:
    del incarnation
    table = open_table(uri, version, storage_options=dict(storage) or None)
    settle_worker()
    return table


@lru_cache(_KEPT)
def _pinned(uri: str, storage: Storage, incarnation: str) -> PinnedTable:
    return _table(uri, storage, incarnation, None).pinned_table()
