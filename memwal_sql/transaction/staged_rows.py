"""The rows that a transaction has staged in one table: a MemTable a region, in front of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import cast
from uuid import UUID

import pyarrow as pa

from exec_nodes.arrow.large_columns import concatenated
from memwal_sql.errors import UnsupportedError
from memwal_sql.state.memtable import MemTable
from memwal_sql.storage.region.manifest import MOST_GENERATIONS
from memwal_sql.write.router import RegionKey, RoutedRows, Router, active_spec
from planner.model import RegionSources, TableInfo
from planner.regions.ids import new_region_id
from planner.regions.values import region_name

_NEWEST = MOST_GENERATIONS - 1


class StagedRows:
    """Rows by region. Later rows of a key replace earlier ones."""

    def __init__(self, info: TableInfo, incarnation: UUID) -> None:
        """Raises UnsupportedError for a table with manual regions."""
        spec = active_spec(info)
        if spec is None:
            raise UnsupportedError(
                "a transaction can't write a table with manual regions, as a row does not say its "
                "region"
            )
        self._info = info
        self._incarnation = incarnation
        self._spec = spec
        self._router = Router(spec)
        self._regions: dict[RegionKey, tuple[RoutedRows, MemTable]] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Stage rows in the MemTables' schema."""
        for part in self._router.route(batch):
            if part.key not in self._regions:
                region = new_region_id(self._incarnation, self._spec, part.values)
                name = region_name(region, part.values)
                info = self._info
                memtable = MemTable(name, _NEWEST, info.schema, info.primary_key)
                self._regions[part.key] = part, memtable
            self._regions[part.key][1].append(part.rows)

    def forget(self) -> None:
        """Forget all rows."""
        self._regions = {}

    def rows(self) -> pa.RecordBatch | None:
        """The newest row of every key, tombstones included; None without any."""
        batches = [
            batch
            for _, memtable in self._regions.values()
            for batch in memtable.newest_rows().to_batches()
        ]
        return concatenated(batches) if batches else None

    def in_front_of(self, regions: Sequence[RegionSources]) -> tuple[RegionSources, ...]:
        """The regions of a snapshot with the staged rows in front of their sources."""
        staged = dict(self._regions)
        result = []
        for region in regions:
            own = None
            if region.spec_id == self._spec.spec_id and region.values is not None:
                own = staged.pop(cast(RegionKey, tuple(region.values.values())), None)
            if own is not None:
                region = replace(region, sources=(own[1].snapshot(), *region.sources))
            result.append(region)
        for part, memtable in staged.values():
            region_id = new_region_id(self._incarnation, self._spec, part.values)
            name, sources = region_name(region_id, part.values), (memtable.snapshot(),)
            spec_id = self._spec.spec_id
            result.append(RegionSources(region_id, name, spec_id, part.values, sources))
        return tuple(result)
