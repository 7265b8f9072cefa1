"""Protocol rule 2: bloom filters that native reads, sized by rows."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.base.errors import RepairError
from exec_nodes.keys.bloom import BLOCK_BYTES, BloomFilter
from exec_nodes.keys.hashing import hash_columns, hash_columns_as_native_writer, hash_value
from exec_nodes.keys.keys import KeyBatch, plain
from exec_nodes.keys.match import bloom_hits
from tests.each import each
from tests.exec_nodes.kinds import COLUMNS

ROWS = 500
NATIVE_KEYS = {
    "int64": [pa.array(np.arange(ROWS) - 250)],
    "int32": [pa.array(np.arange(ROWS), pa.int32())],
    "string": [pa.array(["k" * (i % 40) + str(i) for i in range(ROWS)])],
    "binary": [pa.array([b"\x00" * (i % 20) + b"%d" % i for i in range(ROWS)])],
    "int64, string": [pa.array(np.arange(ROWS)), pa.array([f"x{i}" for i in range(ROWS)])],
    "uint64": [pa.array(np.arange(ROWS, dtype=np.uint64))],
    "bool, int32": [pa.array([True] * ROWS), pa.array(np.arange(ROWS), pa.int32())],
}


def native_filter(path: Path, columns: list[pa.Array]) -> bytes:
    """The bloom_filter.bin that pylance's own writer makes for these keys."""
    fields = [
        pa.field(
            f"k{i}",
            column.type,
            False,
            {
                "lance-schema:unenforced-primary-key": "true",
                "lance-schema:unenforced-primary-key:position": str(i + 1),
            },
        )
        for i, column in enumerate(columns)
    ]
    schema = pa.schema([*fields, pa.field("v", pa.int64())])
    table = pa.table([*columns, pa.array(np.arange(len(columns[0])))], schema=schema)
    dataset = lance.write_dataset(table.slice(0, 1), path)
    dataset.initialize_mem_wal(unsharded=True)
    writer = dataset.mem_wal_writer(str(uuid.uuid4()))
    writer.put(table)
    writer.close()
    (file,) = path.glob("_mem_wal/*/*_gen_1/bloom_filter.bin")
    return file.read_bytes()


@pytest.mark.parametrize("kind", NATIVE_KEYS)
def test_every_key_is_found_in_the_file_that_native_writes(tmp_path: Path, kind: str) -> None:
    columns = NATIVE_KEYS[kind]
    written = BloomFilter(native_filter(tmp_path / "t", columns))
    assert written.check(hash_columns_as_native_writer(columns)).all()
    keys = KeyBatch(pa.table(dict(zip("ab", columns, strict=False))))
    assert bloom_hits(written, keys).all()
    assert bloom_hits(written, KeyBatch(keys.table.slice(3, 2))).all()


@pytest.mark.parametrize("kind", ["int64", "int32", "string", "binary", "int64, string"])
def test_native_sets_exactly_the_bits_that_we_do(tmp_path: Path, kind: str) -> None:
    columns = NATIVE_KEYS[kind]
    data = native_filter(tmp_path / "t", columns)
    hashes = hash_columns(columns)
    blocks = (hashes >> np.uint64(32)) * np.uint64(len(data) // 32) >> np.uint64(32)
    assert BloomFilter(data).check(hashes).all()
    assert np.unpackbits(np.frombuffer(data, np.uint8)).sum() <= 8 * ROWS
    touched = np.frombuffer(data, np.uint8).reshape(-1, 32).any(axis=1)
    assert set(np.flatnonzero(touched)) == set(blocks.tolist())


@each("kind", COLUMNS)
def test_one_key_hashes_as_a_column_of_them_does(kind: str) -> None:
    column = COLUMNS[kind]
    other = pa.array([f"{i}" for i in range(len(column))])
    plain_values = plain(column).to_pylist()
    for columns, rows in (
        ([column], [(v,) for v in plain_values]),
        ([column, other], list(zip(plain_values, other.to_pylist(), strict=True))),
    ):
        kinds = [c.type for c in columns]
        assert hash_columns(columns).tolist() == [hash_value(row, kinds) for row in rows]
        sliced = [c.slice(1) for c in columns]
        assert hash_columns(sliced).tolist() == hash_columns(columns).tolist()[1:]


ODD = np.uint64(0x9E3779B97F4A7C15)  # times which every number comes out once
SPREADS: dict[str, Callable[[Any], list[pa.Array]]] = {
    "integers": lambda numbers: [pa.array(numbers)],
    "scattered": lambda numbers: [pa.array(numbers.astype(np.uint64) * ODD)],
    "texts": lambda numbers: [pa.array([f"customer-{number:08d}" for number in numbers])],
    "pairs": lambda numbers: [pa.array(numbers // 7), pa.array([f"{n % 7}" for n in numbers])],
}


@each("spread", SPREADS)
@each("rows", [1, 50, 1_000, 20_000])
def test_at_most_one_percent_of_absent_keys_hit(spread: str, rows: int) -> None:
    hashes = hash_columns(SPREADS[spread](np.arange(rows)))
    bloom = BloomFilter.build(hashes)
    assert len(bloom.data) <= rows * 12 / 8 + BLOCK_BYTES
    assert bloom.check(hashes).all()
    assert all(map(bloom.check_one, hashes[:50].tolist()))
    absent = hash_columns(SPREADS[spread](np.arange(rows, rows + 20_000)))
    assert bloom.check(absent).mean() <= 0.01
    assert [bloom.check_one(h) for h in absent[:500].tolist()] == bloom.check(absent[:500]).tolist()


@each("length", [0, 31, 33])
def test_a_truncated_file_is_named(length: int) -> None:
    with pytest.raises(RepairError, match=r"a_gen_1/bloom_filter\.bin"):
        BloomFilter(bytes(length), "a_gen_1/bloom_filter.bin")
