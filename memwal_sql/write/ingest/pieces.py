"""Divides the rows of a large call into pieces, so that only a piece is copied at a time.

A call of up to the size of a MemTable is one piece, and a region has all of it or nothing. A larger
call, and a stream, is written piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa

from exec_nodes.arrow.decoded_size import decoded_bytes, is_indirect
from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.arrow.nested import check_levels
from exec_nodes.arrow.row_stream import RowStream
from exec_nodes.arrow.validate import validated
from exec_nodes.base.thresholds import Thresholds
from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.write.ingest.normalise import Rows

Piece = TypeVar("Piece", pa.Table, pa.RecordBatch)


class Pieces(Thresholds):
    """`piece_bytes` is the most that a piece has."""

    piece_bytes = 8 << 20


def normalised(
    rows: Rows,
    normalise: Callable[[Any], pa.RecordBatch],
    whole_bytes: int,
    row_bytes: int = 0,
) -> Iterator[pa.RecordBatch]:
    """The batches that `normalise` makes of the rows: of all at once if they have at most
    `whole_bytes`; otherwise, and for streams, piece by piece.

    All rows in memory are checked before the first piece is yielded, so that they are refused as a
    whole. `row_bytes` is the size of a row if the conversion makes it larger. Raises
    InvalidCallError naming the row.
    """
    parts = _pieces(rows, whole_bytes, row_bytes)
    if not isinstance(rows, RowStream):
        parts = list(parts)
        if len(parts) > 1:
            for _ in normalised_parts(parts, normalise):
                pass
    yield from normalised_parts(parts, normalise)


def normalised_parts(
    parts: Iterable[Any], normalise: Callable[[Any], pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The batch that `normalise` makes of each part. Raises InvalidCallError naming the row."""
    start = 0
    for part in parts:
        with _numbered_from(start):
            batch = normalise(part)
        yield batch
        start += len(part)


def joined(pieces: Iterable[pa.RecordBatch], memtable_bytes: int) -> pa.RecordBatch | None:
    """The rows of a call that must be atomic in one batch; None without any. Raises
    UnsupportedError for more than fit into one MemTable."""
    batches, size = list[pa.RecordBatch](), 0
    for batch in pieces:
        size += batch.nbytes
        if batches and size > memtable_bytes:
            raise UnsupportedError(
                f"the rows of this call do not fit into one MemTable ({memtable_bytes=}): write "
                "them without atomic=True, or fewer"
            )
        batches.append(batch)
    return pa.concat_batches(batches) if batches else None


def one_batch(rows: pa.Table) -> pa.RecordBatch:
    """The rows of a table as one batch."""
    return concatenated([pa.RecordBatch.from_pylist([], rows.schema), *rows.to_batches()])


def _pieces(rows: Rows, whole_bytes: int, row_bytes: int) -> Iterable[pa.Table | pa.RecordBatch]:
    check_levels(rows.schema)
    if isinstance(rows, RowStream):
        return _gathered(rows, row_bytes)
    # The rest is computed only when needed, as it reads offsets, which must be valid.
    small = max(_buffer_bytes(rows), rows.num_rows * row_bytes) <= whole_bytes
    if small and not any(map(is_indirect, rows.schema.types)):
        return [rows]
    rows = _validated(rows)
    if max(rows_bytes(rows), rows.num_rows * row_bytes) <= whole_bytes:
        return [rows]
    return cut(rows, Pieces.piece_bytes, row_bytes)


def cut(rows: Piece, most_bytes: int, row_bytes: int = 0) -> Iterator[Piece]:
    """Slices of at most `most_bytes`, or of one row; a row counts for at least `row_bytes`."""
    size = max(rows_bytes(rows), rows.num_rows * row_bytes)
    if size <= most_bytes or rows.num_rows <= 1:
        yield rows
        return
    step = -(-rows.num_rows // min(-(-size // most_bytes), rows.num_rows))
    for start in range(0, rows.num_rows, step):
        yield from cut(rows.slice(start, step), most_bytes, row_bytes)


def rows_bytes(rows: pa.Table | pa.RecordBatch) -> int:
    """The bytes of validated rows once each has its own values."""
    return sum(map(decoded_bytes, rows.columns))


def _buffer_bytes(rows: pa.Table | pa.RecordBatch) -> int:
    """At least the bytes of the rows; slices have the buffers of the whole. Arrow's own sum counts
    buffers that begin at the same place once, however long they are."""
    chunks = (
        chunk
        for column in rows.columns
        for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])
    )
    return sum(buffer.size for chunk in chunks for buffer in chunk.buffers() if buffer is not None)


def _gathered(stream: RowStream, row_bytes: int) -> Iterator[pa.Table]:
    batches: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in stream.batches:
        with _numbered_from(rows):
            batch = _validated(batch)
        for part in cut(batch, Pieces.piece_bytes, row_bytes):
            more = max(rows_bytes(part), part.num_rows * row_bytes)
            if batches and size + more > Pieces.piece_bytes:
                yield pa.Table.from_batches(batches, stream.schema)
                batches, size = [], 0
            batches.append(part)
            size += more
        rows += batch.num_rows
    if batches or not rows:
        yield pa.Table.from_batches(batches, stream.schema)


def _validated(rows: Piece) -> Piece:
    columns = [validated(c, name) for c, name in zip(rows.columns, rows.schema.names, strict=True)]
    return type(rows).from_arrays(columns, schema=rows.schema)


@contextmanager
def _numbered_from(start: int) -> Iterator[None]:
    """A context in which errors say at which row of the call the row numbers begin."""
    try:
        yield
    except InvalidCallError as error:
        if not start:
            raise
        raise type(error)(f"in the rows from row {start} on, the first is 0: {error}") from error
