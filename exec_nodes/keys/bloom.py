"""The split-block bloom filter of a flushed generation's primary keys.

Byte-compatible with native's `bloom_filter.bin` (Specification 2, "Flushed MemTable"): blocks of
eight little-endian 32-bit words, as Parquet defines them, over the key hash of `key_hash`. Native
writes 32 KiB whatever the number of rows; ours grow with the rows (protocol rule 2), and native
reads any multiple of a block.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

from exec_nodes.base.errors import CorruptFileError
from exec_nodes.base.lazy import lazy_property
from exec_nodes.keys.hashing import Hashes

BLOCK_BYTES = 32
_WORDS = 8
# Parquet's salts: one multiplier for each word of a block.
_SALTS = (
    0x47B6137B,
    0x44974D91,
    0x8824AD5B,
    0xA2B7289D,
    0x705495C7,
    0x2DF1424B,
    0x9EFC4947,
    0x5C6BFB31,
)
# A split-block filter needs 10.5 bits a key for 1% false hits; 12 allow for uneven blocks.
_BITS_PER_KEY = 12
_LOW = np.uint64(0xFFFFFFFF)


class BloomFilter:
    """Immutable. May say yes of a key that is not there, never no of one that is."""

    def __init__(
        self, data: bytes, path: str = "bloom_filter.bin", checksum: int | None = None
    ) -> None:
        """Wrap the bytes of a file, whose CRC-32 is `checksum` if that is known.

        Raises CorruptFileError naming `path` unless they are that, whole blocks, and know a key:
        a filter that has lost bits hides the newest rows.
        """
        if not data or len(data) % BLOCK_BYTES:
            what = f"{len(data)} bytes, not a whole number of {BLOCK_BYTES}-byte blocks"
        elif not any(data):
            what = "zeros only"
        elif checksum is not None and zlib.crc32(data) != checksum:
            what = "other bytes than were written"
        else:
            what = ""
        if what:
            raise CorruptFileError(
                f"{path} holds {what}: it is truncated or damaged, see table.check(); merge the "
                "generation, which does not need the filter"
            )
        self.data = data
        self._blocks = len(data) // BLOCK_BYTES

    @classmethod
    def build(cls, hashes: Hashes) -> BloomFilter:
        """A filter of these key hashes, sized for at most 1% false hits."""
        blocks = max(1, -(-len(hashes) * _BITS_PER_KEY // (BLOCK_BYTES * 8)))
        bits = np.zeros(blocks * BLOCK_BYTES * 8, np.bool_)
        first, low = _place(hashes, blocks)
        first *= BLOCK_BYTES * 8
        for word, salt in enumerate(_SALTS):
            bits[first + (_bit(low, salt) + 32 * word)] = True
        return cls(np.packbits(bits, bitorder="little").tobytes())

    def check(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """One flag a hash: False only if it was never inserted."""
        first, low = _place(hashes, self._blocks)
        first *= _WORDS
        hit = np.ones(len(hashes), np.bool_)
        for word, salt in enumerate(_SALTS):
            hit &= (self._words[first + word] >> _bit(low, salt).astype(np.uint32) & 1) == 1
        return hit

    def check_one(self, hash_: int) -> bool:
        """`check` of one hash, without numpy's overhead."""
        at = ((hash_ >> 32) * self._blocks >> 32) * BLOCK_BYTES
        low = hash_ & 0xFFFFFFFF
        block = int.from_bytes(self.data[at : at + BLOCK_BYTES], "little")
        for word, salt in enumerate(_SALTS):
            if not block >> (32 * word + ((low * salt & 0xFFFFFFFF) >> 27)) & 1:
                return False
        return True

    @lazy_property
    def _words(self) -> npt.NDArray[np.uint32]:
        return np.frombuffer(self.data, "<u4")


def _place(hashes: Hashes, blocks: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint64]]:
    first = (hashes >> np.uint64(32)) * np.uint64(blocks) >> np.uint64(32)
    return first.astype(np.int64), hashes & _LOW


def _bit(low: npt.NDArray[np.uint64], salt: int) -> npt.NDArray[np.int64]:
    return ((low * np.uint64(salt) & _LOW) >> np.uint64(27)).astype(np.int64)
