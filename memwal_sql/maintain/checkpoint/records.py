"""Named checkpoints as they are stored: put-if-absent records in our own folder (protocol rule 1).

A checkpoint is a pinned snapshot with a name and, if asked for, an end: the base version, which
a tag of Lance keeps from being cleaned up, the state of every region, and how far its WAL had been
written (document 4 keeps its snapshots with the last WAL entry seen, too). Every record of a name
has a higher number; the last one says whether the name is in use.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

from memwal_sql.errors import InvalidCallError, NotFoundError
from memwal_sql.maintain.retention import GenerationName, Holds
from memwal_sql.read.pinned import PinnedRegion, PinnedSnapshot
from memwal_sql.storage.decoding import LAST_SECOND, decoding, whole_number
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.paths import RECORD_FOLDER
from memwal_sql.storage.records.table import Record, Records
from memwal_sql.storage.region.snapshot_file import decode_regions, encode_regions
from planner.regions.spec import RegionSpec

_FOLDER = "checkpoints"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_REMEDY = "restore it from a copy, or drop the checkpoint: move its folder away"
_TAG_PREFIX = "memwal_sql.checkpoint."


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, or that its name is free again.

    Attributes:
        number: of its record; the tag carries it too.
        version: the base version that it holds.
        created: when it was made, in seconds since 1970; for a dropped one when it was dropped.
        expires: until when it holds its files; None for ever.
        regions: the region states, as a region snapshot whose `wal_entry_position_last_seen` is
            the last WAL position that belongs to the checkpoint.
    """

    name: str
    number: int
    version: int
    created: float
    expires: float | None
    regions: bytes
    dropped: bool = False

    @property
    def tag(self) -> str:
        """The name of the Lance tag on its base version."""
        return f"{_TAG_PREFIX}{self.name}.{self.number}"

    def is_live(self, now: float) -> bool:
        """Whether it holds its files at a time."""
        return not self.dropped and (self.expires is None or now < self.expires)

    def snapshot(self, specs: Sequence[RegionSpec] = ()) -> PinnedSnapshot:
        """Its snapshot; regions have values where `specs` has their spec."""
        path = f"the checkpoint {self.name!r}"
        manifests = decode_regions(self.regions, specs, path, _REMEDY)
        regions = (
            PinnedRegion(manifest, manifest.wal_entry_position_last_seen + 1)
            for manifest in manifests
        )
        return PinnedSnapshot(self.version, tuple(regions))


def encode_snapshot(pinned: PinnedSnapshot, specs: Sequence[RegionSpec]) -> bytes:
    """The region states of a pinned snapshot, as `Checkpoint.regions` has them."""
    seen = [
        replace(region.manifest, wal_entry_position_last_seen=region.wal_end - 1)
        for region in pinned.regions
    ]
    return encode_regions(seen, specs)


def check_name(name: str) -> None:
    """Raise InvalidCallError unless `name` can be that of a checkpoint."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidCallError(
            f"{name!r} can't name a checkpoint: use up to 100 letters, digits, dots, dashes and "
            "underscores, beginning with a letter or a digit"
        )


def is_checkpoint_tag(tag: str) -> bool:
    """Whether a tag of the base table belongs to a checkpoint."""
    return tag.startswith(_TAG_PREFIX)


def records_of(store: ObjectStore, name: str) -> Records:
    """The records of one name."""
    return Records(store, f"{_FOLDER}/{name}")


def write(store: ObjectStore, checkpoint: Checkpoint) -> bool:
    """Put a checkpoint's record; False when its number is taken."""
    content: dict[str, Any] = {"created": checkpoint.created}
    if checkpoint.dropped:
        content["dropped"] = True
    else:
        content |= {
            "base_version": checkpoint.version,
            "expires": checkpoint.expires,
            "regions": base64.b64encode(checkpoint.regions).decode(),
        }
    return records_of(store, checkpoint.name).put(checkpoint.number, content) is None


def find(store: ObjectStore, name: str) -> Checkpoint | None:
    """The latest record of a name; None when it has none."""
    records = records_of(store, name)
    while True:
        with suppress(NotFoundError):  # collected after it was listed
            record = records.latest()
            return None if record is None else _decode(records.path(record.version), name, record)


def checkpoint_names(store: ObjectStore) -> list[str]:
    """The names that have records, in order."""
    listed = (meta.path.split("/") for meta in store.list(f"{RECORD_FOLDER}/{_FOLDER}"))
    return sorted({parts[2] for parts in listed if len(parts) == 4 and _NAME.fullmatch(parts[2])})


def all_checkpoints(store: ObjectStore) -> list[Checkpoint]:
    """The latest record of every name, by name; expired and dropped ones too."""
    checkpoints = map_remote(store.remote, partial(find, store), checkpoint_names(store))
    return [checkpoint for checkpoint in checkpoints if checkpoint is not None]


def retained_by_checkpoints(checkpoints: Iterable[Checkpoint], now: float) -> Holds:
    """The generations and WAL entries that checkpoints need at a time."""
    generations: set[GenerationName] = set()
    wal: dict[UUID, tuple[tuple[int, int], ...]] = {}
    for checkpoint in checkpoints:
        if not checkpoint.is_live(now):
            continue
        for region in checkpoint.snapshot().regions:
            manifest = region.manifest
            region_id = manifest.region_id
            generations.update(
                (region_id, generation.path) for generation in manifest.flushed_generations
            )
            first = manifest.replay_after_wal_entry_position + 1
            if first < region.wal_end:
                wal[region_id] = (*wal.get(region_id, ()), (first, region.wal_end - 1))
    return Holds(frozenset(generations), wal)


def _decode(path: str, name: str, record: Record) -> Checkpoint:
    content = record.content
    with decoding(path, "the record of a checkpoint", _REMEDY):
        dropped = bool(content.get("dropped", False))
        expires = content.get("expires")
        return Checkpoint(
            name=name,
            number=record.version,
            version=0 if dropped else whole_number(content["base_version"], 1),
            created=_seconds(content["created"]),
            expires=None if expires is None else _seconds(expires),
            regions=b"" if dropped else base64.b64decode(content["regions"], validate=True),
            dropped=dropped,
        )


def _seconds(value: object) -> float:
    """A time of a calendar; infinities and NaN are refused."""
    if not isinstance(value, int | float) or not 0 <= value <= LAST_SECOND:
        raise ValueError(f"{value!r} is not a time")
    return float(value)
