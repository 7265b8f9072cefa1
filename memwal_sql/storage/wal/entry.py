"""The bytes of a WAL entry: an Arrow IPC stream, as native code reads and writes it.

Schema metadata: `writer_epoch`, and `generation` in entries with rows or `fence_sentinel` in
fences, whose schema is empty (protocol rule 2). Lance before version 14, which LanceDB 0.40 has,
leaves the generation out: a replay puts such rows into the MemTable that it is filling. Native code
refuses rows whose schema has other metadata, so what is ours is in the metadata of the batch
message: the seal with nonce and checksum, the id of a staged batch, the intent of a transaction,
what became of those before it, within how many seconds its writer flushes it, and whether the
writer stops where another one claims the region. A fence has no batch and carries its seal in the
schema; so does the intent of a region that a transaction only reads, which has the shape of a fence
of the writer's own epoch, as native code takes no entry without rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from exec_nodes.evolution.project import numbered
from memwal_sql.errors import CorruptFileError
from memwal_sql.storage.decoding import decoding, number_of
from memwal_sql.storage.records.intent import (
    Intent,
    Note,
    decode_intent,
    decode_notes,
    encode_intent,
    encode_notes,
)
from memwal_sql.storage.wal.arrow_stream import read_stream
from memwal_sql.storage.wal.checksum import SEAL_KEY, blank_seal, check_seal, seal

TOMBSTONE = "_tombstone"
# Only what is larger is known not to be a fence without being read.
LARGEST_FENCE_BYTES = 680

_EPOCH = b"writer_epoch"
_GENERATION = b"generation"
_FENCE = b"fence_sentinel"
_BATCH_ID = b"memwal_sql:batch_id"
_FLUSHED_WITHIN = b"memwal_sql:flushed_within"  # whole seconds
_KEEPS = b"memwal_sql:keeps_region"
_SKIPPED = b"memwal_sql:skipped"  # positions, separated by commas
_INTENT = b"memwal_sql:txn"
_NOTES = b"memwal_sql:verdicts"
# Otherwise variables of the environment choose older formats.
_FORMAT = pa.ipc.IpcWriteOptions()


@dataclass(frozen=True, slots=True)
class WalEntry:
    """A decoded entry. `batch` is None for a fence, `generation` also for rows of Lance before
    version 14, `nonce` where native code wrote it. `skipped` are the positions of torn entries that
    a fence declares as never acknowledged (protocol rule 9). `flushed_within`: a writer that lives
    flushes it within so many seconds; None: it may keep it for ever. `keeps_region`: it stops where
    another one claims the region, as it takes no turns. `intent`: the transaction that decides
    whether the rows count. `notes`: which intents before it in the log count."""

    position: int
    writer_epoch: int
    generation: int | None
    batch: pa.RecordBatch | None
    nonce: str | None = None
    batch_id: str | None = None
    skipped: tuple[int, ...] = ()
    flushed_within: int | None = None
    keeps_region: bool = False
    intent: Intent | None = None
    notes: tuple[Note, ...] = ()

    @property
    def is_fence(self) -> bool:
        """Whether the entry only marks a claim, or a region that a transaction reads."""
        return self.batch is None


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
    flushed_within: int | None = None,
    keeps_region: bool = False,
    intent: Intent | None = None,
    notes: Sequence[Note] = (),
) -> bytes:
    """The bytes of an entry with the rows of `batch`, whose schema is `entry_schema`'s."""
    nonce = nonce or new_nonce()
    ours = {SEAL_KEY: blank_seal(nonce)}
    if intent is not None:
        ours[_INTENT] = encode_intent(intent)
    if notes:
        ours[_NOTES] = encode_notes(notes)
    if batch_id is not None:
        ours[_BATCH_ID] = batch_id.encode()
    if flushed_within is not None:
        ours[_FLUSHED_WITHIN] = b"%d" % flushed_within
    if keeps_region:
        ours[_KEEPS] = b"true"
    schema = batch.schema.with_metadata(
        {_EPOCH: b"%d" % writer_epoch, _GENERATION: b"%d" % generation}
    )

    def write(sink: pa.NativeFile) -> None:
        with pa.ipc.new_stream(sink, schema, options=_FORMAT) as writer:
            writer.write_batch(batch, custom_metadata=ours)

    # Measured first, as a buffer that grows takes up to twice what it holds.
    size = pa.MockOutputStream()
    write(size)
    stream = pa.allocate_buffer(size.size())
    with pa.FixedSizeBufferWriter(stream) as sink:
        write(sink)
    return seal(stream, nonce)


