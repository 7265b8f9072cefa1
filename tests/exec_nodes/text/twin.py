"""The kernels of `native/src/text` in numpy, as the oracle of their tests, and Lance's packing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exec_nodes.postings.bm25 import token_scores
from exec_nodes.postings.protocol import Documents, Frequencies, Lengths, Live
from memwal_native import Postings

BLOCK = 128
_LANES = 4


def packed(documents: Documents, frequencies: Frequencies) -> tuple[np.ndarray, np.ndarray]:
    """A posting list as Lance's index format 2 has it: bytes, and the offsets of its blocks."""
    blocks = []
    for start in range(0, len(documents), BLOCK):
        held, often = documents[start : start + BLOCK], frequencies[start : start + BLOCK]
        if len(held) == BLOCK:
            steps = np.diff(held, prepend=held[:1])
            first = int(held[0]).to_bytes(4, "little")
            blocks.append(bytes(4) + first + _bits(steps) + _bits(often))
        else:
            steps = np.diff(held, prepend=0)
            numbers = [*steps.tolist(), *often.tolist()]
            blocks.append(bytes(4) + b"".join(map(_varint, numbers)))
    offsets = np.cumsum([0, *map(len, blocks)], dtype=np.int64)
    return np.frombuffer(b"".join(blocks), np.uint8), offsets


def _bits(numbers: np.ndarray) -> bytes:
    """A byte that says how many bits a number takes, and 128 numbers in four interleaved lanes."""
    width = int(numbers.max()).bit_length()
    words = np.zeros((width, _LANES), np.uint32)
    for lane in range(_LANES):
        whole = sum(int(n) << (i * width) for i, n in enumerate(numbers[lane::_LANES]))
        for word in range(width):
            words[word, lane] = (whole >> (32 * word)) & 0xFFFF_FFFF
    return bytes([width]) + words.tobytes()


def _varint(number: int) -> bytes:
    found = []
    while number >= 128:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])


def decoded(postings: Postings) -> tuple[list[int], list[int]]:
    held, often = (np.frombuffer(data, np.int32).tolist() for data in postings.decode())
    return held, often


def top_k(
    lists: Sequence[tuple[Documents, Frequencies]],
    weights: Sequence[float],
    lengths: Lengths,
    allowed: Live,
    *,
    k: int,
    required: int,
    norms: tuple[np.float32, np.float32],
) -> tuple[list[int], list[float]]:
    """What `memwal_native.top_k` gives, by scoring and sorting all documents."""
    scores = np.zeros(len(lengths), np.float32)
    held = np.zeros(len(lengths), np.int64)
    for (documents, often), weight in zip(lists, weights, strict=True):
        scores[documents] += token_scores(often, lengths[documents], np.float32(weight), norms)
        held[documents] += 1
    found = np.flatnonzero((held >= max(1, required)) & allowed)
    order = found[np.lexsort((found, -scores[found]))]
    if 0 < k < len(order):  # those that are as good as the last one, too
        k = int((-scores[order]).searchsorted(-scores[order[k - 1]], "right"))
    order = order[:k]
    return order.tolist(), scores[order].tolist()
