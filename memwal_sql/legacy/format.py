"""The MemWAL index of the older format: a list of MemWALs with their states (specification 3).

Tables that have it are recognised and can be upgraded (`memwal_sql.legacy.upgrade`), not read:
the place and the contents of their WAL entries were left to their writers.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt

from memwal_sql.storage.base.manifest import read_index_section
from memwal_sql.storage.base.memwal_index import INDEX_NAME
from memwal_sql.storage.decoding import decoding
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.proto_gen import mem_wal_pb2
from memwal_sql.storage.proto_gen import older_mem_wal_pb2 as pb

Ids = npt.NDArray[np.uint64]


class OlderState(IntEnum):
    """Where the rows of a MemWAL are: up to `FLUSHED` not in the base table."""

    OPEN = 0
    SEALED = 1
    FLUSHED = 2
    MERGED = 3


@dataclass(frozen=True, slots=True)
class OlderMemWal:
    """One generation of a region.

    Attributes:
        wal_ranges: the ids of its WAL entries, which count from 0, as ascending pairs of the first
            and the last id of a run.
        owner_id: its writer's.
        last_updated_dataset_version: the base version that changed it last.
    """

    region: str
    generation: int
    state: OlderState
    mem_table_location: str
    wal_location: str
    wal_ranges: tuple[tuple[int, int], ...]
    owner_id: str
    last_updated_dataset_version: int

    @property
    def entries(self) -> int:
        """How many WAL entries it has."""
        return sum(last - first + 1 for first, last in self.wal_ranges)

    @property
    def is_lost_without_its_wal(self) -> bool:
        """Whether its rows are stored only in its WAL."""
        return self.state is not OlderState.MERGED and bool(self.wal_ranges)

    def __str__(self) -> str:
        runs = ", ".join(f"{a} to {b}" if b > a else str(a) for a, b in self.wal_ranges)
        return (
            f"region {self.region!r} generation {self.generation} ({self.state.name.lower()}): WAL "
            f"entries {runs or 'none'} at {self.wal_location!r}"
        )


@dataclass(frozen=True, slots=True)
class OlderIndex:
    """The index of a table version: its entry's id, and its message."""

    index_uuid: UUID
    message: bytes


def read_older_index(store: ObjectStore, dataset: Any) -> OlderIndex | None:
    """The index at the version of `dataset` if it is of the older format, else None."""
    section = read_index_section(store, dataset.version)
    for index in section.indices:
        if index.name == INDEX_NAME and index.index_details.value:
            message = index.index_details.value
            if decode_older(message, section.path):
                entry = mem_wal_pb2.UUID.FromString(index.uuid)
                return OlderIndex(UUID(bytes=entry.uuid), message)
    return None


def decode_older(message: bytes, path: str) -> list[OlderMemWal]:
    """The MemWALs of a message, by region and ascending generation; none where it is of another
    format. Raises `CorruptFileError` naming `path`."""
    with decoding(path, "a list of MemWALs"):
        listed = pb.MemWalList.FromString(message).mem_wal_list
        mem_wals = [_mem_wal(mem_wal) for mem_wal in listed]
    return sorted(mem_wals, key=lambda mem_wal: (mem_wal.region, mem_wal.generation))


def _mem_wal(message: pb.MemWal) -> OlderMemWal:
    return OlderMemWal(
        region=message.id.region,
        generation=message.id.generation,
        state=OlderState(int(message.state)),
        mem_table_location=message.mem_table_location,
        wal_location=message.wal_location,
        wal_ranges=_runs(pb.EntryIds.FromString(message.wal_entries)),
        owner_id=message.owner_id,
        last_updated_dataset_version=message.last_updated_dataset_version,
    )


def _runs(segment: pb.EntryIds) -> tuple[tuple[int, int], ...]:
    """Ids as pairs of first and last."""
    kind = segment.WhichOneof("segment")
    if kind is None:
        return ()
    if kind == "range":
        start, end = segment.range.start, segment.range.end
        return ((start, end - 1),) if end > start else ()
    if kind == "range_with_holes":
        holed = segment.range_with_holes
        return _without(holed.start, holed.end, np.unique(_decoded(holed.holes)))
    ids = np.unique(_ids(segment, kind))
    if not len(ids):
        return ()
    gaps = np.flatnonzero(np.diff(ids) > 1)
    firsts = ids[np.concatenate([[0], gaps + 1])]
    lasts = ids[np.concatenate([gaps, [len(ids) - 1]])]
    return tuple(zip(firsts.tolist(), lasts.tolist(), strict=True))


def _without(start: int, end: int, holes: Ids) -> tuple[tuple[int, int], ...]:
    """The runs from `start` up to `end`, exclusive, without holes; few bytes may say any range."""
    inside = [hole for hole in holes.tolist() if start <= hole < end]
    firsts, lasts = [start, *(hole + 1 for hole in inside)], [*(h - 1 for h in inside), end - 1]
    return tuple((a, b) for a, b in zip(firsts, lasts, strict=True) if a <= b)


def _ids(segment: pb.EntryIds, kind: str) -> Ids:
    if kind == "range_with_bitmap":
        mapped = segment.range_with_bitmap
        bits = np.unpackbits(np.frombuffer(mapped.bitmap, np.uint8), bitorder="little")
        if len(bits) < mapped.end - mapped.start:
            raise ValueError(
                f"a bitmap of {len(bits)} bits for the entries {mapped.start} to {mapped.end}"
            )
        ids = np.arange(mapped.start, max(mapped.start, mapped.end), dtype=np.uint64)
        return ids[bits[: len(ids)].astype(np.bool_)]
    return _decoded(segment.sorted_array if kind == "sorted_array" else segment.array)


def _decoded(array: pb.EncodedIds) -> Ids:
    match array.WhichOneof("array"):
        case "u16_array":
            offsets = np.frombuffer(array.u16_array.offsets, "<u2").astype(np.uint64)
            return offsets + np.uint64(array.u16_array.base)
        case "u32_array":
            offsets = np.frombuffer(array.u32_array.offsets, "<u4").astype(np.uint64)
            return offsets + np.uint64(array.u32_array.base)
        case "u64_array":
            return np.frombuffer(array.u64_array.values, "<u8").astype(np.uint64)
        case _:
            return np.empty(0, np.uint64)
