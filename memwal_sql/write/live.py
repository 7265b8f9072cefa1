"""The writers of this process, so that its readers see rows that are only in memory.

Tables go by their canonical URIs (`storage.store.canonical_uri`), as `TableContext` has them.
"""

from __future__ import annotations

import itertools
import os
from threading import Lock
from typing import TYPE_CHECKING
from uuid import UUID
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from memwal_sql.write.region_writer import RegionWriter
    from memwal_sql.write.table_writer import TableWriter

_regions: WeakValueDictionary[tuple[int, str, UUID], RegionWriter] = WeakValueDictionary()
_tables: WeakValueDictionary[int, TableWriter] = WeakValueDictionary()
_numbers = itertools.count()
_lock = Lock()


def live_writer(table_uri: str, region_id: UUID) -> RegionWriter | None:
    """The open writer of a region with the highest epoch in this process, fenced or not."""
    return _regions.get(_key(table_uri, region_id))


def live_table_writer(table_uri: str) -> TableWriter | None:
    """The last opened writer of the table in this process that writes whatever region a row
    belongs to; an earlier one may have been fenced by it without having noticed yet."""
    with _lock:
        writers = [writer for _, writer in sorted(_tables.items(), reverse=True)]
    pid = os.getpid()
    usable = (w for w in writers if w.pid == pid and w.uri == table_uri and w.routes and w.usable)
    return next(usable, None)


def register(table_uri: str, writer: RegionWriter) -> None:
    """Make a writer that has claimed its region known to readers."""
    with _lock:
        known = _regions.get(key := _key(table_uri, writer.region_id))
        if known is None or known.epoch < writer.epoch:
            _regions[key] = writer


def unregister(table_uri: str, writer: RegionWriter) -> None:
    """Forget a writer that is closed."""
    with _lock:
        if _regions.get(key := _key(table_uri, writer.region_id)) is writer:
            del _regions[key]


def register_table(writer: TableWriter) -> None:
    """Make a table writer known, so that INSERT statements share it."""
    with _lock:
        _tables[next(_numbers)] = writer


def unregister_table(writer: TableWriter) -> None:
    """Forget a table writer that is closed."""
    with _lock:
        for number in [number for number, known in _tables.items() if known is writer]:
            del _tables[number]


def _key(table_uri: str, region_id: UUID) -> tuple[int, str, UUID]:
    # A forked child must not read its parent's MemTables: they stopped growing at the fork.
    return os.getpid(), table_uri, region_id
