"""The seal of a WAL entry: nonce, length and checksum (protocol rules 3 and 9).

The seal is a text of fixed width in the entry itself: `{nonce}:{length}:{crc32}`, in hex digits.
The checksum covers all bytes with length and checksum as zeros, which are filled in afterwards, so
rows are serialised once.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

import pyarrow as pa

from memwal_sql.errors import CorruptFileError, TornEntryError

SEAL_KEY = b"memwal_sql:entry"

_BLANK = b"0" * 16 + b":" + b"0" * 8
_SEAL = re.compile(rb"([0-9a-f]{32}):([0-9a-f]{16}):([0-9a-f]{8})")
_CONTINUATION = b"\xff\xff\xff\xff"
_END_OF_STREAM = _CONTINUATION + b"\0\0\0\0"
_PREFIX = 8  # bytes of the continuation marker and the length before every message


def blank_seal(nonce: str) -> bytes:
    """The seal to be written into an entry that `seal` will get; `nonce` has 32 hex digits."""
    return nonce.encode() + b":" + _BLANK


def seal(stream: pa.Buffer, nonce: str) -> bytes:
    """The bytes of an entry that holds a blank seal, with the seal filled in: the one copy."""
    whole = memoryview(stream)
    start = _place(whole, blank_seal(nonce)) + len(nonce) + 1
    digits = b"%016x:%08x" % (len(whole), zlib.crc32(whole))
    return b"".join((whole[:start], digits, whole[start + len(digits) :]))


def _place(whole: memoryview, text: bytes) -> int:
    """Where `text` begins, which is in front of the rows as a rule: little is copied to look."""
    end = 1 << 16
    while (place := bytes(whole[:end]).find(text)) < 0 and end < len(whole):
        end *= 16
    if place < 0:
        raise ValueError("there is no seal to fill in")
    return place


def check_seal(data: bytes, path: str) -> str | None:
    """The nonce of a whole entry; None when it was written without a seal.

    Raises `TornEntryError` when only the end of the entry is missing, and `CorruptFileError` for
    any other damage that can be seen, both naming `path`. Without a seal nothing but the missing
    end-of-stream marker can be seen.
    """
    start, end = _head(data, path)
    seal = _SEAL.search(data, start, end) or _SEAL.search(data, 0, start)
    if seal is None:
        if data.find(SEAL_KEY, 0, end) >= 0:
            raise CorruptFileError(f"{path} has a damaged checksum")
        if data[-_PREFIX:] != _END_OF_STREAM:
            raise TornEntryError(f"{path} ends after {len(data)} bytes")
        return None
    length, crc = int(seal[2], 16), int(seal[3], 16)
    if len(data) < length and data[-_PREFIX:] != _END_OF_STREAM:
        raise TornEntryError(f"{path} ends after {len(data)} of {length} bytes")
    before = zlib.crc32(_BLANK, zlib.crc32(data[: seal.start(2)]))
    if len(data) != length or zlib.crc32(memoryview(data)[seal.end(3) :], before) != crc:
        raise CorruptFileError(f"{path} does not have the checksum that it was written with")
    return seal[1].decode()


def _head(data: bytes, path: str) -> tuple[int, int]:
    """Where to look for a seal: from here to there, in front of the rows."""
    schema_end = _message_end(data, 0, path)
    try:
        dictionaries = _has_dictionaries(data[:schema_end])
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(f"{path} is not an Arrow stream: {error}") from error
    if dictionaries:
        return 0, len(data)  # they come before the first batch
    if data.find(SEAL_KEY, 0, schema_end) >= 0:
        return 0, schema_end  # a fence
    return schema_end, _message_end(data, schema_end, path)


@lru_cache(maxsize=64)
def _has_dictionaries(schema: bytes) -> bool:
    # The entries of one writer have the same schema, and reading it takes longer than the rest.
    return any(pa.types.is_dictionary(f.type) for f in pa.ipc.read_schema(pa.py_buffer(schema)))


def _message_end(data: bytes, start: int, path: str) -> int:
    """Where the header of the message at `start` ends."""
    prefix = data[start : start + _PREFIX]
    end = start + _PREFIX + int.from_bytes(prefix[4:], "little")
    whole = data[-_PREFIX:] == _END_OF_STREAM
    if prefix[:4] != _CONTINUATION[: len(prefix)] or (len(data) < end and whole):
        raise CorruptFileError(f"{path} is not an Arrow stream")
    if len(prefix) < _PREFIX or len(data) < end:
        raise TornEntryError(f"{path} ends within a header, after {len(data)} bytes")
    return end
