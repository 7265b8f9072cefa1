"""Bringing the rows of a region together before they are written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.functions import col
from pyspark.sql.pandas.functions import arrow_udf

from memwal_sql.bulk.key_runs import HASHES, short_hashes
from memwal_sql.bulk.publish import routing_spec
from memwal_sql.create import open_table
from memwal_sql.errors import InvalidCallError
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
    *,
    parts: int = 1,
) -> DataFrame:
    """The same rows, those of a region in one partition, or in `parts` of them by key.

    A write works without: Spark's data source API can't ask for a shuffle, so each task stages a
    part for every region it has rows of. After this one each region is staged by one task: fewer
    and larger files, and rows of one key never meet from two tasks. It costs a shuffle.

    Args:
        uri: the table that `frame` is going to be written to; it must exist.
        partitions: their number; Spark's own number by default.
        parts: into how many the rows of a region are divided, up to 4,096, so that a region of many
            rows is not one task's. Parts have no key in common.
    """
    check_parts(parts)
    table = open_table(uri, storage_options=dict(storage_options) if storage_options else None)
    spec = routing_spec(table.info)
    read = spec.source_columns if parts == 1 else table.primary_key
    columns = [name for name in read if name in frame.columns]
    if not columns:
        return frame.coalesce(1)
    kinds = [table.schema.field(name).type for name in columns]

    def number(*arrays: pa.Array) -> pa.Array:
        numbers = _numbers(spec, columns, arrays)
        return pa.array(numbers if parts == 1 else numbers + _parts(arrays, kinds, parts))

    udf = arrow_udf(number, "bigint")  # type: ignore[call-overload]  # its stub lacks this form
    marked = frame.withColumn(_REGION, udf(*[col(f"`{name}`") for name in columns]))
    if partitions is None:
        return marked.repartition(_REGION).drop(_REGION)
    return marked.repartition(partitions, _REGION).drop(_REGION)


def check_parts(parts: int) -> None:
    """Raise InvalidCallError for a number of parts that regions can't be divided into."""
    if not 1 <= parts <= HASHES:
        raise InvalidCallError(f"parts={parts} must be from 1 to {HASHES:,}")


def _parts(
    arrays: Sequence[pa.Array], kinds: Sequence[pa.DataType], parts: int
) -> npt.NDArray[np.int64]:
    """The part of each row, by the hash of its key."""
    if any(array.null_count for array in arrays):  # the write refuses such a row, and says where
        return np.zeros(len(arrays[0]), np.int64)
    exact = [array.cast(kind) for array, kind in zip(arrays, kinds, strict=True)]
    return short_hashes(exact) * parts // HASHES


def _numbers(
    spec: RegionSpec, columns: Sequence[str], arrays: Sequence[pa.Array]
) -> npt.NDArray[np.int64]:
    """A number for each row that rows of one region have in common."""
    distinct, index = spec.assign(pa.Table.from_arrays(list(arrays), names=list(columns)))
    values = spec.values_of(distinct)
    numbers = [
        region_id(_NOBODY, spec.spec_id, values_of_region).int & (2**62 - 1)
        for values_of_region in values
    ]
    return np.array(numbers, np.int64)[index]
