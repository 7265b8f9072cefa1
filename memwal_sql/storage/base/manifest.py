"""The parts of a Lance table manifest file that say which indexes a version has, and by what it was
made.

A manifest file ends with the position of its manifest message (u64), two format numbers (u16) and
the magic `LANC`; the message names the positions of the index section and of the transaction. All
are protobuf behind a u32 length, little endian.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Hashable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from memwal_sql.errors import NotFoundError
from memwal_sql.storage.decoding import LAST_SECOND, decoding, whole_number
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.paths import base_manifest_path, base_manifest_path_v1
from memwal_sql.storage.proto_gen import lance_table_pb2 as pb

OTHER_VERSION = "go back to a version that is whole, or restore the file from a copy"
"""What to do about a manifest that is damaged."""

# The manifests of most tables fit: they are then read in one request.
TAIL_BYTES = 256 * 1024
# Most messages fit: they are read in one request together with their lengths.
_MESSAGE_BYTES = 64 * 1024
_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"
_NO_PARENT = -1
_LAST_FRAGMENT = 2**32 - 1  # its number is one half of a row address

CLONE = "clone"
"""The operation that makes the first version of a clone or a branch."""

MOVED = "memwal_sql:moved"
"""The property of a commit that moves rows of generations into the base table, which Lance's name
of the operation does not say."""


@dataclass(frozen=True, slots=True)
class IndexSection:
    """The indexes of a table version, a tag that no other manifest shares, and one that all
    versions with the same columns and rows share: an index changes neither. `stamp` is the store's
    of the file that was read.

    `operation` is what made the version, as `Transaction` in `lance_table.proto` calls it, or
    `MOVED`; None for others and where the manifest does not say. `timestamp` is when it was
    committed, in seconds since 1970, by its committer's clock. `is_copy`: Lance has made it as a
    clone or a branch of another table, as far as the version says so.
    """

    path: str
    etag: str
    rows_tag: str
    indices: tuple[pb.IndexMetadata, ...]
    operation: str | None
    timestamp: float
    stamp: Hashable
    is_copy: bool


def read_index_section(store: ObjectStore, version: int) -> IndexSection:
    """Read the indexes of a version of the table that `store` is the root of.

    Raises `NotFoundError` when the version is not there, `CorruptFileError` for a damaged file.
    """
    file = _read_file(store, version)
    with file.decoding():
        manifest = file.manifest()
        _check_fields(manifest.fields)
        _check_fragments(manifest.fragments)
        indices: tuple[pb.IndexMetadata, ...] = ()
        if manifest.HasField("index_section"):
            section = file.message_at(manifest.index_section)
            indices = tuple(pb.IndexSection.FromString(section).indices)
        operation = None
        if manifest.HasField("transaction_section"):
            section = file.message_at(manifest.transaction_section)
            transaction = pb.Transaction.FromString(section)
            operation = transaction.WhichOneof("operation")
            if MOVED in transaction.transaction_properties:
                operation = MOVED
        written = manifest.timestamp
        whole_number(written.seconds, 0, LAST_SECOND)
    is_copy = operation == CLONE or any(base.is_dataset_root for base in manifest.base_paths)
    rows_tag = _tag_of([*manifest.fields, b"", *manifest.fragments])
    timestamp = written.seconds + written.nanos / 1e9
    return IndexSection(
        file.path, file.etag, rows_tag, indices, operation, timestamp, file.stamp, is_copy
    )


def read_fragment_ids(store: ObjectStore, version: int) -> frozenset[int]:
    """The numbers of a version's fragments. Raises as `read_index_section`."""
    file = _read_file(store, version)
    with file.decoding():
        return frozenset(
            pb.Fragment.FromString(fragment).id for fragment in file.manifest().fragments
        )


def read_writer(store: ObjectStore, folder: str, version: int) -> tuple[str, str]:
    """The library that wrote a version of the table in `folder`, and the library's own version.

    Raises as `read_index_section`.
    """
    file = _read_file(store, version, f"{folder}/")
    with file.decoding():
        writer = file.manifest().writer_version
    return writer.library, writer.version


