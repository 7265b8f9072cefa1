"""The WAL tail of a region whose writer is in another process."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

import memwal_sql as mw
from memwal_sql.read import region
from memwal_sql.storage.local_store import LocalStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])


def rows(version: int) -> pa.Table:
    return pa.table({"id": [1, 2], "v": [version, version]}, schema=SCHEMA)


def test_entries_that_are_flushed_by_now_are_not_read(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    reader = mw.open_table(tmp_path / "t")
    read: list[str] = []
    get = LocalStore.get

    def noted(store: LocalStore, path: str) -> bytes:
        data = get(store, path)
        if "/wal/" in path:
            read.append(path)
        return data

    with (
        patch.object(region, "live_writer", lambda table, region_id: None),
        patch.object(LocalStore, "get", noted),
        table.writer() as writer,
    ):
        writer.upsert(rows(1))
        assert reader.get([1])["v"].to_pylist() == [1]
        assert read, "the row is in the WAL alone"
        for version in range(2, 5):
            writer.upsert(rows(version))
            writer.flush()
        read.clear()
        assert reader.get([1])["v"].to_pylist() == [4]
        assert read == []
        writer.upsert(rows(5))
        assert reader.get([1])["v"].to_pylist() == [5]
        assert len(read) == 1
