"""Reads the regions of one table over a base version, with their unflushed rows (protocol rules 15
and T12)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

from exec_nodes.node import opened
from exec_nodes.sources.source import Source
from memwal_native import voided
from memwal_sql.life_log import life_log
from memwal_sql.read.closed import RegionRead, TableRead, read_closed
from memwal_sql.read.index_lag import IndexGaps
from memwal_sql.read.region import RegionReader, Unflushed
from memwal_sql.read.region_probe import run_probes
from memwal_sql.read.registry import RegionRegistry
from memwal_sql.state.base_table import BaseTable, BaseTracker
from memwal_sql.state.context import TableContext
from memwal_sql.state.lost_rows import LOST
from memwal_sql.state.tail import Tail
from memwal_sql.storage.objects.concurrent import map_remote, run_with
from planner.model import Planner, RegionSources, Snapshot
from planner.predicates.expr import Predicate
from planner.regions.pruning import prune

_log = life_log(__name__)

Since = Mapping[RegionReader, int]
"""WAL positions by region; 0 for others."""


class RegionReads:
    """Reads regions of one table; keeps data that can't change between reads.

    Attributes:
        registry: the loaded regions.
        remote: whether requests take long, so that several are made at once.
    """

    def __init__(self, context: TableContext, tracker: BaseTracker, *, pinned: bool) -> None:
        self._context = context
        self.registry = RegionRegistry(context, tracker, pinned=pinned)
        self.remote = context.store.remote

    def read(
        self,
        base: BaseTable,
        filters: Sequence[Predicate],
        *,
        strong: bool,
        since: Since | None = None,
        planner: Planner | None = None,
    ) -> TableRead:
        """The regions that the filters leave, with their unflushed rows if it is `strong`, to be
        closed and then given to `snapshot_of`. It is closed alone, or among other tables with what
        was `seen` of all of them. They have the marks of all transactions `since` then, or else
        since the previous read. For `planner`, see `SnapshotCollector.snapshot`."""
        registry, info = self.registry, base.info
        lost, began = LOST.count, voided()
        reads: dict[RegionReader, Unflushed] = {}

        def read_chosen(
            regions: list[RegionReader], since: Since | None, planner: Planner | None = None
        ) -> tuple[RegionReader, ...]:
            chosen = prune(filters, regions, info.region_specs, info.schema)
            new = [reader for reader in chosen if reader not in reads]
            meanwhile = None if planner is None else partial(self._open, base, new, planner)
            unflushed = self._read_regions(base, new, meanwhile, strong=strong, since=since)
            reads.update(zip(new, unflushed, strict=True))
            return chosen

        # No answer about a region depends on the existence of others.
        find_new = partial(registry.find_new_regions, base, lambda view: view.chosen(filters))
        regions, known_regions = registry.pinned_by(base, filters), len(registry)
        are_all, listed = regions is not None, list[RegionReader]()
        first_planner = None
        if regions is None:
            if since is not None or (self.remote and registry):
                readers = registry.live(base, registry.loaded())
                run_with(
                    self.remote,
                    find_new,
                    partial(read_chosen, readers, since),
                )
                since = {}  # regions found now may be newer than the reads of the others
            else:
                first_planner = planner
                before = self.seen()
                find_new()
                since = {**self.seen(), **before}
            listed = regions = registry.live(base, registry.loaded())
            known_regions = len(regions)
        chosen = read_chosen(regions, since, first_planner)
        pruned = known_regions + registry.passed_over - len(chosen)
        if pruned:
            every = pruned + len(chosen)
            _log.debug("%s: %d of %d regions pruned", self._context.uri, pruned, every)
        region_reads = [RegionRead(reader, reads[reader]) for reader in chosen]
        open_of = None if are_all else self._context.incarnation
        return TableRead(base, region_reads, pruned, open_of, listed, lost, began)

    def _open(
        self, base: BaseTable, regions: Sequence[RegionReader], planner: Planner, _: list[Source]
    ) -> None:
        reads = [RegionRead(region, Unflushed(region.manifest, Tail())) for region in regions]
        with suppress(Exception):  # whoever needs the same files meets the error
            opened(planner(self.snapshot_of(TableRead(base, reads))))

    def seen(self) -> Since:
        """The WAL positions up to which earlier reads have taken in the regions known by now. To be
        asked before any region of a look is read, as reads of other threads go on."""
        return {reader: reader.seen for reader in self.registry.loaded()}

    def snapshot_of(self, read: TableRead) -> Snapshot:
        """The snapshot of a read."""
        base = read.base
        pairs = self.with_sources(base, read.regions)
        self.registry.check_values(base, pairs)
        collected = tuple(
            RegionSources(reader.region_id, reader.name, reader.spec_id, reader.values, sources)
            for reader, sources in pairs
        )
        gaps = IndexGaps(self._context, base, [reader for reader, _ in pairs])
        return Snapshot(base.info, base.source, collected, read.pruned, gaps=gaps)

    def sources(
        self,
        base: BaseTable,
        regions: Sequence[RegionReader],
        meanwhile: Callable[[list[Source]], None] | None = None,
    ) -> list[tuple[Source, ...]]:
        """The sources of each region, with its unflushed rows. On a remote store `meanwhile` is
        called with the sources that are known by now."""
        if len(regions) == 1:  # nothing to close
            (unflushed,) = self._read_regions(base, regions, meanwhile, strong=True)
            return self._sources_of(base, [RegionRead(regions[0], unflushed)])
        return self.routed_sources(base, lambda: (regions, True), meanwhile)

    def routed_sources(
        self,
        base: BaseTable,
        route: Callable[[], tuple[Sequence[RegionReader], bool]],
        meanwhile: Callable[[list[Source]], None] | None = None,
    ) -> list[tuple[Source, ...]]:
        """As `sources`, of the regions that `route` gives. It also says whether these are all; if
        not, it is called again where one may have been made meanwhile."""

        def read() -> tuple[TableRead]:
            regions, are_all = route()
            if are_all:
                return self.read_all(base, regions, meanwhile)
            before = {region: region.seen for region in regions}
            regions, are_all = route()
            since = {region: before.get(region, region.seen) for region in regions}
            return self.read_all(base, regions, meanwhile, self._context.incarnation, since)

        (table,) = read_closed(read)
        return self._sources_of(base, table.regions)

    def _sources_of(self, base: BaseTable, reads: Sequence[RegionRead]) -> list[tuple[Source, ...]]:
        pairs = self.with_sources(base, reads)
        if None in [reader.values for reader, _ in pairs]:
            self.registry.check_values(base, pairs)
        return [sources for _, sources in pairs]

    @staticmethod
    def with_sources(
        base: BaseTable, reads: Iterable[RegionRead]
    ) -> list[tuple[RegionReader, tuple[Source, ...]]]:
        """Regions that were read, each with its sources.

        Raises StaleBaseError if the base version is too old for one of them.
        """
        return [
            (
                read.reader,
                read.reader.sources(base, read.unflushed.manifest, read.unflushed.tail.memtables),
            )
            for read in reads
        ]

    def read_all(
        self,
        base: BaseTable,
        regions: Sequence[RegionReader],
        meanwhile: Callable[[list[Source]], None] | None = None,
        open_of: UUID | None = None,
        since: Since | None = None,
    ) -> tuple[TableRead]:
        """Some regions with their unflushed rows, to be closed; see `TableRead`."""
        reads = self._read_regions(base, regions, meanwhile, strong=True, since=since)
        pairs = zip(regions, reads, strict=True)
        return (TableRead(base, [RegionRead(*pair) for pair in pairs], open_of=open_of),)

    def _read_regions(
        self,
        base: BaseTable,
        regions: Sequence[RegionReader],
        meanwhile: Callable[[list[Source]], None] | None = None,
        *,
        strong: bool,
        since: Since | None = None,
    ) -> list[Unflushed]:
        """The probes of all regions are asked together; a region with news then continues on its
        own."""
        seen = [region.seen if since is None else since.get(region, 0) for region in regions]
        reads = [
            region.begin_read(base, strong=strong, since=start)
            for region, start in zip(regions, seen, strict=True)
        ]
        pairs = zip(regions, reads, strict=True)
        if not self.remote:
            return [region.end_read(pending) for region, pending in pairs]

        def end_reads() -> list[Unflushed]:
            run_probes(pending.probe for pending in reads)
            return map_remote(True, lambda pair: pair[0].end_read(pair[1]), pairs)

        if meanwhile is None:
            return end_reads()
        sources_known = [source for pending in reads for source in pending.sources_by_now]
        return run_with(True, end_reads, partial(meanwhile, sources_known))
