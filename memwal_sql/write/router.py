"""Which region each row of a batch belongs to (specification 1, "Region Spec")."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from planner.region_spec import RegionSpec
from planner.region_values import RegionValue

RegionValues = Mapping[str, RegionValue]


def route(batch: pa.RecordBatch, spec: RegionSpec) -> Iterator[tuple[RegionValues, pa.RecordBatch]]:
    """The rows of each region, in their order, with the region's values by field id."""
    if batch.num_rows == 0:
        return
    table = pa.Table.from_batches([batch])
    if not spec.source_columns:  # every row has the same values
        yield spec.values_of(spec.evaluate(table.slice(0, 1)))[0], batch
        return
    distinct, region_of_row = spec.assign(table)
    values = spec.values_of(distinct)
    if len(values) == 1:
        yield values[0], batch
        return
    rows = batch.take(pa.array(np.argsort(region_of_row, kind="stable")))
    counts = np.bincount(region_of_row, minlength=len(values))
    ends = np.cumsum(counts)
    for index, of_region in enumerate(values):
        yield of_region, rows.slice(int(ends[index] - counts[index]), int(counts[index]))
