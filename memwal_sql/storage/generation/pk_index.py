"""The primary key btree of a flushed generation, `_pk_index/`.

Native readers probe it to see whether a generation replaces a row; it is next to the Lance indexes
of the generation and in no manifest. A single-column key is indexed by its value, a composite one
by a binary form whose order is that of the tuples. Two Lance files: `page_data.lance` has the keys
in order with their row positions, `page_lookup.lance` the least and the greatest key of each page.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileWriter

PAGE_ROWS = 8192

_METADATA = {b"batch_size": str(PAGE_ROWS).encode(), b"range_partitioned": b"false"}
_NOT_NULL = b"\x01"
_END = b"\x00\x00"
_ESCAPED_ZERO = b"\x00\xff"


def write_pk_index(
    folder_uri: str,
    table: pa.Table,
    primary_key: Sequence[str],
    *,
    version: str,
    storage_options: dict[str, str] | None = None,
) -> None:
    """Write the index over the rows of `table`, whose keys are not null, into a folder.

    `version` is the format of the base table's data files. Nothing is written for a composite key
    with a type that native code has no binary form for, as it can't read such a table at all.
    """
    keys = _index_keys(table, primary_key)
    if keys is None:
        return
    order = pc.sort_indices(keys)
    values = keys.take(order)
    data = pa.table(
        {"values": values, "ids": order.cast(pa.uint64())},
        schema=pa.schema(
            [pa.field("values", values.type), pa.field("ids", pa.uint64(), nullable=False)]
        ),
    )
    starts = np.arange(0, len(values), PAGE_ROWS)
    ends = np.minimum(starts + PAGE_ROWS, len(values)) - 1
    lookup = pa.table(
        {
            "min": values.take(pa.array(starts)),
            "max": values.take(pa.array(ends)),
            "null_count": pa.array(np.zeros(len(starts), np.uint32)),
            "page_idx": pa.array(np.arange(len(starts), dtype=np.uint32)),
        },
        schema=pa.schema(
            [
                pa.field("min", values.type),
                pa.field("max", values.type),
                pa.field("null_count", pa.uint32(), nullable=False),
                pa.field("page_idx", pa.uint32(), nullable=False),
            ],
            _METADATA,
        ),
    )
    for name, content in (("page_data", data), ("page_lookup", lookup)):
        with LanceFileWriter(
            f"{folder_uri}/{name}.lance",
            content.schema,
            version=version,
            storage_options=storage_options,
        ) as writer:
            writer.write_batch(content)


def _index_keys(table: pa.Table, primary_key: Sequence[str]) -> pa.Array | None:
    columns = [table[name].combine_chunks() for name in primary_key]
    if len(columns) == 1:
        return columns[0]
    encoded = [_encode(column) for column in columns]
    if any(column is None for column in encoded):
        return None
    return pc.binary_join_element_wise(*encoded, b"")


def _encode(column: pa.Array) -> pa.Array | None:
    """The binary form of one column: a tag, then big-endian integers or terminated bytes."""
    data_type = column.type
    if pa.types.is_date(data_type):  # days or milliseconds, as they are stored
        column = column.cast(pa.int32() if pa.types.is_date32(data_type) else pa.int64())
        data_type = column.type
    if pa.types.is_boolean(data_type):
        return _fixed(np.asarray(column.cast(pa.uint8()))[:, np.newaxis])
    if pa.types.is_unsigned_integer(data_type):
        return _fixed(_big_endian(np.asarray(column).astype(np.uint64)))
    if pa.types.is_signed_integer(data_type):
        numbers = np.asarray(column).astype(np.int64).view(np.uint64)
        return _fixed(_big_endian(numbers ^ np.uint64(1 << 63)))
    if (
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    ):
        escaped = pc.replace_substring(column.cast(pa.binary()), b"\x00", _ESCAPED_ZERO)
        return pc.binary_join_element_wise(_NOT_NULL, escaped, _END, b"")
    return None


def _big_endian(numbers: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> np.ndarray:
    return numbers.astype(">u8").view(np.uint8).reshape(-1, 8)


def _fixed(octets: np.ndarray) -> pa.Array:
    width = octets.shape[1] + 1
    tagged = np.full((len(octets), width), _NOT_NULL[0], np.uint8)
    tagged[:, 1:] = octets
    fixed = pa.Array.from_buffers(pa.binary(width), len(tagged), [None, pa.py_buffer(tagged)])
    return fixed.cast(pa.binary())
