"""The columns that plans add to a table's own, and conditions over a table's columns.

Search nodes hand narrow rows on until the output columns of the best are fetched: `_rowaddr`
(uint64) and `_source` (int32, the source's ordinal in the plan) say where a row is, `_distance` or
`_score` (float32) how good it is, and `_query` (int32), where a search has a batch of queries, for
which of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import memwal_native
from exec_nodes.base.errors import InvalidCallError

BASE_GENERATION = -1
TOMBSTONE = "_tombstone"
ROW_ADDRESS = "_rowaddr"
SOURCE = "_source"
_TOO_DEEP, _PLANNING = "nested too deeply", "Error during planning: "
KEY_POSITION = "_key"
ROW_ADDRESS_FIELD = pa.field(ROW_ADDRESS, pa.uint64(), nullable=False)
TOMBSTONE_FIELD = pa.field(TOMBSTONE, pa.bool_(), nullable=False)
SOURCE_FIELD = pa.field(SOURCE, pa.int32(), nullable=False)
KEY_POSITION_FIELD = pa.field(KEY_POSITION, pa.int64(), nullable=False)
# The type of a row address.
ADDRESS_BYTES = 8

RowAddresses = npt.NDArray[np.uint64]

DISTANCE = "_distance"
SCORE = "_score"
QUERY = "_query"
DISTANCE_FIELD = pa.field(DISTANCE, pa.float32(), nullable=False)
SCORE_FIELD = pa.field(SCORE, pa.float32(), nullable=False)
QUERY_FIELD = pa.field(QUERY, pa.int32(), nullable=False)
# Lance's name for the column in results.
QUERY_INDEX_FIELD = pa.field("query_index", pa.int32(), nullable=False)

DISTANCE_ROWS = pa.schema([ROW_ADDRESS_FIELD, SOURCE_FIELD, DISTANCE_FIELD])
SCORE_ROWS = pa.schema([ROW_ADDRESS_FIELD, SOURCE_FIELD, SCORE_FIELD])
BATCH_DISTANCE_ROWS = DISTANCE_ROWS.append(QUERY_FIELD)


def columns_read(output: Iterable[str], filters: Iterable[Filter]) -> list[str]:
    """The output columns, then others that the filters read."""
    return list(dict.fromkeys([*output, *(n for condition in filters for n in condition.columns)]))


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
        rows: finds, by an index, the sorted addresses of the rows of a source
            (`exec_nodes.sources.source`) that meet the condition; None without an index.
        native: DataFusion's filter, where `evaluate` does what it says.
    """

    text: str
    evaluate: Callable[[pa.RecordBatch], pa.BooleanArray]
    columns: tuple[str, ...]
    lance: str | None = None
    rows: Callable[[Any], RowAddresses] | None = field(default=None, kw_only=True)
    native: memwal_native.Predicate | None = field(default=None, kw_only=True)

    def met_in(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """`evaluate` over a batch that has more columns. Raises InvalidCallError for a condition of
        too many operators in a row."""
        try:
            return self.evaluate(batch.select(self.columns))
        except RuntimeError as error:
            if _TOO_DEEP not in str(error):
                raise
            raise InvalidCallError(str(error).removeprefix(_PLANNING)) from error
