"""Checks the headers of an Arrow IPC stream before anything of it is decoded.

Arrow believes a stream: a compressed body of some kilobytes may say that it is gigabytes long, and
that much is allocated to decompress it. Nothing that writes our streams compresses, so such bodies
are refused by their headers, which are flatbuffers: tables that point to their fields. All that is
left is in the bytes that are there, unless types that repeat values without storing them are cast.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

_CONTINUATION = 0xFFFFFFFF
_PREFIX = struct.Struct("<II")  # the mark, and how long the header is
_I32, _U32, _U16, _U8, _I64 = (struct.Struct(f"<{kind}") for kind in "iIHBq")
_BUFFER = struct.Struct("<qq")  # where it is in the body, and its length
# Fields of the tables `Message`, `DictionaryBatch` and `RecordBatch` in the format's Message.fbs.
_KIND, _HEADER, _BODY_LENGTH = 1, 2, 3
_DICTIONARY, _ROWS = 2, 3  # of `_KIND`
_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3


def read_stream(data: bytes) -> tuple[pa.Schema, list[tuple[pa.RecordBatch, dict[bytes, bytes]]]]:
    """The schema of a stream, and its batches with the metadata of each; columns point into `data`.

    Every value has been looked at, as Arrow by itself looks at none: texts, offsets, decimals and
    times are what their type says. Raises ValueError, pa.ArrowInvalid, struct.error and the like
    for a stream that is damaged, or compressed.
    """
    _refuse_compressed(data)
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            schema: pa.Schema = reader.schema
            batches = list(batches_with_metadata(reader))
    except OSError as error:  # the bytes are in memory: they are at fault, and no store
        raise ValueError(str(error)) from error
    if len(set(schema.names)) < len(schema):
        raise ValueError(f"columns have the same name: {sorted(schema.names)}")
    for batch, _ in batches:
        # A column without bytes, such as nulls, can claim any length.
        if batch.num_rows > 8 * len(data):
            raise ValueError(f"{batch.num_rows} rows do not fit into {len(data)} bytes")
        batch.validate(full=True)
        for field, column in zip(schema, batch.columns, strict=True):
            if column.null_count and not field.nullable:
                raise ValueError(f"column {field.name!r} has nulls, and takes none")
    return schema, batches


def batches_with_metadata(
    reader: pa.RecordBatchStreamReader,
) -> Iterator[tuple[pa.RecordBatch, dict[bytes, bytes]]]:
    """The batches of a stream, each with its own metadata."""
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        yield batch, dict(metadata or {})


def _refuse_compressed(data: bytes) -> None:
    start = 0
    while len(data) - start >= _PREFIX.size:
        mark, length = _PREFIX.unpack_from(data, start)
        if mark != _CONTINUATION:
            raise ValueError(f"there is no message at byte {start}")
        if length == 0:
            return  # the end of the stream
        start += _PREFIX.size
        message = start + _U32.unpack_from(data, start)[0]
        if _is_compressed(data, _batch(data, message)):
            raise ValueError("it is compressed, which no writer of these files does")
        body = _field(data, message, _BODY_LENGTH)
        size = _I64.unpack_from(data, body)[0] if body else 0
        if size < 0 or size > len(data):
            raise ValueError(f"a body of {size} bytes in {len(data)}")
        start += length + size


def decompressed_bytes(header: bytes, body: pa.Buffer) -> int:
    """The bytes that the buffers of a message take by what they say; 0 for one without compressed
    ones. Raises ValueError or struct.error for a header that is damaged."""
    batch = _batch(header, _U32.unpack_from(header, 0)[0])
    places = _inner(header, batch, _BUFFERS) if _is_compressed(header, batch) else 0
    if not places:
        return 0
    size = 0
    for number in range(_U32.unpack_from(header, places)[0]):
        offset, length = _BUFFER.unpack_from(header, places + 4 + number * _BUFFER.size)
        if length:  # a compressed buffer begins with its size, or with -1 if it is as it was
            size += max(_I64.unpack_from(body, offset)[0], 0)
    return size


def _batch(data: bytes, message: int) -> int:
    """Where the record batch of a message is; 0 for one without."""
    kind, header = _field(data, message, _KIND), _inner(data, message, _HEADER)
    if not kind or not header:
        return 0
    if data[kind] == _DICTIONARY:
        return _inner(data, header, _DATA)
    return header if data[kind] == _ROWS else 0


def _is_compressed(data: bytes, batch: int) -> bool:
    return bool(batch and _field(data, batch, _COMPRESSION))


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffers table is; 0 where the table does not have it."""
    layout = table - _I32.unpack_from(data, table)[0]
    if layout < 0:
        raise ValueError("a header points out of the file")
    place = 4 + 2 * number
    if place >= _U16.unpack_from(data, layout)[0]:
        return 0
    offset: int = _U16.unpack_from(data, layout + place)[0]
    return table + offset if offset else 0


def _inner(data: bytes, table: int, number: int) -> int:
    """Where the table is that a field points to; 0 where the field is not set."""
    field = _field(data, table, number)
    return field + int(_U32.unpack_from(data, field)[0]) if field else 0
