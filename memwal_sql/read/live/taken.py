"""What an image of a table has taken in, and what of a look it lacks.

An image has all that the look before has read, and applies what is new in the next one. To apply
rows again is harmless if all newer ones of their region follow: generations and MemTables from one
on, in their order, give every key in them its newest row.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa

from exec_nodes.keys.keys import key_column, one_array
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.memtable_source import MemTableSource
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.tail import Tail
from memwal_sql.storage.base.memwal_index import FoundDetails
from memwal_sql.storage.base.merge_token import MergeProgress
from memwal_sql.storage.region.manifest import RegionManifest


class ImageLostError(Exception):
    """An image can't be brought up to date: what it lacks can't be read any more, or rows that it
    has are not in the table. The message says why."""


@dataclass(frozen=True, slots=True)
class ClosedRegion:
    """A region as a closed look has read it."""

    reader: RegionReader
    manifest: RegionManifest
    tail: Tail
    is_quiet: bool


@dataclass(frozen=True, slots=True)
class TakenRegion:
    """What an image has of a region.

    Attributes:
        epoch: the writer epoch of the last look.
        end: the last WAL position taken in.
        current: the first generation that was not flushed then.
        memtables: of that epoch, by generation: identity, and the number of rows taken in.
        is_quiet: whether no entry was passed over, which may count after all.
    """

    epoch: int
    end: int
    current: int
    memtables: Mapping[int, tuple[Hashable, int]]
    is_quiet: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """What an image has of a table.

    Attributes:
        base: the base version that it was made of.
        version: the base version of the last look; apart from merged generations it has the same
            rows.
        details: what was found in it.
        earlier: the etags of the last versions before it: looks may be served one of them still.
        lost: how many buffered writers had failed: their rows may be in the image.
    """

    base: BaseTable
    version: int
    details: FoundDetails
    regions: Mapping[UUID, TakenRegion]
    lost: int
    earlier: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class News:
    """Rows that an image lacks: those of a generation, or of a MemTable from the row `first` on."""

    source: LanceSource | MemTableSource
    first: int = 0


def is_behind(region: ClosedRegion, before: TakenRegion) -> bool:
    """Whether a look has less of a region than was taken in: it is an older one, or was cut before
    a transaction."""
    manifest, tail = region.manifest, region.tail
    if manifest.writer_epoch < before.epoch or manifest.current_generation < before.current:
        return True
    if tail.end < before.end:
        return True
    sources = {source.generation: source for source in tail.memtables}
    for generation, (identity, rows) in before.memtables.items():
        source = sources.get(generation)
        if source is not None and source.identity is identity and source.rows < rows:
            return True
        # One that was sealed later: rows of a buffered writer do not move the end of the log.
        is_unflushed = generation >= manifest.current_generation
        if source is None and rows and is_unflushed and manifest.writer_epoch == before.epoch:
            return True
    return False


def taken_region(region: ClosedRegion, before: TakenRegion | None) -> TakenRegion:
    """What an image has of a region after it has taken in a look."""
    manifest, tail = region.manifest, region.tail
    current, epoch = manifest.current_generation, manifest.writer_epoch
    memtables = dict[int, tuple[Hashable, int]]()
    if before is not None and before.epoch == epoch:
        memtables |= {g: rows for g, rows in before.memtables.items() if g >= current}
    memtables |= {source.generation: (source.identity, source.rows) for source in tail.memtables}
    return TakenRegion(epoch, tail.end, current, memtables, region.is_quiet)


def news_of(
    region: ClosedRegion, before: TakenRegion | None, base: BaseTable, progress: MergeProgress
) -> Iterator[News]:
    """What an image lacks of a region of which the look is not behind, in the order to apply it.
    `progress` is that of the look's base version.

    Raises ImageLostError.
    """
    reader, manifest = region.reader, region.manifest
    listed = {flushed.generation: flushed for flushed in manifest.flushed_generations}
    current = manifest.current_generation
    if before is None:
        first = min([*listed, current])
        if first > 1 and progress.get(reader.region_id, 0):
            raise ImageLostError("generations of a new region were merged")
        before = TakenRegion(-1, 0, first, {}, is_quiet=True)
    taken = before.memtables if before.epoch == manifest.writer_epoch else {}
    behind = before.is_quiet and manifest.replay_after_wal_entry_position <= before.end
    again = next((g for g in range(before.current, current) if not (behind and g in taken)), None)
    for generation in range(current if again is None else again, current):
        if generation not in listed:
            raise ImageLostError("a generation was merged and collected that it had not read")
        yield News(reader.generation(base, listed[generation]))
    for source in sorted(region.tail.memtables, key=lambda source: source.generation):
        identity, rows = taken.get(source.generation, (None, 0))
        first = rows if again is None and identity is source.identity else 0
        if not first:
            again = source.generation
        if first < source.rows:
            yield News(source, first)


def keys_of(batch: pa.RecordBatch, key: Sequence[str]) -> pa.Array:
    """The keys of rows, in one array."""
    return one_array(key_column([batch.column(name) for name in key]))
