"""Divides the rows of a batch by their regions (specification 1, "Region Spec")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_sql.errors import InvalidCallError
from planner.model import TableInfo
from planner.regions.spec import RegionSpec
from planner.regions.values import RegionValue

_LARGE_BYTES = 1 << 20

RegionValues = Mapping[str, RegionValue]
RegionKey = tuple[RegionValue, ...]


@dataclass(frozen=True, slots=True)
class RoutedRows:
    """The rows of one region, and the region's values by field id and as a key."""

    key: RegionKey
    values: RegionValues
    rows: pa.RecordBatch


class Router:
    """Divides batches by a region spec."""

    def __init__(self, spec: RegionSpec) -> None:
        self._spec = spec
        self._only: tuple[RegionKey, RegionValues] | None = None
        if not spec.source_columns:  # every row has the same values
            values = spec.values_of(spec.evaluate(pa.table({"row": [0]})))[0]
            self._only = tuple(values.values()), values

    def route(self, batch: pa.RecordBatch) -> list[RoutedRows]:
        """The rows of each region, in their order."""
        if batch.num_rows == 0:
            return []
        if self._only is not None:
            return [RoutedRows(*self._only, batch)]
        distinct, region_of_row = self._spec.assign(pa.Table.from_batches([batch]))
        regions = self._spec.values_of(distinct)
        if len(regions) == 1:
            return [RoutedRows(tuple(regions[0].values()), regions[0], batch)]
        order = np.argsort(region_of_row, kind="stable")
        ends = np.cumsum(np.bincount(region_of_row, minlength=len(regions)))[:-1]
        return [
            RoutedRows(tuple(values.values()), values, rows)
            for values, rows in zip(regions, _divided(batch, order, ends), strict=True)
        ]

    def regions(self, keys: pa.Table) -> list[RegionKey]:
        """The region of every key."""
        if self._only is not None or not keys.num_rows:
            return [self._only[0] if self._only else ()] * keys.num_rows
        distinct, region_of_row = self._spec.assign(keys)
        regions = [tuple(values.values()) for values in self._spec.values_of(distinct)]
        return [regions[place] for place in region_of_row.tolist()]


def _divided(
    batch: pa.RecordBatch, order: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
) -> list[pa.RecordBatch]:
    """The rows in an order, cut at `ends`. Rows of a large batch get memory of their own, so that
    it is freed once their region is flushed, whatever other regions do."""
    if batch.nbytes >= _LARGE_BYTES:
        return [batch.take(pa.array(places)) for places in np.split(order, ends)]
    rows = batch.take(pa.array(order))
    starts = [0, *ends.tolist()]
    return [rows.slice(s, e - s) for s, e in pairwise([*starts, len(order)])]


def active_spec(info: TableInfo) -> RegionSpec | None:
    """The spec that rows are routed by: the newest; None for manual regions.

    Raises InvalidCallError for a spec of native code over columns outside of the key (protocol rule
    10).
    """
    specs = [spec for spec in info.region_specs if not spec.is_manual]
    if not specs:
        return None
    spec = max(specs, key=lambda spec: spec.spec_id)
    if not spec.reads_only(info.primary_key):
        raise InvalidCallError(
            f"the table's regions are divided by the columns {list(spec.source_columns)}, which "
            f"are not all part of the primary key {list(info.primary_key)}: one key could be in "
            "two regions, and an old row come back. This package reads and merges such a "
            "table, but does not write it"
        )
    return spec
