"""Tables that this process has opened: Spark keeps its Python workers, and they keep these.

Planning, tasks and commits run in worker processes that live on between calls, so what can't change
(keys, bloom filters, stale sets, listed regions) is read once a process and not once a task.
"""

from __future__ import annotations

from functools import lru_cache

from memwal_sql.create import open_table
from memwal_sql.read.pinned import PinnedTable
from memwal_sql.spark.options import Options
from memwal_sql.table import Table

_KEPT = 16


def table_of(options: Options, version: int | None = None) -> Table:
    """The table of the options. Raises what `open_table` raises."""
    return _table(options.uri, options.storage, version)


def pinned_table_of(options: Options) -> PinnedTable:
    """Rebuilds pinned snapshots of the options' table."""
    return _pinned(options.uri, options.storage)


@lru_cache(_KEPT)
def _table(uri: str, storage: tuple[tuple[str, str], ...], version: int | None) -> Table:
    return open_table(uri, version, dict(storage) or None)


@lru_cache(_KEPT)
def _pinned(uri: str, storage: tuple[tuple[str, str], ...]) -> PinnedTable:
    return _table(uri, storage, None).pinned_table()


def forget(options: Options) -> None:
    """Open the table anew the next time: it was created, replaced or removed."""
    del options
    _table.cache_clear()
    _pinned.cache_clear()
