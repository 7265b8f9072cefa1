"""The rows of a WAL entry as those of a MemTable, once they are known to be rows of the table.

The stream's own headers are checked where it is read (`storage/wal/arrow_stream`); here the rows
are compared with the table: keys are there and not null, and columns are of a type that Lance may
have made the table's of since.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.casts import same_kind
from exec_nodes.arrow.nested import inner_fields
from memwal_sql.errors import CorruptFileError
from memwal_sql.state.memtable import conform
from memwal_sql.storage.decoding import damaged, decoding
from memwal_sql.storage.wal.entry import TOMBSTONE

# The bytes that a column may grow to where it repeats its values or is all null.
_MOST_BYTES = 2**31


def entry_rows(
    batch: pa.RecordBatch, schema: pa.Schema, primary_key: Sequence[str], path: str
) -> pa.RecordBatch:
    """`batch`, read from the file `path`, in a MemTable's schema (see `conform`).

    Raises CorruptFileError naming the file and the column.
    """
    rows = batch
    if not batch.schema.equals(schema, check_metadata=True):
        _check_columns(batch, schema, primary_key, path)
        with decoding(path, "a WAL entry of this table"):
            rows = conform(batch, schema)
    for name in (*primary_key, TOMBSTONE):
        if rows.column(name).null_count:
            raise _not_ours(path, f"column {name!r} has nulls")
    return rows


def _check_columns(
    batch: pa.RecordBatch, schema: pa.Schema, primary_key: Sequence[str], path: str
) -> None:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    lacking = [name for name in primary_key if name not in columns]
    if lacking:
        raise _not_ours(path, f"it lacks the key columns {lacking}")
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            if batch.num_rows * _width(field.type) > _MOST_BYTES:
                raise _not_ours(
                    path, f"it lacks column {field.name!r}, and has {batch.num_rows} rows"
                )
        elif not column.type.equals(field.type) and not _becomes(column, field.type):
            raise _not_ours(
                path, f"column {field.name!r} is {column.type}, and the table's is {field.type}"
            )


def _becomes(column: pa.Array, kind: pa.DataType) -> bool:
    """Whether a stored column can be cast to a type, in the room that its rows may take."""
    stored = column.type
    if pa.types.is_dictionary(stored):
        values = stored.value_type
        if not same_kind(values, kind) or _repeats(values) or inner_fields(values):
            return False
        try:
            lengths = pc.binary_length(column.dictionary)
        except pa.ArrowNotImplementedError:
            return True  # of a fixed width
        return (pc.sum(lengths.take(column.indices)).as_py() or 0) <= _MOST_BYTES
    return same_kind(stored, kind) and not _repeats(stored)


def _repeats(kind: pa.DataType) -> bool:
    """Whether values of a type may take less room than as many values of another."""
    return (
        pa.types.is_null(kind)
        or pa.types.is_dictionary(kind)
        or pa.types.is_run_end_encoded(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_binary_view(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
        or any(_repeats(field.type) for field in inner_fields(kind))
    )


def _width(kind: pa.DataType) -> int:
    """The bytes of a null in a column of this type."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _width(kind.value_type)
    try:
        return int(-(-kind.bit_width // 8))
    except ValueError:
        return 8  # offsets


def _not_ours(path: str, why: str) -> CorruptFileError:
    return damaged(path, "a WAL entry of this table", why)
