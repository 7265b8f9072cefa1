"""The columns that plans add to a table's own, and conditions over a table's columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

BASE_GENERATION = -1
TOMBSTONE = "_tombstone"
ROW_ADDRESS = "_rowaddr"
SOURCE = "_source"
KEY_POSITION = "_key"
ROW_ADDRESS_FIELD = pa.field(ROW_ADDRESS, pa.uint64(), nullable=False)
TOMBSTONE_FIELD = pa.field(TOMBSTONE, pa.bool_(), nullable=False)
SOURCE_FIELD = pa.field(SOURCE, pa.int32(), nullable=False)
KEY_POSITION_FIELD = pa.field(KEY_POSITION, pa.int64(), nullable=False)
# Of a row address.
ADDRESS_BYTES = 8

RowAddresses = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Filter:
    """One conjunct of a WHERE clause.

    Attributes:
        text: the condition as plans show it, and nothing more.
        evaluate: the condition over a batch in memory; null counts as false. The batch has exactly
            `columns`, in that order.
        columns: the columns the condition reads.
        lance: the condition in the dialect of Lance's own filter; None if Lance can't evaluate it:
            then `evaluate` is run on batches.
    """

    text: str
    evaluate: Callable[[pa.RecordBatch], pa.BooleanArray]
    columns: tuple[str, ...]
    lance: str | None = None
