"""Searches while rows are replaced, flushed and merged: each sees one state of the table."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from threading import Event

import pyarrow as pa
import pytest

import memwal_sql as mw

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("body", pa.string())])
ROWS = 60
READERS = 3


def texts(numbers: list[int], version: int) -> pa.Table:
    """All of one length, and all with the token "common": whatever the versions, N, the document
    frequency and the average length stay the same, and so does the score."""
    bodies = [f"common version{version} row{number}" for number in numbers]
    return pa.table([pa.array(numbers, pa.int64()), bodies], schema=SCHEMA)


@pytest.mark.parametrize("indexed", [True, False])
def test_every_search_finds_every_row_once_with_the_same_score(
    indexed: bool, tmp_path: Path
) -> None:
    """A row counted twice, or not at all, while it moves would change N and every score."""
    rng = Random(f"concurrency {indexed}")
    table = mw.create_table(str(tmp_path / "table"), SCHEMA, primary_key="id")
    if indexed:
        table.create_index("body", "FTS", stem=False)
    done = Event()

    def read(number: int) -> int:
        reader = mw.open_table(table.uri)
        searches = 0
        while not done.is_set() or not searches:
            rows = reader.full_text_search("body", "common", 10 * ROWS)
            assert sorted(rows["id"].to_pylist()) == list(range(ROWS))
            assert rows["_score"].unique().to_pylist() == expected
            phrase = {"phrase": {"query": f"row{number}"}}
            assert reader.full_text_search("body", phrase)["id"].to_pylist() == [number]
            searches += 1
        return searches

    with table.writer() as writer, ThreadPoolExecutor(READERS) as pool:
        writer.upsert(texts(list(range(ROWS)), 0))
        found = table.full_text_search("body", "common", ROWS)
        expected = found["_score"].unique().to_pylist()
        assert len(expected) == 1
        readers = [pool.submit(read, number) for number in range(READERS)]
        try:
            for version in range(1, 25):
                writer.upsert(texts(rng.sample(range(ROWS), 20), version))
                if version % 4 == 0:
                    writer.flush()
                if version % 8 == 0:
                    table.merge()
                if version == 16 and indexed:
                    table.build_indexes()
        finally:
            done.set()
        assert all(reader.result() > 1 for reader in readers)
