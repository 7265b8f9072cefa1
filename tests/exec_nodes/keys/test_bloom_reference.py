"""Bloom filters judged by an independent one: as few false hits as `pybloom-live` allows itself for
1%, in about the same space."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pybloom_live
import pytest

from exec_nodes.keys.bloom import BLOCK_BYTES, BloomFilter
from exec_nodes.keys.hashing import hash_columns

ABSENT = 10_000
# 12 bits a key against 9.6, for being read in one block.
MOST_SPACE = 1.3


def integers(first: int, count: int) -> list[pa.Array]:
    return [pa.array(np.arange(first, first + count))]


def scattered(first: int, count: int) -> list[pa.Array]:
    odd = np.uint64(0x9E3779B97F4A7C15)  # times which every number comes out once
    return [pa.array(np.arange(first, first + count, dtype=np.uint64) * odd)]


def texts(first: int, count: int) -> list[pa.Array]:
    return [pa.array([f"customer-{number:08d}" for number in range(first, first + count)])]


def pairs(first: int, count: int) -> list[pa.Array]:
    numbers = np.arange(first, first + count)
    return [pa.array(numbers // 7), pa.array([f"{one % 7}" for one in numbers.tolist()])]


KEYS = {"integers": integers, "scattered": scattered, "texts": texts, "pairs": pairs}


def spelled(columns: list[pa.Array]) -> list[str]:
    """The same keys as the reference takes them."""
    return [repr(key) for key in zip(*(column.to_pylist() for column in columns), strict=True)]


@pytest.mark.parametrize("rows", [50, 1_000, 10_000])
@pytest.mark.parametrize("kind", KEYS)
def test_no_more_false_hits_than_the_reference_in_about_its_space(kind: str, rows: int) -> None:
    present, absent = KEYS[kind](0, rows), KEYS[kind](rows, ABSENT)
    reference = pybloom_live.BloomFilter(rows, error_rate=0.01)
    for key in spelled(present):
        reference.add(key, skip_check=True)
    ours = BloomFilter.build(hash_columns(present))

    assert ours.check(hash_columns(present)).all()
    false_hits = int(ours.check(hash_columns(absent)).sum())
    assert false_hits <= sum(key in reference for key in spelled(absent))
    assert len(ours.data) <= MOST_SPACE * len(reference.bitarray.tobytes()) + BLOCK_BYTES
