"""Streams of changes: which rows of a batch are upserts and which are deletes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memwal_sql.errors import InvalidCallError

UPSERT, DELETE, BEFORE = 1, 2, 0

# By the words of change data: SQL's, Debezium's, Flink's, Delta's and this project's own.
_CODES: Mapping[str, int] = {
    **dict.fromkeys(("upsert", "insert", "update", "c", "r", "u", "+I", "+U"), UPSERT),
    **dict.fromkeys(("update_after", "update_postimage"), UPSERT),
    **dict.fromkeys(("delete", "d", "-D"), DELETE),
    **dict.fromkeys(("update_before", "update_preimage", "-U"), BEFORE),
}


def operations(rows: pa.Table, op: str) -> npt.NDArray[np.int64]:
    """What each row is, by its column `op`. Raises InvalidCallError naming an unknown word."""
    if op not in rows.column_names:
        raise InvalidCallError(f"op={op!r}: the rows have no such column, but {rows.column_names}")
    words = rows[op].to_pylist()
    unknown = next((at for at, word in enumerate(words) if word not in _CODES), None)
    if unknown is not None:
        raise InvalidCallError(
            f"row {unknown} has {words[unknown]!r} in {op!r}, which is none of {sorted(_CODES)}"
        )
    return np.fromiter((_CODES[word] for word in words), np.int64, len(words))
