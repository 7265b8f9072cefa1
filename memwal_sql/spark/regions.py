"""Bringing the rows of a region together before they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import arrow_udf

from memwal_sql.bulk.publish import routing_spec
from memwal_sql.create import open_table
from planner.regions.ids import region_id
from planner.regions.spec import RegionSpec

_REGION = "_memwal_region"
# An id of no table, for hashing values only.
_NOBODY = UUID(int=0)


def repartition_by_region(
    frame: DataFrame,
    uri: str,
    partitions: int | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The same rows, those of a region in one partition.

    A write works without: Spark's data source API can't ask for a shuffle, so each task stages a
    part for every region it has rows of. After this one each region is staged by one task: fewer
    and larger files, and rows of one key never meet from two tasks. It costs a shuffle.

    Args:
        uri: the table that `frame` is going to be written to; it must exist.
        partitions: their number; Spark's own number by default.
    """
    table = open_table(uri, storage_options=dict(storage_options) if storage_options else None)
    spec = routing_spec(table.info)
    columns = [name for name in spec.source_columns if name in frame.columns]
    if not columns:
        return frame.coalesce(1)

    def number(*arrays: pa.Array) -> pa.Array:
        return _numbers(spec, columns, arrays)

    udf = arrow_udf(number, "bigint")  # type: ignore[call-overload]  # its stub lacks this form
    marked = frame.withColumn(_REGION, udf(*[col(f"`{name}`") for name in columns]))
    if partitions is None:
        return marked.repartition(_REGION).drop(_REGION)
    return marked.repartition(partitions, _REGION).drop(_REGION)


def _numbers(spec: RegionSpec, columns: Sequence[str], arrays: Sequence[pa.Array]) -> pa.Array:
    """A number for each row that rows of one region have in common."""
    distinct, index = spec.assign(pa.Table.from_arrays(list(arrays), names=list(columns)))
    values = spec.values_of(distinct)
    numbers = [
        region_id(_NOBODY, spec.spec_id, values_of_region).int & (2**63 - 1)
        for values_of_region in values
    ]
    return pa.array(np.array(numbers, np.int64)[index])
