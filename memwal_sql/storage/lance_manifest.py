"""The part of a Lance table manifest file that says which indexes a version has.

A manifest file ends with the position of its manifest message (u64), two format numbers (u16) and
the magic `LANC`; the message names the position of the index section. Both are protobuf behind a
u32 length, little endian.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from memwal_sql.errors import CorruptFileError, NotFoundError
from memwal_sql.storage.object_store import ObjectStore
from memwal_sql.storage.paths import base_manifest_path, base_manifest_path_v1
from memwal_sql.storage.proto_gen import lance_table_pb2 as pb

# The manifests of most tables fit: they are then read in one request.
TAIL_BYTES = 256 * 1024
_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"


@dataclass(frozen=True, slots=True)
class IndexSection:
    """The indexes of a table version, a tag that no other manifest shares, and one that all
    versions with the same columns and rows share: an index changes neither.

    `timestamp` is when the version was committed, in seconds since 1970, by its committer's clock.
    """

    path: str
    etag: str
    rows_tag: str
    indices: tuple[pb.IndexMetadata, ...]
    timestamp: float


def read_index_section(store: ObjectStore, version: int) -> IndexSection:
    """Read the indexes of a version of the table that `store` is the root of.

    Raises `NotFoundError` when the version is not there, `CorruptFileError` for a damaged file.
    """
    path, tail, size = _read_tail(store, version)
    try:
        position, _, _, magic = _FOOTER.unpack(tail[-_FOOTER.size :])
        if magic != _MAGIC:
            raise ValueError("it does not end with LANC")
        file = _Bytes(store, path, tail, size)
        manifest = pb.TableManifest.FromString(file.message_at(position))
        indices: tuple[pb.IndexMetadata, ...] = ()
        if manifest.HasField("index_section"):
            section = file.message_at(manifest.index_section)
            indices = tuple(pb.IndexSection.FromString(section).indices)
    except (struct.error, ValueError, DecodeError) as error:
        raise CorruptFileError(f"{path} is not a Lance manifest: {error}") from error
    etag = _etag_of(tail, size)
    written = manifest.timestamp
    rows_tag = _tag_of([*manifest.fields, b"", *manifest.fragments])
    timestamp = written.seconds + written.nanos / 1e9
    return IndexSection(path, etag, rows_tag, indices, timestamp)


def read_etag(store: ObjectStore, version: int) -> str | None:
    """The `etag` of a version; None where it is not there."""
    try:
        _, tail, size = _read_tail(store, version)
    except NotFoundError:
        return None
    return _etag_of(tail, size)


def _read_tail(store: ObjectStore, version: int) -> tuple[str, bytes, int]:
    """A version's path, the end of its manifest file, and the file's size."""
    path = base_manifest_path(version)
    try:
        return path, *store.get_tail(path, TAIL_BYTES)
    except NotFoundError:
        path = base_manifest_path_v1(version)
        return path, *store.get_tail(path, TAIL_BYTES)


def _etag_of(tail: bytes, size: int) -> str:
    # Timestamp, transaction and length make the end of a manifest its own.
    return hashlib.blake2b(tail + size.to_bytes(8, "little"), digest_size=16).hexdigest()


def _tag_of(messages: Iterable[bytes]) -> str:
    """A digest of messages; files of rows are never written anew under their names."""
    digest = hashlib.blake2b(digest_size=16)
    for message in messages:
        digest.update(_LENGTH.pack(len(message)))
        digest.update(message)
    return digest.hexdigest()


class _Bytes:
    """A file whose end is in memory and whose start may have to be read."""

    def __init__(self, store: ObjectStore, path: str, tail: bytes, size: int) -> None:
        self._store = store
        self._path = path
        self._tail = tail
        self._size = size

    def message_at(self, position: int) -> bytes:
        (length,) = _LENGTH.unpack(self._read(position, position + _LENGTH.size))
        start = position + _LENGTH.size
        return self._read(start, start + length)

    def _read(self, start: int, end: int) -> bytes:
        if end > self._size:
            raise ValueError(f"it has {self._size} bytes, {end} are needed")
        tail_start = self._size - len(self._tail)
        if start >= tail_start:
            return self._tail[start - tail_start : end - tail_start]
        return self._store.get_range(self._path, start, end)
