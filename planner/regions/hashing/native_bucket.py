"""The bucket function of Lance's native code, for tables that native code made.

It is another function than the specification's (protocol rule 12): integers of up to 32 bits are
hashed as 4 bytes, the tail bytes of a string go through a whole round each, NULL is bucket 0, and
the sign bit is cleared instead of taking the absolute value.
"""

from __future__ import annotations

import lance
import pyarrow as pa
from lance.schema import LanceSchema

from exec_nodes.arrow.arrays import flat
from exec_nodes.base.errors import InvalidCallError

_FIELD = {
    "field_id": "bucket",
    "source_ids": [0],
    "transform": "bucket",
    "expression": None,
    "result_type": "int32",
}


def native_bucket(column: pa.Array | pa.ChunkedArray, num_buckets: int) -> pa.Array:
    """The native bucket of every value, as int32 without NULLs."""
    if num_buckets <= 0:
        raise InvalidCallError(f"num_buckets={num_buckets} must be positive")
    array = flat(column)
    if not _is_taken(array.type):
        raise InvalidCallError(f"native code has no bucket for a column of type {array.type}")
    if pa.types.is_null(array.type):
        array = array.cast(pa.int32())
    rows = pa.record_batch({"key": array})
    field = _FIELD | {"parameters": {"num_buckets": str(num_buckets)}}
    spec = {"spec_id": 1, "fields": [field]}
    return lance.evaluate_sharding_spec(rows, spec, LanceSchema.from_pyarrow(rows.schema)).column(0)


def _is_taken(kind: pa.DataType) -> bool:
    is_number = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_moment = pa.types.is_date32(kind) or pa.types.is_time(kind) or pa.types.is_timestamp(kind)
    return is_number or is_text or is_moment or kind in (pa.float32(), pa.float64())
