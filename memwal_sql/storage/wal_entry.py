"""The bytes of a WAL entry: an Arrow IPC stream, as native code reads and writes it.

Schema metadata of every entry: `writer_epoch`, and `generation` in entries with rows or
`fence_sentinel` in fences, whose schema is empty (protocol rule 2). Ours adds a nonce (rule 3),
a checksum over all bytes (rule 9) and, for staged batches, `memwal_sql:batch_id`; native readers
pass over these.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from memwal_sql.errors import CorruptFileError, TornEntryError

TOMBSTONE = "_tombstone"
FIELD_ID_KEY = b"lance:field_id"

_EPOCH = b"writer_epoch"
_GENERATION = b"generation"
_FENCE = b"fence_sentinel"
_BATCH_ID = b"memwal_sql:batch_id"
_SKIPPED = b"memwal_sql:skipped"  # positions, separated by commas
_CHECKSUM = b"memwal_sql:checksum"  # "{nonce}:{bytes of the entry, hex}:{crc32 of them, hex}"
_BLANK = b"0" * 16 + b":" + b"0" * 8
_CONTINUATION = b"\xff\xff\xff\xff"
_END_OF_STREAM = _CONTINUATION + b"\0\0\0\0"
_PREFIX = 8  # bytes of the continuation marker and the length before every message


@dataclass(frozen=True, slots=True)
class WalEntry:
    """A decoded entry. `generation` and `batch` are None for a fence, `nonce` where native code
    wrote it. `skipped` are the positions of torn entries that a fence declares as never
    acknowledged (protocol rule 9)."""

    position: int
    writer_epoch: int
    generation: int | None
    batch: pa.RecordBatch | None
    nonce: str | None = None
    batch_id: str | None = None
    skipped: tuple[int, ...] = ()

    @property
    def is_fence(self) -> bool:
        """Whether the entry only marks a claim."""
        return self.generation is None


def entry_schema(schema: pa.Schema, field_ids: Mapping[str, int]) -> pa.Schema:
    """The schema of a region's entries: the table's columns with the base table's field ids in
    their metadata, and `_tombstone` last.

    `field_ids` maps the names of top-level columns to Lance field ids.
    """
    fields = [
        field.with_metadata({**(field.metadata or {}), FIELD_ID_KEY: b"%d" % field_ids[field.name]})
        for field in schema
    ]
    return pa.schema([*fields, pa.field(TOMBSTONE, pa.bool_(), nullable=False)])


def new_nonce() -> str:
    """32 random hex digits."""
    return os.urandom(16).hex()


def encode_entry(
    batch: pa.RecordBatch,
    *,
    writer_epoch: int,
    generation: int,
    nonce: str | None = None,
    batch_id: str | None = None,
) -> bytes:
    """The bytes of an entry with the rows of `batch`, whose schema is `entry_schema`'s."""
    metadata = {_EPOCH: b"%d" % writer_epoch, _GENERATION: b"%d" % generation}
    if batch_id is not None:
        metadata[_BATCH_ID] = batch_id.encode()
    return _encode(batch.schema, [batch], metadata, nonce or new_nonce())


def encode_fence(
    *, writer_epoch: int, nonce: str | None = None, skipped: Sequence[int] = ()
) -> bytes:
    """The bytes of a fence; `skipped` as in `WalEntry`."""
    metadata = {_EPOCH: b"%d" % writer_epoch, _FENCE: b"true"}
    if skipped:
        metadata[_SKIPPED] = b",".join(b"%d" % position for position in skipped)
    return _encode(pa.schema([]), [], metadata, nonce or new_nonce())


