"""The writers of this process, so that its readers see rows that are only in memory.

Tables go by their identities, as `TableContext` has them: one that is deleted and made again at the
same place is another table, and the writers of the first are none of its own.
"""

from __future__ import annotations

import itertools
import os
from threading import Lock
from typing import TYPE_CHECKING
from uuid import UUID
from weakref import WeakValueDictionary

from memwal_sql.errors import TableReplacedError

if TYPE_CHECKING:
    from memwal_sql.write.region_writer import RegionWriter
    from memwal_sql.write.table_writer import TableWriter

Identity = tuple[str, str]

_regions: WeakValueDictionary[tuple[int, Identity, UUID], RegionWriter] = WeakValueDictionary()
_tables: WeakValueDictionary[int, TableWriter] = WeakValueDictionary()
_numbers = itertools.count()
_lock = Lock()


def live_writer(table: Identity, region_id: UUID) -> RegionWriter | None:
    """The open writer of a region with the highest epoch in this process, fenced or not."""
    return _regions.get(_key(table, region_id))


def live_table_writer(table: Identity) -> TableWriter | None:
    """The last opened writer of the table in this process that writes whatever region a row
    belongs to; an earlier one may have been fenced by it without having noticed yet."""
    with _lock:
        writers = [writer for _, writer in sorted(_tables.items(), reverse=True)]
    pid = os.getpid()
    own = (one for one in writers if one.pid == pid and one.identity == table)
    return next((one for one in own if one.routes and one.usable), None)


def register(table: Identity, writer: RegionWriter) -> RegionWriter | None:
    """Make a writer that has claimed its region known to readers; returns the one of this process
    that it has fenced by that, if there is one."""
    with _lock:
        known = _regions.get(key := _key(table, writer.region_id))
        if known is not None and known.epoch >= writer.epoch:
            return None
        _regions[key] = writer
        return known


def unregister(table: Identity, writer: RegionWriter) -> None:
    """Forget a writer that is closed."""
    with _lock:
        if _regions.get(key := _key(table, writer.region_id)) is writer:
            del _regions[key]


def register_table(writer: TableWriter) -> None:
    """Make a table writer known, so that INSERT statements share it."""
    with _lock:
        _tables[next(_numbers)] = writer


def stop_writers_before(table: Identity) -> None:
    """Stop the writers of this process that write a table which was at the place of this new one:
    its regions may have the same ids."""
    with _lock:
        writers = [one for one in _tables.values() if one.pid == os.getpid()]
    for writer in writers:
        if writer.identity[0] == table[0] and writer.identity != table:
            writer.stop(
                TableReplacedError(
                    f"{table[0]} was deleted and made again since this writer was opened: its "
                    "rows are gone with the table; open a new writer"
                )
            )


def unregister_table(writer: TableWriter) -> None:
    """Forget a table writer that is closed."""
    with _lock:
        for number in [number for number, known in _tables.items() if known is writer]:
            del _tables[number]


def _key(table: Identity, region_id: UUID) -> tuple[int, Identity, UUID]:
    # A forked child must not read its parent's MemTables: they stopped growing at the fork.
    return os.getpid(), table, region_id
