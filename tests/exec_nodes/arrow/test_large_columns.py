"""Columns of more than 2 GiB of text, as seen by small ones that are not put together."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.arrow.arrays import flat
from exec_nodes.arrow.large_columns import OneArray, concatenated, taken, taken_by_chunk
from exec_nodes.lance.errors import lance_errors
from exec_nodes.lance.scan import Batches, scan_dataset
from tests.soak import SOAK


@pytest.mark.parametrize("seed", range(5))
def test_rows_are_taken_without_putting_chunks_together(seed: int) -> None:
    random = np.random.default_rng(seed)
    sizes = random.integers(0, 20, 12)
    batches = [
        pa.table({"s": pa.array([f"{n} {i}" for i in range(n)], pa.string())})
        for n in sizes.tolist()
    ]
    rows = pa.concat_tables(batches)
    for count in (0, 1, 30, 300):
        places = random.integers(0, rows.num_rows, count)
        for asked in (places, np.sort(places), np.sort(places).astype(np.uint64)):
            expected = rows.take(pa.array(asked))
            assert taken(rows, asked).equals(expected)
            found = taken_by_chunk(rows, asked)
            assert found.schema == rows.schema
            assert found.equals(expected)


def test_columns_that_no_array_holds_are_not_kept_as_one(tmp_path: Path) -> None:
    rows = pa.table({"id": range(500), "s": [f"text {i}" for i in range(500)]})
    table = mw.create_table(tmp_path / "t", rows.schema, primary_key="id")
    with table.writer() as writer:
        writer.upsert(rows)
        writer.flush()
    table.merge()
    with OneArray.set(most_bytes=1_000):
        for _ in range(3):
            assert table.to_arrow().sort_by("id").to_pydict() == rows.to_pydict()
            assert table.get([3, 499, 7])["s"].to_pylist() == ["text 3", "text 499", "text 7"]


def test_batches_follow_the_size_of_long_texts(tmp_path: Path) -> None:
    """131,072 rows of 20 kB were more than a batch holds, which was reported as damage."""
    rows = pa.table({"id": range(500), "s": [os.urandom(1_000).hex() for _ in range(500)]})
    table = mw.create_table(tmp_path / "t", rows.schema, primary_key="id")
    with table.writer() as writer:
        writer.upsert(rows)
        writer.flush()
    table.merge()
    dataset = lance.dataset(tmp_path / "t")
    with Batches.set(most_bytes=50_000):
        for fragments in (None, dataset.get_fragments()):
            found = list(scan_dataset(dataset, rows.schema, [], None, fragments, rows.schema))
            assert 1 < max(batch.num_rows for batch in found) < 100
        first = rows["s"][77].as_py()
        assert table.to_arrow(filter=f"s = '{first}'")["id"].to_pylist() == [77]
        assert table.to_arrow().sort_by("id").to_pydict() == rows.to_pydict()


def test_too_much_text_for_a_batch_is_no_damage() -> None:
    text = "External error: Offset overflow error: 2300000000, src/dataset/scanner.rs"
    with pytest.raises(mw.InvalidCallError, match="read fewer"), lance_errors("gen", "place"):
        raise OSError(text + ":1")


def test_more_text_than_a_batch_holds_is_refused_with_words(tmp_path: Path) -> None:
    """Arrow adds up the offsets before it copies: the texts are a file without content."""
    with (tmp_path / "texts").open("wb") as file:
        file.truncate(2**31 - 2)
    texts = pa.memory_map(str(tmp_path / "texts")).read_buffer()
    offsets = pa.array([0, 2**31 - 2], pa.int32()).buffers()[1]
    text = pa.Array.from_buffers(pa.string(), 1, [None, offsets, texts])
    batch = pa.RecordBatch.from_arrays([text], ["s"])
    with pytest.raises(mw.InvalidCallError, match=r"these 2 rows.*fewer rows"):
        concatenated([batch, batch])


@pytest.mark.skipif(SOAK < 2, reason="needs 10 GB of memory: make soak")
def test_more_than_2_gib_of_text_is_written_and_read(tmp_path: Path) -> None:
    blob, count = os.urandom(1_500_000).hex(), 115_000

    def text(i: int) -> str:
        start = i * 7919 % 2_900_000
        return f"{i:012}" + blob[start : start + 19_988]

    def batches(schema: pa.Schema, start: int, end: int, step: int) -> pa.RecordBatchReader:
        parts = (range(at, min(at + step, end)) for at in range(start, end, step))
        made = (pa.record_batch([p, list(map(text, p))], schema=schema) for p in parts)
        return pa.RecordBatchReader.from_batches(schema, made)

    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("s", pa.string())])
    table = mw.create_table(tmp_path / "t", schema, primary_key="id")
    keys = [0, count - 1, 5]
    most = (1 << 31) - 1
    with table.writer(
        memtable_bytes=most, memtable_rows=10_000_000, max_unflushed_bytes=4 << 30
    ) as writer:
        assert writer.upsert(batches(schema, 0, count, 5_000)).rows == count
        assert table.get(keys)["s"].to_pylist() == list(map(text, keys))
        writer.flush()
    large = tmp_path / "large"
    wide = mw.create_table(large, schema, primary_key="id")
    for one in (table, wide):
        if one is wide:
            whole = batches(schema, 0, count, 5_000).read_all()
            with one.writer() as writer:
                assert writer.upsert(whole).rows == count
        assert one.count_rows("s LIKE '0000001149%'") == 100
        assert one.get(list(range(count)))["s"].num_chunks >= 1
        one.merge()
        assert one.count_rows("s LIKE '0000001149%'") == 100
        assert one.check().ok


@pytest.mark.skipif(SOAK < 2, reason="needs 8 GB of memory: make soak")
def test_a_key_column_that_no_array_holds_becomes_one_of_64_bits() -> None:
    half = pa.array(["x" * 1_000_000] * 1_200)
    assert flat(pa.chunked_array([half, half])).type == pa.large_string()
