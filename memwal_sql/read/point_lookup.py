"""Which sources a point lookup asks: the regions that its keys can be in, then the base table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from exec_nodes.base.errors import SourceGoneError
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.sources.source import Source
from memwal_sql.errors import NotFoundError
from memwal_sql.read.lookup import FoundRows, Places, find_one, search
from memwal_sql.read.region import RegionReader, StaleBaseError, gap_error
from memwal_sql.read.snapshots import ATTEMPTS, SnapshotCollector
from memwal_sql.state.base_table import BaseTable
from planner.model import Snapshot


class PointReader:
    """Answers `table.get` at strong consistency, asking only the regions of its keys."""

    def __init__(self, collector: SnapshotCollector) -> None:
        self._collector = collector

    def get(self, base: BaseTable, keys: KeyBatch, columns: Sequence[str]) -> pa.Table:
        """The live rows of distinct `keys`, in their order; `base` is what queries of now read."""
        base = self._collector.not_below_watermarks(base)
        for _ in range(ATTEMPTS):
            try:
                return self._get(base, keys, columns)
            except (StaleBaseError, SourceGoneError, NotFoundError) as error:
                changed = error
                base = self._collector.not_below_watermarks(self._collector.catch_up())
        self._collector.check_watermarks(base)
        raise gap_error(changed)

    def _get(self, base: BaseTable, keys: KeyBatch, columns: Sequence[str]) -> pa.Table:
        if len(keys) == 1:
            regions = (region for region, _ in self._routes(base, keys))
            newer = (source for region in regions for source in self._sources(base, region))
            return find_one(keys, chain(newer, (base.source,)), _output(base.info.schema, columns))
        parts = (
            (self._sources(base, region), places) for region, places in self._routes(base, keys)
        )
        return _collect(keys, columns, parts, base.source, base.info.schema)

    def _sources(self, base: BaseTable, region: RegionReader) -> tuple[Source, ...]:
        found = region.strong_sources(base)
        if region.values is None:
            self._collector.check_values(base, [(region, found)])
        return found

    def _routes(self, base: BaseTable, keys: KeyBatch) -> Iterator[tuple[RegionReader, Places]]:
        """Each region that may hold some of the keys, with the places of those keys.

        A region without values may hold any key (protocol rule 1).
        """
        info = base.info
        for spec in info.region_specs:
            if len(keys) == 1:
                values = spec.key_function(info.schema, info.primary_key)(keys.values[0])
                region = self._collector.region_of(base, spec.spec_id, values)
                if region is not None:
                    yield region, np.zeros(1, dtype=np.int64)
                continue
            distinct, index = spec.assign(keys.table)
            for number, row in enumerate(spec.values_of(distinct)):
                region = self._collector.region_of(base, spec.spec_id, tuple(row.values()))
                if region is not None:
                    yield region, np.flatnonzero(index == number)
        for region in self._collector.regions_without_values(base):
            yield region, np.arange(len(keys))


def get_in(snapshot: Snapshot, keys: KeyBatch, columns: Sequence[str]) -> pa.Table:
    """The live rows of distinct `keys` in a snapshot that was taken before; asks every region in
    it."""
    if len(keys) == 1:
        newer = (source for region in snapshot.regions for source in region.sources)
        base = () if snapshot.base is None else (snapshot.base,)
        return find_one(keys, chain(newer, base), _output(snapshot.info.schema, columns))
    everywhere = np.arange(len(keys))
    parts = ((region.sources, everywhere) for region in snapshot.regions)
    return _collect(keys, columns, parts, snapshot.base, snapshot.info.schema)


def _collect(
    keys: KeyBatch,
    columns: Sequence[str],
    parts: Iterable[tuple[Sequence[Source], Places]],
    base: Source | None,
    schema: pa.Schema,
) -> pa.Table:
    """Look for the keys at each part's places in its sources, and for the rest in the base."""
    found = FoundRows(_output(schema, columns))
    wanted = np.ones(len(keys), dtype=np.bool_)
    for sources, places in parts:
        places = places[wanted[places]]
        if len(places):
            left = search(_take(keys, places), places, sources, found)
            wanted[places] = False
            wanted[left] = True
    if base is not None:
        places = np.flatnonzero(wanted)
        search(_take(keys, places), places, (base,), found)
    return found.in_order()


def _output(schema: pa.Schema, columns: Sequence[str]) -> pa.Schema:
    if list(columns) == schema.names:
        return schema
    return pa.schema([schema.field(name) for name in columns])


def _take(keys: KeyBatch, places: Places) -> KeyBatch:
    return keys if len(places) == len(keys) else KeyBatch(keys.table.take(pa.array(places)))
