"""The rows of a Parquet file in batches of a bounded size.

A dictionary has each value once, and Arrow's reader repeats it in every row: a file of kilobytes
with one long text may ask for gigabytes at once. So the longest value of each dictionary decides
how many rows are read at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from exec_nodes.arrow.arrays import flat
from exec_nodes.arrow.nested import inner_arrays, inner_fields
from exec_nodes.base.thresholds import Thresholds


class ParquetBatches(Thresholds):
    """The rows and the bytes of values from dictionaries that a batch has at most."""

    rows = 1 << 16
    nbytes = 64 << 20


def read_parquet(file: BinaryIO) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns and the batches of a file. Raises Arrow's errors, as the batches do."""
    parquet = pq.ParquetFile(file)

    def batches() -> Iterator[pa.RecordBatch]:
        for group in range(parquet.num_row_groups):
            step = _step(file, parquet.metadata, group)
            yield from parquet.iter_batches(batch_size=step, row_groups=[group])

    return parquet.schema_arrow, batches()


def _step(file: BinaryIO, metadata: pq.FileMetaData, group: int) -> int:
    """How many rows of a row group to read at a time."""
    chunks = metadata.row_group(group)
    columns = [chunks.column(place) for place in range(chunks.num_columns)]
    rows = int(min(ParquetBatches.rows, max(chunks.num_rows, 1)))
    texts = [
        column
        for column in columns
        if column.physical_type == "BYTE_ARRAY" and column.has_dictionary_page
    ]
    # No value is longer than all of them.
    if sum(column.total_uncompressed_size for column in texts) * rows <= ParquetBatches.nbytes:
        return rows
    names = [column.path_in_schema for column in texts]
    values = pq.ParquetFile(file, metadata=metadata, read_dictionary=names, buffer_size=1 << 16)
    first = next(values.iter_batches(batch_size=1, row_groups=[group], columns=names), None)
    if first is None:
        return rows
    longest = sum(map(_longest, first.columns))
    return max(1, min(rows, int(ParquetBatches.nbytes // max(longest, 1))))


def _longest(array: pa.Array) -> int:
    """The bytes of the longest value of the dictionaries in a column, with all of them in a row."""
    if pa.types.is_dictionary(array.type):
        return int(pc.max(pc.binary_length(flat(array.dictionary))).as_py() or 0)
    return sum(map(_longest, inner_arrays(array))) if inner_fields(array.type) else 0
