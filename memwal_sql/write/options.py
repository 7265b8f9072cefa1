"""The options of a writer: specification 2, "Writer Configuration"."""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil
from threading import TIMEOUT_MAX
from typing import TypedDict

from exec_nodes.base.machine import machine_memory
from memwal_sql.arguments import is_number, is_whole
from memwal_sql.errors import InvalidCallError

PARALLEL_REGIONS = 16
"""The regions that one call claims, asks or writes at once."""

_MIB = 1 << 20
# Arrow's string arrays have 32-bit offsets.
_MOST_BYTES = (1 << 31) - 1
_LEAST_UNFLUSHED, _MOST_UNFLUSHED = 128 * _MIB, 256 * _MIB
_ARRAY_SIZES = ("memtable_bytes", "wal_flush_bytes")


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Switches and thresholds of a writer. Bytes are bytes in memory, times are seconds.

    Attributes:
        durable: an upsert or delete returns when its rows are in the WAL. False: it returns when
            they are buffered, and a crash may lose what the thresholds below have not yet written.
        indexed: an upsert or delete also updates the postings of columns with a maintained
            full-text index before it returns. False: the first search that needs them does. Every
            read finds the rows either way.
        wal_flush_bytes: buffered writes go to the WAL when they reach this size. One WAL entry
            takes no further write beyond it, also of durable ones that share an entry, nor beyond
            what the store takes in five seconds.
        wal_flush_writes: buffered writes go to the WAL when there are this many of them.
        wal_flush_interval_s: buffered writes go to the WAL after this time at the latest.
        memtable_rows: a MemTable of this many rows is flushed. It is also the most rows that one
            call writes to one region atomically; native Lance opens no larger unflushed MemTable.
        memtable_bytes: a MemTable of this size is flushed, and bounds one atomic write too. Below
            2 GiB.
        memtable_entries: a MemTable of this many WAL entries is flushed, as other readers and
            claims read the entries one after the other.
        memtable_age_s: a MemTable is flushed this long after its first row, or up to a quarter
            later, as ages are checked that often; None: never for age. Maintenance jobs take over a
            region whose writer is silent well beyond it, and never if it is None.
        max_unflushed_bytes: the limit for unflushed rows of all regions, MemTables and copies that
            are being written; writes wait beyond it. None: an eighth of the memory of the machine
            or its control group, from 128 to 256 MiB.
        back_pressure_timeout_s: how long a write waits for room before BackPressureError.
        parallel_flushes: MemTables written to storage at the same time; None: 2, and 8 on an object
            store, where a flush waits most of its time.
        flush_attempts: how often a MemTable's flush is tried, each time into a new folder.
        turns: writers of several processes take turns: before this one takes a region over from
            another process, it waits until that one has had a turn, or is quiet; and a durable
            writer that a region is taken from waits for its turn, and goes on. False: it takes
            regions over at once, and stops with FencedError when one is taken from it, as a
            buffered writer always does.
    """

    durable: bool = True
    indexed: bool = True
    wal_flush_bytes: int = 8 * _MIB
    wal_flush_writes: int = 1_000
    wal_flush_interval_s: float = 0.1
    memtable_rows: int = 100_000
    memtable_bytes: int = 64 * _MIB
    memtable_entries: int = 500
    memtable_age_s: float | None = 60.0
    max_unflushed_bytes: int | None = None
    back_pressure_timeout_s: float = 60.0
    parallel_flushes: int | None = None
    flush_attempts: int = 4
    turns: bool = True

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "bool":
                fits, needed = isinstance(value, bool), "True or False"
            elif field.name in _ARRAY_SIZES:
                fits = is_whole(value, least=1) and value <= _MOST_BYTES
                needed = f"a whole number of bytes, from 1 to {_MOST_BYTES}, the most of an array"
            elif field.type in ("int", "int | None"):
                fits, needed = is_whole(value, least=1), "a whole number, 1 or more"
            else:
                fits = is_number(value) and 0 < value <= TIMEOUT_MAX
                needed = "a number of seconds, above 0 and up to 200 years"
            may_be_none = str(field.type).endswith("| None")
            if not fits and not (value is None and may_be_none):
                raise InvalidCallError(f"{field.name}={value!r} must be {needed}")

    @property
    def most_unflushed_bytes(self) -> int:
        """`max_unflushed_bytes`, or its default."""
        if self.max_unflushed_bytes is None:
            return default_unflushed_bytes(machine_memory())
        return self.max_unflushed_bytes

    @property
    def takes_turns(self) -> bool:
        """Whether the writer goes on with a region that another process took over."""
        return self.durable and self.turns

    @property
    def ages_interval_s(self) -> float | None:
        """Seconds between two checks of the ages of MemTables."""
        return None if self.memtable_age_s is None else self.memtable_age_s / 4

    @property
    def flushed_within_s(self) -> int | None:
        """Whole seconds after its first row within which a MemTable begins to be flushed."""
        if self.memtable_age_s is None or self.ages_interval_s is None:
            return None
        return ceil(self.memtable_age_s + self.ages_interval_s)


def default_unflushed_bytes(memory: int) -> int:
    """The default of `max_unflushed_bytes` for this much memory; both in bytes."""
    return max(_LEAST_UNFLUSHED, min(memory // 8, _MOST_UNFLUSHED))


@dataclass
class StatementWriters:
    """The `options` of the writers that statements open in this process."""

    options: WriterOptions


STATEMENT_WRITERS = StatementWriters(WriterOptions())


class WriterArguments(TypedDict, total=False):
    """The fields of `WriterOptions`, as arguments of `Table.writer`."""

    durable: bool
    indexed: bool
    wal_flush_bytes: int
    wal_flush_writes: int
    wal_flush_interval_s: float
    memtable_rows: int
    memtable_bytes: int
    memtable_entries: int
    memtable_age_s: float | None
    max_unflushed_bytes: int | None
    back_pressure_timeout_s: float
    parallel_flushes: int | None
    flush_attempts: int
    turns: bool