def decode_entry(position: int, data: bytes, path: str) -> WalEntry:
    """The entry of a file; its columns point into `data`.

    Raises `TornEntryError` when the file only lacks its end, `CorruptFileError` for any other
    damage, both naming `path`.
    """
    _check_end(data, path)
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            metadata: dict[bytes, bytes] = dict(reader.schema.metadata or {})
            batches = list(reader)
        schema = reader.schema.remove_metadata()
        epoch = int(metadata[_EPOCH])
        generation = int(metadata[_GENERATION]) if _GENERATION in metadata else None
        skipped = tuple(map(int, filter(None, metadata.get(_SKIPPED, b"").split(b","))))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise CorruptFileError(f"{path} is not a WAL entry: {error}") from error
    if generation is None and (_FENCE not in metadata or len(schema)):
        raise CorruptFileError(f"{path} has neither a generation nor is it a fence")
    checksum = metadata.get(_CHECKSUM, b"").partition(b":")[0].decode()
    batch_id = metadata.get(_BATCH_ID)
    return WalEntry(
        position=position,
        writer_epoch=epoch,
        generation=generation,
        batch=None if generation is None else _one_batch(schema, batches),
        nonce=checksum or None,
        batch_id=None if batch_id is None else batch_id.decode(),
        skipped=skipped,
    )


def _encode(
    schema: pa.Schema, batches: list[pa.RecordBatch], metadata: dict[bytes, bytes], nonce: str
) -> bytes:
    # The checksum covers the whole stream with its own digits blank; their fixed width lets them
    # be filled in afterwards, so rows are serialised once.
    mark = nonce.encode() + b":"
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(
        sink, schema.with_metadata({**metadata, _CHECKSUM: mark + _BLANK})
    ) as writer:
        for batch in batches:
            writer.write_batch(batch)
    stream = memoryview(sink.getvalue())
    start = bytes(stream[: _schema_end(stream)]).index(mark + _BLANK) + len(mark)
    digits = b"%016x:%08x" % (len(stream), zlib.crc32(stream))
    return b"".join((stream[:start], digits, stream[start + len(digits) :]))


def _check_end(data: bytes, path: str) -> None:
    """Raise unless the entry is whole; where it has a checksum, also unless that is right."""
    if len(data) < _PREFIX or len(data) < _schema_end(data):
        if not _CONTINUATION.startswith(data[: len(_CONTINUATION)]):
            raise CorruptFileError(f"{path} is not an Arrow stream")
        raise TornEntryError(f"{path} ends within its schema, after {len(data)} bytes")
    head = bytes(data[: _schema_end(data)])
    try:
        metadata = pa.ipc.read_schema(pa.py_buffer(head)).metadata or {}
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(f"{path} is not an Arrow stream: {error}") from error
    checksum: bytes | None = metadata.get(_CHECKSUM)
    if checksum is None:
        _check_end_without_checksum(data, path)
        return
    parts = checksum.split(b":")
    try:
        length, crc = int(parts[1], 16), int(parts[2], 16)
    except (IndexError, ValueError):
        raise CorruptFileError(f"{path} has a damaged checksum {checksum!r}") from None
    if len(data) < length and data[-_PREFIX:] != _END_OF_STREAM:
        raise TornEntryError(f"{path} ends after {len(data)} of {length} bytes")
    start = head.index(checksum) + len(parts[0]) + 1
    end = start + len(_BLANK)
    found = zlib.crc32(memoryview(data)[end:], zlib.crc32(_BLANK, zlib.crc32(data[:start])))
    if len(data) != length or found != crc:
        raise CorruptFileError(f"{path} does not have the checksum that it was written with")


def _check_end_without_checksum(data: bytes, path: str) -> None:
    if data[-_PREFIX:] == _END_OF_STREAM:
        return
    # With nothing but the end of the stream wrong the file is damaged, not cut off.
    try:
        with pa.ipc.open_stream(pa.py_buffer(data[:-_PREFIX] + _END_OF_STREAM)) as reader:
            reader.read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TornEntryError(f"{path} ends after {len(data)} bytes: {error}") from error
    raise CorruptFileError(f"{path} has a damaged end of stream")


def _schema_end(data: bytes | memoryview) -> int:
    """Where the first message of a stream ends."""
    return _PREFIX + int.from_bytes(data[4:_PREFIX], "little")


def _one_batch(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0].replace_schema_metadata(None)
    return pa.concat_batches([pa.record_batch(schema.empty_table().columns, schema), *batches])
