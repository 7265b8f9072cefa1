"""The details of the MemWAL index: configuration, merge progress and region snapshots.

They are a protobuf message in the index's entry of the base table's manifest, so every version of
the base has its own (specification 1, "Index Details").
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import lance
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from lance.dataset import Index

from exec_nodes.base.threads import beyond_signals
from memwal_sql.errors import UnsupportedError
from memwal_sql.storage.base.commits import base_commit
from memwal_sql.storage.base.manifest import MOVED, OTHER_VERSION, IndexSection, read_index_section
from memwal_sql.storage.base.merge_token import MergeProgress
from memwal_sql.storage.decoding import decoding, whole_number
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.proto_gen import mem_wal_pb2 as pb
from memwal_sql.storage.proto_gen.lance_table_pb2 import AnyIndexDetails, IndexMetadata
from planner.regions.expression import check_size
from planner.regions.spec import check_number_of_fields
from planner.regions.storage import StoredField, StoredSpec

INDEX_NAME = "__lance_mem_wal"
TYPE_URL = "/lance.table.MemWalIndexDetails"
# Operations that leave rows as they are: a compaction first reserves fragment numbers.
_LEAVE_ROWS = ("create_index", "rewrite", "reserve_fragments", MOVED)
# A table has one for each time that its regions were defined again.
_MOST_SPECS = 64


@dataclass(frozen=True, slots=True)
class IndexDetails:
    """The details of the MemWAL index at one version of the base table.

    `merged_generations` and the values of `index_catchup` map regions to generations. `message` is
    what was read, whose unknown fields are kept when the details are committed again;
    `index_uuid` names the entry that a commit replaces, None for a table without one.
    """

    region_specs: tuple[StoredSpec, ...] = ()
    maintained_indexes: tuple[str, ...] = ()
    merged_generations: MergeProgress = field(default_factory=dict)
    index_catchup: Mapping[str, MergeProgress] = field(default_factory=dict)
    snapshot_ts_millis: int = 0
    num_regions: int = 0
    inline_snapshots: bytes | None = field(default=None, repr=False)
    writer_config_defaults: Mapping[str, str] = field(default_factory=dict)
    maintain_all_indexes: bool | None = None
    index_uuid: UUID | None = None
    message: bytes = field(default=b"", compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class FoundDetails:
    """Details as read. Caches are keyed by `etag`, that of the manifest file, or by `rows_tag`,
    which tells the rows of a version: its number can come again with others (protocol rule 16).
    `segments` are the uuids of what the version has of all other indexes, `recipes` what they were
    made by, `operation` is what made the version, `path` and `stamp` are those of its file, and
    for `is_copy` too, see `IndexSection`."""

    details: IndexDetails
    etag: str
    rows_tag: str
    segments: frozenset[str] = frozenset()
    recipes: frozenset[Hashable] = frozenset()
    operation: str | None = None
    path: str = ""
    stamp: Hashable = None
    is_copy: bool = False

    def has_same_rows_as(self, before: FoundDetails) -> bool:
        """Whether readers of this version and of the one right `before` it see the same rows, look
        for them in the same regions, and by the same metrics and analyzers."""
        same_regions = self.details.region_specs == before.details.region_specs
        return same_regions and self.recipes == before.recipes and self.preserves_rows_of(before)

    def preserves_rows_of(self, before: FoundDetails) -> bool:
        """Whether the commit of this version, right after the one `before`, changed no row that
        readers see: it moved generations into the base table, or fragments into others, or was of
        indexes or details."""
        if self.operation == "update":
            progress = before.details.merged_generations
            grown = self.details.merged_generations.items()
            return any(generation > progress.get(shard, 0) for shard, generation in grown)
        return self.operation in _LEAVE_ROWS


def read_details(store: ObjectStore, dataset: Any) -> FoundDetails | None:
    """The details at the version of `dataset`, whose root is `store`'s; None without an index.

    Raises `UnsupportedError` for an index of the older format (specification 3).
    """
    return read_details_at(store, dataset.version)


def read_details_at(store: ObjectStore, version: int) -> FoundDetails | None:
    """The same at a version number. Raises `NotFoundError` when Lance has cleaned it up."""
    return details_in(read_index_section(store, version))


def details_in(section: IndexSection) -> FoundDetails | None:
    """The same of a version whose indexes were read."""
    for index in section.indices:
        if index.name == INDEX_NAME:
            with decoding(section.path, "a manifest with a MemWAL index", OTHER_VERSION):
                index_uuid = _uuid_of(index.uuid)
                others = [other for other in section.indices if other is not index]
                segments = frozenset(str(_uuid_of(other.uuid)) for other in others)
                recipes = frozenset(map(_recipe, others))
            details = decode_details(section.path, index.index_details.value, index_uuid)
            return FoundDetails(
                details,
                section.etag,
                section.rows_tag,
                segments,
                recipes,
                section.operation,
                section.path,
                section.stamp,
                section.is_copy,
            )
    return None


def commit_details(dataset: Any, details: IndexDetails, index_uuid: UUID | None = None) -> Any:
    """Commit `details` as a new version of the base table and return its dataset.

    The entry gets `index_uuid`, under which an external snapshot may have been written, or a new
    one. Lance accepts this over a version that came in between, and so would erase a merge's
    progress: the caller compares the returned version with `dataset.version + 1` (protocol
    rule 19). Raises what `base_commit` raises.
    """
    fresh = _entry(dataset, index_uuid or uuid4(), encode_details(details))
    removed = [] if details.index_uuid is None else [_entry(dataset, details.index_uuid, b"")]
    return _commit(dataset, [fresh], removed)


def drop_index(dataset: Any, index_uuid: UUID) -> Any:
    """Commit a version without the MemWAL index `index_uuid` and return its dataset.

    Raises what `base_commit` raises.
    """
    return _commit(dataset, [], [_entry(dataset, index_uuid, b"")])


def _commit(dataset: Any, new: list[Index], removed: list[Index]) -> Any:
    operation = lance.LanceOperation.CreateIndex(new_indices=new, removed_indices=removed)
    with base_commit(dataset.uri, "the details of the MemWAL index"):
        return lance.LanceDataset.commit(
            dataset, operation, read_version=dataset.version, max_retries=0
        )


def encode_details(details: IndexDetails) -> bytes:
    """The protobuf message, with the unknown fields of `details.message`."""
    message = pb.MemWalIndexDetails.FromString(details.message)
    for name in ("region_specs", "maintained_indexes", "merged_generations", "index_catchup"):
        message.ClearField(name)
    message.region_specs.extend(_spec_message(spec) for spec in details.region_specs)
    message.maintained_indexes.extend(details.maintained_indexes)
    message.merged_generations.extend(_progress_messages(details.merged_generations))
    for name, progress in details.index_catchup.items():
        message.index_catchup.add(
            index_name=name, caught_up_generations=_progress_messages(progress)
        )
    message.snapshot_ts_millis = details.snapshot_ts_millis
    message.num_regions = details.num_regions
    message.ClearField("inline_snapshots")
    if details.inline_snapshots is not None:
        message.inline_snapshots = details.inline_snapshots
    message.writer_config_defaults.clear()
    message.writer_config_defaults.update(details.writer_config_defaults)
    message.ClearField("maintain_all_indexes")
    if details.maintain_all_indexes is not None:
        message.maintain_all_indexes = details.maintain_all_indexes
    encoded: bytes = message.SerializeToString(deterministic=True)
    return encoded


def decode_details(path: str, data: bytes, index_uuid: UUID | None = None) -> IndexDetails:
    """The details of a message. Raises CorruptFileError naming its file, `path`."""
    # Field 1 was a list of messages before it was a timestamp.
    with suppress(DecodeError):
        if pb.OlderMemWalIndexDetails.FromString(data).mem_wal_list:
            raise _older(path)
    with decoding(path, "a manifest with a MemWAL index", OTHER_VERSION):
        return _details(pb.MemWalIndexDetails.FromString(data), data, index_uuid)


def _details(message: pb.MemWalIndexDetails, data: bytes, index_uuid: UUID | None) -> IndexDetails:
    if len(message.region_specs) > _MOST_SPECS:
        raise ValueError(f"it has {len(message.region_specs)} region specs")
    return IndexDetails(
        region_specs=tuple(_spec(spec) for spec in message.region_specs),
        maintained_indexes=tuple(message.maintained_indexes),
        merged_generations=_progress(message.merged_generations),
        index_catchup={
            entry.index_name: _progress(entry.caught_up_generations)
            for entry in message.index_catchup
        },
        snapshot_ts_millis=message.snapshot_ts_millis,
        num_regions=message.num_regions,
        inline_snapshots=message.inline_snapshots if message.HasField("inline_snapshots") else None,
        writer_config_defaults=dict(message.writer_config_defaults),
        maintain_all_indexes=(
            message.maintain_all_indexes if message.HasField("maintain_all_indexes") else None
        ),
        index_uuid=index_uuid,
        message=data,
    )


def _older(path: str) -> UnsupportedError:
    return UnsupportedError(
        f"{path} has a MemWAL index of the older format (mem_wal_list): `memwal info` shows what"
        " is in it, `memwal upgrade` or memwal_sql.upgrade(uri) moves the table to the format of"
        " today"
    )


def _recipe(index: IndexMetadata) -> Hashable:
    """Equal for indexes of one definition, whatever they cover: of the details the fields, as they
    come in any order."""
    details = AnyIndexDetails.FromString(index.index_details.value)
    # Protobuf's library ends the process where what a signal handler raises comes in between.
    fields = beyond_signals(
        lambda: frozenset((field.field_number, field.data) for field in UnknownFieldSet(details))
    )
    return index.name, tuple(index.fields), index.index_details.type_url, fields


def _uuid_of(message: bytes) -> UUID:
    return UUID(bytes=pb.UUID.FromString(message).uuid)


def _entry(dataset: Any, index_uuid: UUID, details: bytes) -> Index:
    return Index(
        uuid=str(index_uuid),
        name=INDEX_NAME,
        fields=[],
        dataset_version=dataset.version,
        fragment_ids=frozenset(),  # type: ignore[arg-type]
        index_version=0,
        index_details=(TYPE_URL, details),
    )


def _spec(message: pb.RegionSpec) -> StoredSpec:
    check_number_of_fields(len(message.fields))
    for entry in message.fields:
        check_size(entry.expression)
    return StoredSpec(
        spec_id=message.spec_id,
        fields=[
            StoredField(
                field_id=entry.field_id,
                source_ids=list(entry.source_ids),
                transform=entry.transform if entry.HasField("transform") else None,
                expression=entry.expression if entry.HasField("expression") else None,
                result_type=entry.result_type,
                parameters=dict(entry.parameters),
            )
            for entry in message.fields
        ],
    )


def _spec_message(spec: StoredSpec) -> pb.RegionSpec:
    return pb.RegionSpec(
        spec_id=spec["spec_id"], fields=[pb.RegionField(**field) for field in spec["fields"]]
    )


def _progress(messages: Iterable[pb.MergedGeneration]) -> dict[UUID, int]:
    return {UUID(bytes=entry.region_id.uuid): whole_number(entry.generation) for entry in messages}


def _progress_messages(progress: MergeProgress) -> list[pb.MergedGeneration]:
    return [
        pb.MergedGeneration(region_id=pb.UUID(uuid=region.bytes), generation=generation)
        for region, generation in progress.items()
    ]
