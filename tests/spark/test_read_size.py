"""The size of a read that the jar gives to Spark is never far below the rows' own."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa

import memwal_sql as mw
from memwal_sql.session.filter_text import implied
from memwal_sql.spark.driver import size
from memwal_sql.spark.driver.size import read_size
from memwal_sql.spark.options import READ, parse_options
from memwal_sql.spark.reader import columns_of, shared_out
from memwal_sql.spark.tables import pinned_table_of, table_of

ROWS = 200
BYTES = 5_000  # of a text, of which Lance makes a half


def long_texts(first: int) -> dict[str, Any]:
    text = random.Random(first).randbytes(ROWS * BYTES // 2).hex()
    texts = [text[at : at + BYTES] for at in range(0, len(text), BYTES)]
    return {"id": list(range(first, first + ROWS)), "s": texts}


def size_of(uri: str, *names: str, condition: str | None = None) -> int | None:
    options = parse_options({"path": uri}, READ, "reading")
    table = table_of(options)
    conditions = [] if condition is None else implied(condition, table.schema)
    pinned = pinned_table_of(options).pruned(table.pin(), conditions)
    columns = columns_of(table, names)
    shares, rows = shared_out(options, table, pinned, conditions, columns, 2)
    return read_size(options, table, pinned, columns, shares, rows)


def test_long_texts_count_wherever_they_are(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    schema = pa.schema({"id": pa.int64(), "s": pa.string()})
    table = mw.create_table(uri, schema, "id", [mw.bucket("id", 2)])
    true = ROWS * BYTES
    with table.writer() as writer:
        assert size_of(uri, "id", "s") == 0
        writer.upsert(long_texts(0))
        in_log = size_of(uri, "s")
        writer.flush()
        in_generations = size_of(uri, "s")
        table.merge()
        in_base = size_of(uri, "s")
        assert (size_of(uri, "id"), size_of(uri)) == (ROWS * 8, ROWS)
        writer.upsert(long_texts(ROWS))
        writer.flush()
        writer.upsert(long_texts(2 * ROWS))
        everywhere = size_of(uri, "s")
    small = size_of(uri, "s", condition="id = 3")
    found = {
        "log": in_log,
        "generations": in_generations,
        "base": in_base,
        "everywhere": everywhere and everywhere // 3,
    }
    assert {k: v for k, v in found.items() if v is None or not 0.4 * true < v < 1.2 * true} == {}
    assert small is not None
    assert small < 100


def test_a_file_without_a_size_leaves_the_read_without_one(tmp_path: Path) -> None:
    """As native code may write one."""
    uri = str(tmp_path / "table")
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "s": pa.string()}), "id")
    with table.writer() as writer:
        writer.upsert(long_texts(0))
        writer.flush()
        table.merge()
        writer.upsert(long_texts(ROWS))
        writer.flush()
    options = parse_options({"path": uri}, READ, "reading")
    pinned = table.pin()
    region = pinned.regions[0]
    flushed = tuple(replace(g, bytes=None, rows=None) for g in region.manifest.flushed_generations)
    manifest = replace(region.manifest, flushed_generations=flushed)
    unknown = replace(pinned, regions=(replace(region, manifest=manifest),))
    assert read_size(options, table, pinned, table.schema, [], 1) is not None
    assert read_size(options, table, unknown, table.schema, [], 1) is None
    with patch.object(size, "_base_sizes", return_value=[100, None]):
        assert read_size(options, table, pinned, table.schema, [], 1) is None
