"""A snapshot that other processes can rebuild: every task of a distributed read sees the same rows.

A pinned snapshot is small and pickles: the base version, and for each region its manifest and the
end of its WAL. These never change, so wherever and whenever it is rebuilt, the rows are the same;
only if files were collected meanwhile it fails, with an error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol
from uuid import UUID

import lance
import pyarrow as pa

from exec_nodes.base.lazy import lazy_property
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.lance.errors import BASE_NAME, lance_errors
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source
from memwal_sql.errors import SourceGoneError
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable, load_base
from memwal_sql.state.context import TableContext
from memwal_sql.state.replay import MakeMemTable, Replay, memtables_of, read_ahead
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.wal.log import Wal
from planner.model import RegionSources, Snapshot, TableInfo
from planner.predicates.expr import Predicate
from planner.regions.pruning import RegionT, prune
from planner.regions.spec import RegionSpec

_ROWS_OF_AN_ENTRY = 1_000

RegionValues = tuple[object, ...]
RegionName = tuple[int, RegionValues]  # with the id of its spec


@dataclass(frozen=True, slots=True)
class PinnedRegion:
    """One region: its manifest, and the first WAL position that is not part of the snapshot.

    Without unflushed rows that is the position after the last flushed one. Every entry below it was
    complete, or skipped by a fence below it.
    """

    manifest: RegionManifest
    wal_end: int

    def rows(self, merged: int) -> int:
        """The estimated number of rows above the generation `merged`, for dividing work; 0 if there
        are none. Rows in its WAL are guessed."""
        unmerged = [g.rows or 1 for g in self.manifest.flushed_generations if g.generation > merged]
        return sum(unmerged) + len(self.entries) * _ROWS_OF_AN_ENTRY

    def is_merged(self, merged: int) -> bool:
        """Whether a base table with its generations up to `merged` has all of its rows."""
        return self.manifest.current_generation - 1 <= merged and not self.entries

    @property
    def entries(self) -> range:
        """The positions of the entries that are not flushed."""
        return range(self.manifest.replay_after_wal_entry_position + 1, self.wal_end)


@dataclass(frozen=True, slots=True)
class PinnedSnapshot:
    """A table's base version and the regions that the query's filters leave, in a stable order."""

    version: int
    regions: tuple[PinnedRegion, ...]
    regions_pruned: int = 0


class PinnedTable:
    """Rebuilds pinned snapshots of one table in this process; immutable data is kept."""

    def __init__(self, context: TableContext) -> None:
        self._context = context
        self._base: BaseTable | None = None
        self._regions: dict[UUID, RegionReader] = {}
        self._memtables: dict[UUID, tuple[PinnedRegion, tuple[MemTableSource, ...]]] = {}

    def base(self, version: int) -> BaseTable:
        """The base table at a version. Raises SourceGoneError if that was cleaned up."""
        base = self._base
        if base is None or base.version != version:
            options = self._context.storage_options
            with lance_errors(BASE_NAME, self._context.uri):
                dataset = lance.dataset(
                    lance_uri(self._context.uri), version=version, storage_options=options
                )
            self._base = base = load_base(self._context, dataset)
            self._regions.clear()
        return base

    def snapshot(self, pinned: PinnedSnapshot) -> Snapshot:
        """The snapshot that `pinned` describes. Raises SourceGoneError if parts were collected."""
        base, places = self.base(pinned.version), range(len(pinned.regions))
        return Snapshot(base.info, base.source, self.regions(pinned, places), pinned.regions_pruned)

    def regions(self, pinned: PinnedSnapshot, places: Iterable[int]) -> tuple[RegionSources, ...]:
        """The regions at some places of `pinned`. Raises SourceGoneError as `snapshot` does."""
        base = self.base(pinned.version)
        return tuple(self._sources(base, pinned.regions[place]) for place in places)

    def places_above(self, pinned: PinnedSnapshot, rows: Source) -> list[int]:
        """The places of the regions that may have newer rows than some `rows` of the base table:
        those of the rows' keys, but for regions whose rows the base table has."""
        base = self.base(pinned.version)
        merged = base.details.merged_generations
        specs = [spec for spec in base.info.region_specs if not spec.is_manual]
        read = {name for spec in specs for name in spec.source_columns}
        columns = [name for name in base.info.schema.names if name in read]
        above, by_values = [], dict[RegionName, list[int]]()
        for place, region in enumerate(pinned.regions):
            if region.is_merged(merged.get(region.manifest.region_id, 0)):
                continue
            reader = self._reader(base, region.manifest)
            if reader.values is None or all(spec.spec_id != reader.spec_id for spec in specs):
                above.append(place)
            else:
                name = reader.spec_id, tuple(reader.values.values())
                by_values.setdefault(name, []).append(place)
        batches = chain.from_iterable(
            rows.scan(columns, (), None, part) for part in range(rows.parts)
        )
        # Rows of all regions show after a few that all are to be opened.
        while by_values and (batch := next(batches, None)) is not None:
            for spec_id, values in _region_values(specs, pa.Table.from_batches([batch])).items():
                for value in values:
                    above += by_values.pop((spec_id, value), [])
        return sorted(above)

    def pruned(self, pinned: PinnedSnapshot, filters: Sequence[Predicate]) -> PinnedSnapshot:
        """The snapshot without the regions that `filters` rule out, for a read of rows that meet
        them: those of the base table that such a region would replace don't meet them either."""
        base = self.base(pinned.version)
        readers = [self._reader(base, region.manifest) for region in pinned.regions]
        chosen = {reader.region_id for reader in by_filters(base.info, filters)(readers)}
        regions = tuple(r for r in pinned.regions if r.manifest.region_id in chosen)
        fewer = len(pinned.regions) - len(regions)
        return PinnedSnapshot(pinned.version, regions, pinned.regions_pruned + fewer)

    def _reader(self, base: BaseTable, manifest: RegionManifest) -> RegionReader:
        reader = self._regions.get(manifest.region_id)
        if reader is None:
            reader = RegionReader(self._context, manifest, base)
            self._regions[manifest.region_id] = reader
        return reader

    def _sources(self, base: BaseTable, pinned: PinnedRegion) -> RegionSources:
        manifest = pinned.manifest
        reader = self._reader(base, manifest)
        memtables = self._replayed(base, pinned, reader.name)
        sources = reader.sources(base, manifest, memtables)
        return RegionSources(reader.region_id, reader.name, reader.spec_id, reader.values, sources)

    def _replayed(
        self, base: BaseTable, pinned: PinnedRegion, name: str
    ) -> tuple[MemTableSource, ...]:
        region = pinned.manifest.region_id
        replayed = self._memtables.get(region)
        if replayed is None or replayed[0] != pinned:
            wal = self._context.wal(region, base.stored)
            replayed = (pinned, tuple(_replay(wal, pinned, memtables_of(base.info, name))))
            self._memtables[region] = replayed
        return replayed[1]


