"""What an image of a table has taken in, and what of a look it lacks.

An image has all that the look before has read, and applies what is new in the next one. To apply
rows again is harmless if all newer ones of their region follow: generations and MemTables from one
on, in their order, give every key in them its newest row.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

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
        version: the newest base version that has the same rows but for generations.
        details: what was found in it.
        lost: how many buffered writers had failed: their rows may be in the image.
    """

    base: BaseTable
    version: int
    details: FoundDetails
    regions: Mapping[UUID, TakenRegion]
    lost: int


@dataclass(frozen=True, slots=True)
class News:
    """Rows that an image lacks: those of a source from the row `first` on."""

    source: LanceSource | MemTableSource
    first: int = 0


def taken_region(region: ClosedRegion, before: TakenRegion | None) -> TakenRegion:
    """What an image has of a region after it has taken in a look."""
    manifest, tail = region.manifest, region.tail
    current, epoch = manifest.current_generation, manifest.writer_epoch
    memtables = dict[int, tuple[Hashable, int]]()
    if before is not None and before.epoch == epoch:
        memtables |= {g: rows for g, rows in before.memtables.items() if g >= current}
    memtables |= {source.generation: (source.identity, source.rows) for source in tail.memtables}
    end = tail.end if before is None else max(tail.end, before.end)
    return TakenRegion(epoch, end, current, memtables, region.is_quiet)


def news_of(
    region: ClosedRegion, before: TakenRegion | None, base: BaseTable, progress: MergeProgress
) -> Iterator[News]:
    """What an image lacks of a region, in the order to apply it. `progress` is that of the newest
    base version, whose files have all that was merged.

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
        if first > source.rows:
            raise ImageLostError("a look has fewer rows than the one before")
        if not first:
            again = source.generation
        if first < source.rows:
            yield News(source, first)
