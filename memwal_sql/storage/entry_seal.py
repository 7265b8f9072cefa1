"""The seal of a WAL entry: nonce, length and checksum (protocol rules 3 and 9).

The seal is a text of fixed width in the entry itself: `{nonce}:{length}:{crc32}`, in hex digits.
The checksum covers all bytes with length and checksum as zeros, which are filled in afterwards, so
rows are serialised once.
"""

from __future__ import annotations

import re
import zlib

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
    """The bytes of an entry that holds a blank seal, with the seal filled in."""
    data = stream.to_pybytes()
    start = data.index(blank_seal(nonce)) + len(nonce) + 1
    digits = b"%016x:%08x" % (len(data), zlib.crc32(data))
    return b"".join((data[:start], digits, data[start + len(digits) :]))


def check_seal(data: bytes, path: str) -> str | None:
    """The nonce of a whole entry; None when it was written without a seal.

    Raises `TornEntryError` when only the end of the entry is missing, and `CorruptFileError` for
    any other damage that can be seen, both naming `path`.
    """
    head_end = _head_end(data, path)
    key = data.find(SEAL_KEY, 0, head_end)
    if key < 0:
        _check_without_seal(data, path)
        return None
    found = _SEAL.search(data, 0, head_end)
    if found is None:
        raise CorruptFileError(f"{path} has a damaged checksum")
    length, crc = int(found[2], 16), int(found[3], 16)
    if len(data) < length and data[-_PREFIX:] != _END_OF_STREAM:
        raise TornEntryError(f"{path} ends after {len(data)} of {length} bytes")
    before = zlib.crc32(_BLANK, zlib.crc32(data[: found.start(2)]))
    if len(data) != length or zlib.crc32(memoryview(data)[found.end(3) :], before) != crc:
        raise CorruptFileError(f"{path} does not have the checksum that it was written with")
    return found[1].decode()


def _head_end(data: bytes, path: str) -> int:
    """Where the rows begin: a seal is in the schema or in the header of the first batch."""
    schema_end = _message_end(data, 0)
    if data[: len(_CONTINUATION)] != _CONTINUATION[: len(data)]:
        raise CorruptFileError(f"{path} is not an Arrow stream")
    if len(data) < schema_end:
        raise TornEntryError(f"{path} ends within its schema, after {len(data)} bytes")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data[:schema_end]))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(f"{path} is not an Arrow stream: {error}") from error
    if any(pa.types.is_dictionary(field.type) for field in schema):
        return len(data)  # dictionaries come before the first batch
    return min(_message_end(data, schema_end), len(data))


def _message_end(data: bytes, start: int) -> int:
    length = data[start + 4 : start + _PREFIX]
    return start + _PREFIX + (int.from_bytes(length, "little") if len(length) == 4 else 0)


def _check_without_seal(data: bytes, path: str) -> None:
    if data[-_PREFIX:] == _END_OF_STREAM:
        return
    # With nothing but the end of the stream wrong the file is damaged, not cut off.
    try:
        with pa.ipc.open_stream(pa.py_buffer(data[:-_PREFIX] + _END_OF_STREAM)) as reader:
            reader.read_all()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise TornEntryError(f"{path} ends after {len(data)} bytes: {error}") from error
    raise CorruptFileError(f"{path} has a damaged end of stream")