def encode_fence(
    *,
    writer_epoch: int,
    nonce: str | None = None,
    skipped: Sequence[int] = (),
    intent: Intent | None = None,
    notes: Sequence[Note] = (),
) -> bytes:
    """The bytes of a fence, at most `LARGEST_FENCE_BYTES`, or of an intent without rows, which may
    have `notes`; `skipped` as in `WalEntry`.

    Raises CorruptFileError for more skipped positions than fit: one or two follow from crashes,
    16 from a store that tears everything.
    """
    nonce = nonce or new_nonce()
    metadata = {_EPOCH: b"%d" % writer_epoch, _FENCE: b"true", SEAL_KEY: blank_seal(nonce)}
    if skipped:
        metadata[_SKIPPED] = b",".join(b"%d" % position for position in skipped)
    if intent is not None:
        metadata[_INTENT] = encode_intent(intent)
    if notes:
        metadata[_NOTES] = encode_notes(notes)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema([], metadata), options=_FORMAT):
        pass
    data = seal(sink.getvalue(), nonce)
    if intent is None and len(data) > LARGEST_FENCE_BYTES:
        raise CorruptFileError(f"the WAL entries at {list(skipped)} are all torn")
    return data


def decode_entry(position: int, data: bytes, path: str) -> WalEntry:
    """The entry of a file; its columns point into `data`, and all their values are sound.

    Raises `TornEntryError` when the file only lacks its end, `CorruptFileError` for any other
    damage, both naming `path`.
    """
    nonce = check_seal(data, path)
    with decoding(path, "a WAL entry"):
        stored, batches = read_stream(data)
        metadata: dict[bytes, bytes] = dict(stored.metadata or {})
        epoch = _number(metadata[_EPOCH])
        generation = _number(metadata[_GENERATION]) if _GENERATION in metadata else None
        skipped = tuple(map(_number, filter(None, metadata.get(_SKIPPED, b"").split(b","))))
        schema = stored.remove_metadata()
        is_fence = generation is None and not len(schema)
        if is_fence and _FENCE not in metadata:
            raise ValueError("it has neither rows nor is it a fence")
        if not is_fence and _FENCE in metadata:
            raise ValueError("it is a fence with columns")
        batch_ids = [ours[_BATCH_ID].decode() for _, ours in batches if _BATCH_ID in ours]
        limits = [_number(ours[_FLUSHED_WITHIN]) for _, ours in batches if _FLUSHED_WITHIN in ours]
        rows = [batch for batch, _ in batches]
        both = (metadata, *(ours for _, ours in batches))
        intents = [ours[_INTENT] for ours in both if _INTENT in ours]
        notes = [note for ours in both if _NOTES in ours for note in decode_notes(ours[_NOTES])]
        return WalEntry(
            position=position,
            writer_epoch=epoch,
            generation=generation,
            batch=None if is_fence else _single_batch(schema, rows),
            nonce=nonce,
            batch_id=batch_ids[0] if batch_ids else None,
            skipped=skipped,
            flushed_within=limits[0] if limits else None,
            keeps_region=any(_KEEPS in ours for _, ours in batches),
            intent=decode_intent(intents[0]) if intents else None,
            notes=tuple(notes),
        )


def _number(text: bytes) -> int:
    number = number_of(text.decode())
    if number is None:
        raise ValueError(f"{text!r} is larger than any number of a table")
    return number


def _single_batch(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0].replace_schema_metadata(None)
    rows = pa.Table.from_batches([batch.replace_schema_metadata(None) for batch in batches], schema)
    return pa.RecordBatch.from_struct_array(rows.to_struct_array().combine_chunks())
