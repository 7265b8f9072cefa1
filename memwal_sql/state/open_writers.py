"""The writers of this process, so that its readers see rows that are only in memory.

Tables are known by their identities, as `TableContext` has them: a table that is deleted and made
again at the same place is another one, and has none of the writers of the first.
"""

from __future__ import annotations

import atexit
import itertools
import os
import traceback
from functools import partial
from threading import Lock, RLock
from typing import Any, Protocol
from uuid import UUID
from weakref import WeakValueDictionary

import pyarrow as pa

from exec_nodes.base.threads import lost_at_exit, start_call
from memwal_sql.errors import RepairError, TableReplacedError
from memwal_sql.state.tail import Tail

Identity = tuple[str, str]


class OpenRegion(Protocol):
    """The writer of one region, `write.region_writer.RegionWriter`."""

    @property
    def region_id(self) -> UUID:
        """The region."""

    @property
    def epoch(self) -> int:
        """The writer epoch of its claim."""

    @property
    def entry_schema(self) -> pa.Schema:
        """The columns it was opened with, and their field ids."""

    @property
    def is_usable(self) -> bool:
        """Whether nothing has stopped it."""

    @property
    def unflushed_rows(self) -> int:
        """Rows that are not committed as a generation."""

    def tail(self, since: int = 0) -> Tail:
        """The rows that are not flushed, and the committed intents among them above a position."""

    def flush_wal(self) -> None:
        """Return when every write made so far is in the WAL."""

    def taken_over(self, by: int) -> None:
        """Take no more writes: epoch `by` has the region, in this process or another."""


class OpenTable(Protocol):
    """The writer of a table, `write.table_writer.TableWriter`.

    Attributes:
        routes: whether rows of every region can be written.
    """

    pid: int
    identity: Identity
    columns: pa.Schema
    of_statements: bool
    routes: bool

    @property
    def usable(self) -> bool:
        """Whether it is open and none of its regions is lost."""

    @property
    def closed(self) -> bool:
        """Whether it has been closed."""

    def insert_into(self, rows: pa.Table, description: Any = None) -> Any:
        """Write whole rows."""

    def change(
        self,
        read: Any,
        *,
        whole: bool = False,
        isolation: str = "snapshot",
        description: Any = None,
    ) -> Any:
        """Write rows that it computes from existing rows."""

    def sync(self) -> None:
        """Return when every row written so far is durable."""

    def land(self) -> None:
        """As `sync`, also where it is being closed or was closed since the rows were written."""

    def flush_usable(self) -> None:
        """Turn every MemTable of the regions that it can still write into a generation."""

    def stop(self, error: RepairError) -> None:
        """Write nothing more, for that reason."""

    def close(self) -> None:
        """Let go of the regions."""


_regions: WeakValueDictionary[tuple[int, Identity, UUID], OpenRegion] = WeakValueDictionary()
_epochs: dict[tuple[int, Identity, UUID], int] = {}
_tables: WeakValueDictionary[int, OpenTable] = WeakValueDictionary()
_numbers = itertools.count()
_lock = Lock()


def live_writer(table: Identity, region_id: UUID) -> OpenRegion | None:
    """The open writer of a region with the highest epoch in this process, fenced or not."""
    return _regions.get(_key(table, region_id))


def live_table_writer(table: Identity) -> OpenTable | None:
    """The last opened writer of the table in this process that writes whatever region a row
    belongs to; an earlier one may have been fenced by it without having noticed yet."""
    with _lock:
        writers = [writer for _, writer in sorted(_tables.items(), reverse=True)]
    pid = os.getpid()
    own = (writer for writer in writers if writer.pid == pid and writer.identity == table)
    return next((writer for writer in own if writer.routes and writer.usable), None)


def open_table_writers(table: Identity) -> list[OpenTable]:
    """The open writers of the table in this process, in the order in which they were opened."""
    return [writer for writer in _writers_at(table[0]) if writer.identity == table]


def register(table: Identity, writer: OpenRegion) -> OpenRegion | None:
    """Make a writer that has claimed its region known to readers; returns the one of this process
    that it has fenced by that, if there is one."""
    with _lock:
        current = _regions.get(key := _key(table, writer.region_id))
        _note_claim(key, writer.epoch)
        if current is not None and current.epoch >= writer.epoch:
            return None
        _regions[key] = writer
        return current


def note_claim(table: Identity, region_id: UUID, epoch: int) -> None:
    """Note that this process has claimed a region without a writer that readers ask."""
    with _lock:
        _note_claim(_key(table, region_id), epoch)


def last_epoch(table: Identity, region_id: UUID) -> int:
    """The highest epoch with which this process has claimed a region, even if its writer is closed
    by now; 0 without any."""
    return _epochs.get(_key(table, region_id), 0)


def unregister(table: Identity, writer: OpenRegion) -> None:
    """Forget a writer that is closed."""
    with _lock:
        if _regions.get(key := _key(table, writer.region_id)) is writer:
            del _regions[key]


def register_table(writer: OpenTable) -> None:
    """Make a table writer known, so that statements share it."""
    with _lock:
        _tables[next(_numbers)] = writer


def stop_writers_before(table: Identity) -> None:
    """Stop the writers of this process that write a table which was at the place of this new one:
    its regions may have the same ids."""
    error = TableReplacedError(
        f"{table[0]} was deleted and made again since this writer was opened: its rows are gone "
        "with the table; open a new writer"
    )
    for writer in _writers_at(table[0]):
        if writer.identity != table:
            writer.stop(error)


def stop_writers_at(uri: str, error: RepairError) -> None:
    """Stop the writers of this process that write the table at a place, for that reason."""
    for writer in _writers_at(uri):
        writer.stop(error)


def _writers_at(uri: str) -> list[OpenTable]:
    with _lock:
        writers = [writer for _, writer in sorted(_tables.items())]
    return [writer for writer in writers if writer.pid == os.getpid() and writer.identity[0] == uri]


def unregister_table(writer: OpenTable) -> None:
    """Forget a table writer that is closed."""
    with _lock:
        for number in [number for number, registered in _tables.items() if registered is writer]:
            del _tables[number]


UNWRITTEN: set[OpenTable] = set()
"""Writers with buffered rows, which live until these are in the log, even if nobody closes them."""

UNWRITTEN_LOCK = RLock()


@atexit.register
def _close_unwritten() -> None:
    """Write buffered rows at the end of the interpreter, whose other threads have ended. They are
    written by threads that the exit waits for, as a store may hang."""
    for writer in tuple(UNWRITTEN):
        close = partial(_close, writer)
        try:
            start_call(close, f"writes of {writer.identity[0]}")
        except RuntimeError:  # from Python 3.12 on, where no thread is idle
            close()


def _close(writer: OpenTable) -> None:
    try:
        writer.close()
    except Exception as error:
        traceback.print_exception(error)  # nobody else hears of it
        lost_at_exit(f"buffered rows of {writer.identity[0]} were not written: {error}")


def _note_claim(key: tuple[int, Identity, UUID], epoch: int) -> None:
    _epochs[key] = max(epoch, _epochs.get(key, 0))


def _key(table: Identity, region_id: UUID) -> tuple[int, Identity, UUID]:
    # A forked child must not read its parent's MemTables: they stopped growing at the fork.
    return os.getpid(), table, region_id
