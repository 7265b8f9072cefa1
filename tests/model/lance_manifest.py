"""Lance's manifests, written again with other indexes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memwal_sql.storage.proto_gen import lance_table_pb2 as pb


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
