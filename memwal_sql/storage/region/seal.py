"""The checksum in front of a region manifest.

Protobuf reads half a message as a whole one: cut off between two fields, a manifest would lose its
generations without a word. So ours begin with one more field, the checksum of all that follows it.
Native code skips the field, and drops it when it commits a version of its own: those have none.
"""

from __future__ import annotations

import zlib

from memwal_sql.errors import CorruptFileError

_FIELD = 100_002
_FIXED32 = 5  # protobuf's wire type of four bytes
_BYTES = 4


def seal_manifest(body: bytes) -> bytes:
    """An encoded message with its checksum in front."""
    return _TAG + zlib.crc32(body).to_bytes(_BYTES, "little") + body


def unseal_manifest(path: str, data: bytes) -> tuple[bool, bytes]:
    """Whether `data` has a checksum, and the message without it.

    Raises CorruptFileError naming `path` when the checksum is not that of the message.
    """
    if not data.startswith(_TAG):
        return False, data
    start = len(_TAG) + _BYTES
    if zlib.crc32(data[start:]).to_bytes(_BYTES, "little") != data[len(_TAG) : start]:
        raise CorruptFileError(f"{path} does not have the checksum that it was written with")
    return True, data[start:]


def _varint(value: int) -> bytes:
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


_TAG = _varint(_FIELD << 3 | _FIXED32)
