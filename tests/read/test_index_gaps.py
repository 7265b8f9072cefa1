"""What an index does not cover yet is found without disturbing other readers of the version."""

from __future__ import annotations

import threading
from pathlib import Path

import lance
import pyarrow as pa

import memwal_sql as mw
from memwal_sql.read.base import load_base
from memwal_sql.read.context import TableContext
from memwal_sql.read.index_gaps import IndexGaps
from memwal_sql.storage.store import open_store

SCHEMA = pa.schema({"id": pa.int64(), "body": pa.string()})


def test_a_handle_that_others_read_with_is_left_alone(tmp_path: Path) -> None:
    """Lance refuses every call on a handle while its transactions are read."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    table.create_index("body", "FTS")
    with table.writer() as writer:
        for number in range(3):
            writer.upsert({"id": [number], "body": [f"text {number}"]})
            writer.flush()
            table.merge()
    context = TableContext(table.uri, open_store(table.uri), None)
    base = load_base(context, lance.dataset(table.uri))
    (name,) = (index.name for index in base.indexes.infos)
    done = threading.Event()
    refused: list[BaseException] = []

    def read() -> None:
        while not done.is_set():
            try:
                base.dataset.session()
            except RuntimeError as error:
                refused.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(20):
            fresh = TableContext(table.uri, context.store, None)
            # It looks back first, and then finds no reader of the region to search with.
            assert name not in IndexGaps(fresh, base, ())
    finally:
        done.set()
        reader.join()
    assert not refused


def test_another_index_that_was_made_meanwhile_changes_nothing(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    table.create_index("body", "FTS", name="texts")
    with table.writer() as writer:
        writer.upsert({"id": [1], "body": ["text"]})
        writer.flush()
    table.merge()
    assert "texts" in table.snapshot().gaps
    table.create_index("body", "BTREE", name="bodies")
    assert "texts" in table.snapshot().gaps
