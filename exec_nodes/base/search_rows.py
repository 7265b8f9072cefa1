"""The narrow rows that search nodes hand on until the output columns of the best are fetched.

`_rowaddr` (uint64) and `_source` (int32, the source's ordinal in the plan) say where a row is,
`_distance` or `_score` (float32) how good it is, and `_query` (int32), where a search has a batch
of queries, for which of them.
"""

from __future__ import annotations

import pyarrow as pa

from exec_nodes.base.columns import ROW_ADDRESS_FIELD, SOURCE_FIELD

DISTANCE = "_distance"
SCORE = "_score"
QUERY = "_query"
DISTANCE_FIELD = pa.field(DISTANCE, pa.float32(), nullable=False)
SCORE_FIELD = pa.field(SCORE, pa.float32(), nullable=False)
QUERY_FIELD = pa.field(QUERY, pa.int32(), nullable=False)
# As Lance calls it in results.
QUERY_INDEX_FIELD = pa.field("query_index", pa.int32(), nullable=False)

DISTANCE_ROWS = pa.schema([ROW_ADDRESS_FIELD, SOURCE_FIELD, DISTANCE_FIELD])
SCORE_ROWS = pa.schema([ROW_ADDRESS_FIELD, SOURCE_FIELD, SCORE_FIELD])
BATCH_DISTANCE_ROWS = DISTANCE_ROWS.append(QUERY_FIELD)