class Choose(Protocol):
    """Chooses regions."""

    def __call__(self, regions: Sequence[RegionT], /) -> tuple[RegionT, ...]:
        """Those that may have rows of a read."""


class FixedState(Protocol):
    """The regions of a table in a state that stays as it is, over one base version: that of a
    checkpoint, or that of a transaction."""

    def snapshot(self, base: BaseTable, choose: Choose) -> Snapshot:
        """The regions that a read chooses, over the state's base version."""

    def pin(self) -> PinnedSnapshot:
        """A description of the state. Raises UnsupportedError if other processes can't read it."""


@dataclass(frozen=True)
class CheckpointState:
    """The state that a description names."""

    context: TableContext
    pinned: PinnedSnapshot

    @lazy_property
    def regions(self) -> tuple[RegionSources, ...]:
        """All regions."""
        return PinnedTable(self.context).snapshot(self.pinned).regions

    def snapshot(self, base: BaseTable, choose: Choose) -> Snapshot:
        """See `FixedState`."""
        chosen = choose(self.regions)
        return Snapshot(base.info, base.source, chosen, len(self.regions) - len(chosen))

    def pin(self) -> PinnedSnapshot:
        """See `FixedState`."""
        return self.pinned


def by_filters(info: TableInfo, filters: Sequence[Predicate]) -> Choose:
    """Chooses the regions that filters leave."""

    def choose(regions: Sequence[RegionT]) -> tuple[RegionT, ...]:
        return prune(filters, regions, info.region_specs, info.schema)

    return choose


def by_keys(info: TableInfo, keys: KeyBatch) -> Choose:
    """Chooses the regions that some keys belong to."""
    values = _region_values(info.region_specs, keys.table)

    def choose(regions: Sequence[RegionT]) -> tuple[RegionT, ...]:
        return tuple(
            region
            for region in regions
            if region.values is None
            or region.spec_id not in values
            or tuple(region.values.values()) in values[region.spec_id]
        )

    return choose


def _region_values(specs: Sequence[RegionSpec], rows: pa.Table) -> dict[int, set[RegionValues]]:
    """The values of the regions that some rows belong to, by region spec."""
    values: dict[int, set[RegionValues]] = {}
    for spec in specs:
        if not spec.is_manual:
            distinct, _ = spec.assign(rows)
            values[spec.spec_id] = {tuple(row.values()) for row in spec.values_of(distinct)}
    return values


def _replay(wal: Wal, pinned: PinnedRegion, make: MakeMemTable) -> Iterator[MemTableSource]:
    manifest = pinned.manifest
    replayed = Replay(wal, manifest.current_generation, make)
    first = manifest.replay_after_wal_entry_position + 1
    for position, entry in read_ahead(wal, first, pinned.wal_end):
        if entry is None:
            raise SourceGoneError(
                f"{wal.path(position)} was flushed and collected meanwhile: run the query again"
            )
        replayed.add(position, entry)
    replayed.torn(pinned.wal_end - 1)  # raises, as pinned entries were complete
    yield from (
        replayed_generation.memtable.snapshot() for replayed_generation in replayed.memtables
    )
