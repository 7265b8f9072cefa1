"""Lance's manifests, written again with other indexes or other fields of their message."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from memwal_sql.storage.proto_gen import lance_table_pb2 as pb

Fields = list[tuple[int, int, Any]]
Change = Callable[[Fields], Fields]
VARINT, BYTES = 0, 2  # wire types


def rewrite_indexes(file: Path, change: Callable[[Any], object]) -> None:
    """Let `change` change the IndexSection of a manifest, if it has one."""
    data = file.read_bytes()
    place, *marks = struct.unpack("<QHH4s", data[-16:])
    manifest = pb.TableManifest.FromString(_block(data, place))
    if not manifest.HasField("index_section"):
        return
    section = pb.IndexSection.FromString(_block(data, manifest.index_section))
    change(section)
    manifest.index_section = place
    body = data[:place] + _prefixed(section.SerializeToString())
    whole = body + _prefixed(manifest.SerializeToString())
    file.unlink()  # it may have other links
    file.write_bytes(whole + struct.pack("<QHH4s", len(body), *marks))


def _block(data: bytes, place: int) -> bytes:
    (size,) = struct.unpack("<I", data[place : place + 4])
    return data[place + 4 : place + 4 + size]


def _prefixed(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def _varint(value: int) -> bytes:
    value &= 2**64 - 1
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def encoded(fields: Fields) -> bytes:
    """The message with these fields."""
    parts = []
    for number, wire, value in fields:
        size = _varint(len(value)) if wire == BYTES else b""
        parts.append(_varint(number << 3 | wire) + size + (value if size else _varint(value)))
    return b"".join(parts)


def fields_of(data: bytes) -> Iterator[tuple[int, int, Any]]:
    """The number, the wire type and the value of each field of a message."""
    place = 0

    def number() -> int:
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while place < len(data):
        tag = number()
        value: Any = number()
        if tag & 7 == BYTES:
            value, place = data[place : place + value], place + value
        yield tag >> 3, tag & 7, value


def rewrite(file: Path, change: Change) -> None:
    """Let `change` make other fields of a manifest's message."""
    data = file.read_bytes()
    (place,) = struct.unpack("<Q", data[-16:-8])
    (size,) = struct.unpack("<I", data[place : place + 4])
    message = encoded(change(list(fields_of(data[place + 4 : place + 4 + size]))))
    file.unlink()  # it may have other links
    file.write_bytes(data[:place] + struct.pack("<I", len(message)) + message + data[-16:])
