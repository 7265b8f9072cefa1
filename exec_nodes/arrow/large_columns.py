"""Columns that no one array holds: the offsets of Arrow's texts and bytes have 32 bits.

Arrow puts the chunks of a column together before it takes rows of them, and fails beyond 2 GiB.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.base.errors import InvalidCallError
from exec_nodes.base.thresholds import Thresholds


class OneArray(Thresholds):
    """`most_bytes` of a column that is kept as one array; others are left in chunks."""

    most_bytes = 2**31 - 1


def fits_one_array(column: pa.ChunkedArray) -> bool:
    """Whether the chunks of a column may be put together."""
    return bool(column.nbytes <= OneArray.most_bytes)


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of batches of one schema in one. Raises InvalidCallError for more text than an array
    holds."""
    try:
        return pa.concat_batches(batches)
    except pa.ArrowInvalid as error:
        rows = sum(batch.num_rows for batch in batches)
        raise InvalidCallError(
            f"a column of these {rows} rows is larger than 2 GiB, which is more than one batch of "
            f"texts or bytes holds: write or ask for fewer rows at once: {error}"
        ) from error


def taken(rows: pa.Table, places: npt.NDArray[np.integer]) -> pa.Table:
    """The rows at some places, in the order of these."""
    try:
        return rows.take(pa.array(places))
    except pa.ArrowInvalid:
        return taken_by_chunk(rows, places)


def taken_by_chunk(rows: pa.Table, places: npt.NDArray[np.integer]) -> pa.Table:
    """As `taken`, without concatenating chunks: each run of places within one chunk is a chunk of
    the result."""
    batches = rows.to_batches()
    ends = np.cumsum([batch.num_rows for batch in batches], dtype=np.int64)
    at = ends.searchsorted(places, side="right")
    batches_taken = []
    for run in np.split(np.arange(len(places)), np.flatnonzero(np.diff(at)) + 1):
        if len(run):
            number = int(at[run[0]])
            start = int(ends[number]) - batches[number].num_rows
            batches_taken.append(
                batches[number].take(pa.array(places[run].astype(np.int64) - start))
            )
    return pa.Table.from_batches(batches_taken, rows.schema)
