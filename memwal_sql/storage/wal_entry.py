"""The bytes of a WAL entry: an Arrow IPC stream, as native code reads and writes it.

Schema metadata: `writer_epoch`, and `generation` in entries with rows or `fence_sentinel` in
fences, whose schema is empty (protocol rule 2). Native code refuses rows whose schema has other
metadata, so what is ours is in the metadata of the batch message: the seal with nonce and
checksum, and the id of a staged batch. A fence has no batch and carries its seal in the schema.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from exec_nodes.sources.by_field_id import numbered
from memwal_sql.errors import CorruptFileError
from memwal_sql.storage.entry_seal import SEAL_KEY, blank_seal, check_seal, seal

TOMBSTONE = "_tombstone"
# Only what is larger is known not to be a fence without being read.
LARGEST_FENCE_BYTES = 680

_EPOCH = b"writer_epoch"
_GENERATION = b"generation"
_FENCE = b"fence_sentinel"
_BATCH_ID = b"memwal_sql:batch_id"
_SKIPPED = b"memwal_sql:skipped"  # positions, separated by commas
# Otherwise variables of the environment choose older formats.
_FORMAT = pa.ipc.IpcWriteOptions()


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


def entry_schema(schema: pa.Schema, lance_schema: Any) -> pa.Schema:
    """The schema of a region's entries: the table's columns with the base table's field ids in
    their metadata, at every depth, and `_tombstone` last.

    `lance_schema` is the base table's.
    """
    tombstone = pa.field(TOMBSTONE, pa.bool_(), nullable=False)
    return pa.schema([*numbered(schema, lance_schema), tombstone])


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
    nonce = nonce or new_nonce()
    ours = {SEAL_KEY: blank_seal(nonce)}
    if batch_id is not None:
        ours[_BATCH_ID] = batch_id.encode()
    schema = batch.schema.with_metadata(
        {_EPOCH: b"%d" % writer_epoch, _GENERATION: b"%d" % generation}
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_FORMAT) as writer:
        writer.write_batch(batch, custom_metadata=ours)
    return seal(sink.getvalue(), nonce)


def encode_fence(
    *, writer_epoch: int, nonce: str | None = None, skipped: Sequence[int] = ()
) -> bytes:
    """The bytes of a fence, at most `LARGEST_FENCE_BYTES`; `skipped` as in `WalEntry`.

    Raises CorruptFileError for more skipped positions than fit: one or two follow from crashes,
    16 from a store that tears everything.
    """
    nonce = nonce or new_nonce()
    metadata = {_EPOCH: b"%d" % writer_epoch, _FENCE: b"true", SEAL_KEY: blank_seal(nonce)}
    if skipped:
        metadata[_SKIPPED] = b",".join(b"%d" % position for position in skipped)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([], metadata), options=_FORMAT):
        pass
    data = seal(sink.getvalue(), nonce)
    if len(data) > LARGEST_FENCE_BYTES:
        raise CorruptFileError(f"the WAL entries at {list(skipped)} are all torn")
    return data


def decode_entry(position: int, data: bytes, path: str) -> WalEntry:
    """The entry of a file; its columns point into `data`.

    Raises `TornEntryError` when the file only lacks its end, `CorruptFileError` for any other
    damage, both naming `path`.
    """
    nonce = check_seal(data, path)
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            metadata: dict[bytes, bytes] = dict(reader.schema.metadata or {})
            read = list(_batches(reader))
        schema = reader.schema.remove_metadata()
        epoch = int(metadata[_EPOCH])
        generation = int(metadata[_GENERATION]) if _GENERATION in metadata else None
        skipped = tuple(map(int, filter(None, metadata.get(_SKIPPED, b"").split(b","))))
    except (pa.ArrowException, OSError, KeyError, ValueError) as error:
        raise CorruptFileError(f"{path} is not a WAL entry: {error}") from error
    if generation is None and (_FENCE not in metadata or len(schema)):
        raise CorruptFileError(f"{path} has neither a generation nor is it a fence")
    batches = [batch for batch, _ in read]
    batch_ids = [ours[_BATCH_ID].decode() for _, ours in read if _BATCH_ID in ours]
    return WalEntry(
        position=position,
        writer_epoch=epoch,
        generation=generation,
        batch=None if generation is None else _one_batch(schema, batches),
        nonce=nonce,
        batch_id=batch_ids[0] if batch_ids else None,
        skipped=skipped,
    )


def _batches(
    reader: pa.RecordBatchStreamReader,
) -> Iterator[tuple[pa.RecordBatch, Mapping[bytes, bytes]]]:
    while True:
        try:
            batch, metadata = reader.read_next_batch_with_custom_metadata()
        except StopIteration:
            return
        yield batch, dict(metadata or {})


def _one_batch(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0].replace_schema_metadata(None)
    rows = pa.Table.from_batches([one.replace_schema_metadata(None) for one in batches], schema)
    return pa.RecordBatch.from_struct_array(rows.to_struct_array().combine_chunks())
