"""A region's manifest: the source of truth of its state (specification 1, "Region Manifest")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from uuid import UUID

from memwal_sql.storage import paths
from memwal_sql.storage.decoding import decoding, whole_number
from memwal_sql.storage.proto_gen import mem_wal_pb2 as pb
from memwal_sql.storage.records.intent import TransactionName, transaction_name
from memwal_sql.storage.region.seal import seal_manifest, unseal_manifest
from memwal_sql.storage.region.values import Types, decode_values, encode_value
from planner.regions.values import RegionValue

_MOST_TRANSACTIONS = 16

MOST_GENERATIONS = 2**40
"""With the number of a pass a generation fits into 64 bits (`merge_token`)."""


class RegionStatus(IntEnum):
    """Whether a region takes claims."""

    ACTIVE = 0
    SEALED = 1


@dataclass(frozen=True, slots=True)
class FlushedGeneration:
    """A generation in storage: `path` is its folder's name inside the region's folder.

    Sizes are None where native code wrote none; `rows` counts physical rows. `bloom_checksum` is
    the CRC-32 of the bloom filter's file; None where native code has written the manifest.
    """

    generation: int
    path: str
    bytes: int | None = None
    rows: int | None = None
    bloom_checksum: int | None = None


@dataclass(frozen=True, slots=True)
class RegionManifest:
    """One version of a region's manifest. Positions start at 1; 0 means none.

    `region_values` maps a region field's id to its value, a plain Python value, None for NULL; it
    is None as a whole where the manifest has no values or their types are not known, as native
    code may leave it. `flushed_generations` ascend. `published` maps a query's id to the last of
    its batches that is part of the region, the latest query last. `last_transaction` is the highest
    position of a committed intent that is flushed; 0 without one, and where native code has written
    the manifest. `transactions` are the last ones of which flushes have taken rows, the latest
    last: other regions of the table may lack their record. `message` is what was read from storage,
    whose unknown fields are kept by a commit.
    """

    region_id: UUID
    version: int = 1
    writer_epoch: int = 0
    replay_after_wal_entry_position: int = 0
    wal_entry_position_last_seen: int = 0
    current_generation: int = 1
    flushed_generations: tuple[FlushedGeneration, ...] = ()
    region_spec_id: int = 0
    region_values: Mapping[str, RegionValue] | None = None
    status: RegionStatus = RegionStatus.ACTIVE
    published: Mapping[str, int] = field(default_factory=dict)
    last_transaction: int = 0
    transactions: tuple[TransactionName, ...] = ()
    nonce: bytes = field(default=b"", compare=False)
    message: bytes = field(default=b"", compare=False, repr=False)


def encode_manifest(manifest: RegionManifest, value_types: Types) -> bytes:
    """The protobuf message, with the unknown fields of `manifest.message`.

    Region values never change, so those of the message are kept; `value_types` are needed to
    write them down.
    """
    message = pb.RegionManifest.FromString(manifest.message)
    flushed_before = {
        (entry.generation, entry.path): entry for entry in message.flushed_generations
    }
    message.region_id.uuid = manifest.region_id.bytes
    message.version = manifest.version
    message.writer_epoch = manifest.writer_epoch
    message.replay_after_wal_entry_position = manifest.replay_after_wal_entry_position
    message.wal_entry_position_last_seen = manifest.wal_entry_position_last_seen
    message.current_generation = manifest.current_generation
    message.region_spec_id = manifest.region_spec_id
    message.status = pb.RegionStatus.Name(manifest.status)
    message.nonce = manifest.nonce
    message.last_transaction = manifest.last_transaction
    del message.transactions[:]
    for name in manifest.transactions:
        message.transactions.add(id=name[0], attempt=name[1])
    del message.published[:]
    for query_id, batch_id in manifest.published.items():
        message.published.add(query_id=query_id, batch_id=batch_id)
    del message.flushed_generations[:]
    for generation in manifest.flushed_generations:
        entry = message.flushed_generations.add()
        if (old := flushed_before.get((generation.generation, generation.path))) is not None:
            entry.CopyFrom(old)
        entry.generation, entry.path = generation.generation, generation.path
        if generation.bytes is not None:
            entry.in_memory_bytes = generation.bytes
        if generation.rows is not None:
            entry.physical_rows = generation.rows
        if generation.bloom_checksum is not None:
            entry.bloom_checksum = generation.bloom_checksum
    if not message.region_values:
        message.region_values.extend(
            encode_value(field_id, value, value_types.get(field_id))
            for field_id, value in (manifest.region_values or {}).items()
        )
    return seal_manifest(message.SerializeToString(deterministic=True))


def decode_manifest(path: str, data: bytes, value_types: Types) -> RegionManifest:
    """The manifest of a file. Raises `CorruptFileError` naming it."""
    sealed, data = unseal_manifest(path, data)
    with decoding(path, "a region manifest"):
        message = pb.RegionManifest.FromString(data)
        manifest = RegionManifest(
            region_id=UUID(bytes=message.region_id.uuid),
            version=whole_number(message.version, 1),
            writer_epoch=whole_number(message.writer_epoch),
            replay_after_wal_entry_position=whole_number(message.replay_after_wal_entry_position),
            wal_entry_position_last_seen=whole_number(message.wal_entry_position_last_seen),
            current_generation=whole_number(message.current_generation, 0, MOST_GENERATIONS),
            flushed_generations=tuple(
                sorted(
                    (_flushed(entry) for entry in message.flushed_generations),
                    key=lambda generation: generation.generation,
                )
            ),
            region_spec_id=message.region_spec_id,
            region_values=stored_values(message, value_types),
            status=RegionStatus(int(message.status)),
            published={
                batch.query_id: whole_number(batch.batch_id, -1) for batch in message.published
            },
            last_transaction=whole_number(message.last_transaction),
            transactions=tuple(transaction_name(t.id, t.attempt) for t in message.transactions),
            nonce=message.nonce,
            message=data,
        )
        if manifest.version != paths.numbered(path, paths.MANIFEST_SUFFIX):
            raise ValueError(f"it says that it is version {manifest.version}")
        if manifest.nonce and not sealed:
            raise ValueError("it lost its checksum")
    return manifest


def latest_transactions(
    before: Sequence[TransactionName], flushed: Sequence[TransactionName]
) -> tuple[TransactionName, ...]:
    """Those that a manifest names after a flush of some more, the latest last."""
    known = [name for name in flushed if name[1]]  # an id alone may be that of several
    return (*(name for name in before if name not in known), *known)[-_MOST_TRANSACTIONS:]


def stored_values(message: pb.RegionManifest, types: Types) -> Mapping[str, RegionValue] | None:
    """The region values of a message; None where their `types` are not known."""
    entries = {entry.field_id: entry for entry in message.region_values}
    return decode_values(entries, types) or None


def flushed_generation(generation: int, path: str, **details: int | None) -> FlushedGeneration:
    """A generation as it is stored, whose folder has a name that can only be its own.

    Raises ValueError or TypeError.
    """
    if paths.parse_generation_name(path) != whole_number(generation, 1, MOST_GENERATIONS):
        raise ValueError(f"it names {path!r} as the folder of generation {generation}")
    return FlushedGeneration(generation, path, **details)


def _flushed(message: pb.FlushedGeneration) -> FlushedGeneration:
    return flushed_generation(
        message.generation,
        message.path,
        bytes=message.in_memory_bytes if message.HasField("in_memory_bytes") else None,
        rows=message.physical_rows if message.HasField("physical_rows") else None,
        bloom_checksum=message.bloom_checksum if message.HasField("bloom_checksum") else None,
    )