def _check_fields(fields: Iterable[bytes]) -> None:
    """Raise ValueError for fields that no schema has: Lance opens a table with them, and each read
    of it has another error, or none."""
    ids, names = {_NO_PARENT}, set[tuple[int, str]]()
    for data in fields:
        field = pb.SchemaField.FromString(data)
        if field.id in ids or field.id < 0 or field.parent_id not in ids:
            raise ValueError(f"its field {field.id} is there twice, or has no parent")
        if not field.name or (field.parent_id, field.name) in names:
            raise ValueError(f"two of its fields have the name {field.name!r}, or one has none")
        ids.add(field.id)
        names.add((field.parent_id, field.name))


def _check_fragments(fragments: Iterable[bytes]) -> None:
    """Raise ValueError for fragments that no table has."""
    ids = set[int]()
    for data in fragments:
        fragment = pb.Fragment.FromString(data)
        if fragment.id in ids or fragment.id > _LAST_FRAGMENT or not fragment.files:
            raise ValueError(f"its fragment {fragment.id} is there twice, or has no files")
        ids.add(fragment.id)


def read_etag(store: ObjectStore, version: int) -> str | None:
    """The `etag` of a version; None where it is not there."""
    return read_tags(store, version)[0]


def read_tags(store: ObjectStore, version: int) -> tuple[str | None, Hashable]:
    """The `etag` of a version and the `stamp` of its file; None where it is not there."""
    try:
        file = _read_file(store, version)
    except NotFoundError:
        return None, None
    return file.etag, file.stamp


def _read_file(store: ObjectStore, version: int, folder: str = "") -> _ManifestFile:
    path = folder + base_manifest_path(version)
    try:
        return _ManifestFile(store, path, *store.get_tail(path, TAIL_BYTES))
    except NotFoundError:
        path = folder + base_manifest_path_v1(version)
        return _ManifestFile(store, path, *store.get_tail(path, TAIL_BYTES))


def _tag_of(messages: Iterable[bytes]) -> str:
    """A digest of messages; files of rows are never rewritten under their names."""
    digest = hashlib.blake2b(digest_size=16)
    for message in messages:
        digest.update(_LENGTH.pack(len(message)))
        digest.update(message)
    return digest.hexdigest()


class _ManifestFile:
    """A manifest whose end is in memory and whose start may have to be read."""

    def __init__(
        self, store: ObjectStore, path: str, tail: bytes, size: int, stamp: Hashable
    ) -> None:
        self.path = path
        self.stamp = stamp
        self._store = store
        self._tail = tail
        self._size = size

    @property
    def etag(self) -> str:
        """Timestamp, transaction and length make the end of a manifest its own."""
        data = self._tail + self._size.to_bytes(8, "little")
        return hashlib.blake2b(data, digest_size=16).hexdigest()

    def decoding(self) -> AbstractContextManager[None]:
        """Raise CorruptFileError for bytes that do not decode."""
        return decoding(self.path, "a Lance manifest", OTHER_VERSION)

    def manifest(self) -> pb.TableManifest:
        position, _, _, magic = _FOOTER.unpack(self._tail[-_FOOTER.size :])
        if magic != _MAGIC:
            raise ValueError("it does not end with LANC")
        manifest: pb.TableManifest = pb.TableManifest.FromString(self.message_at(position))
        return manifest

    def message_at(self, position: int) -> bytes:
        start = position + _LENGTH.size
        read = max(start, min(start + _MESSAGE_BYTES, self._size))
        data = self._read(position, read)
        (length,) = _LENGTH.unpack(data[: _LENGTH.size])
        if start + length > read:
            data += self._read(read, start + length)
        return data[_LENGTH.size : _LENGTH.size + length]

    def _read(self, start: int, end: int) -> bytes:
        if end > self._size:
            raise ValueError(f"it has {self._size} bytes, {end} are needed")
        tail_start = self._size - len(self._tail)
        if start >= tail_start:
            return self._tail[start - tail_start : end - tail_start]
        return self._store.get_range(self.path, start, end)
