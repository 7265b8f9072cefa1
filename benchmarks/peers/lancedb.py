"""LanceDB: `merge_insert` into a table with a btree on the key."""

from __future__ import annotations

from pathlib import Path

import lancedb
import pyarrow as pa
import pyarrow.compute as pc
from lancedb.index import BTree


class LanceDb:
    """A table of the open source version. Rows that the index does not have yet are searched."""

    packages = ("lancedb", "pylance")
    setting = "merge_insert, a commit each; nothing is synced, and there is no such setting"

    def __init__(self, folder: Path, base: pa.Table) -> None:
        self._table = lancedb.connect(str(folder)).create_table("events", base)
        self._table.create_index("id", config=BTree())

    def upsert(self, rows: pa.Table) -> None:
        merge = self._table.merge_insert("id").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(rows)

    def aggregate(self) -> tuple[int, float]:
        """See `Peer.aggregate`; it has no aggregates of its own, and pylance scans it."""
        values = self._table.to_lance().to_table(columns=["val"])["val"]
        return len(values), pc.mean(values).as_py()

    def get(self, key: int) -> list[tuple[int, float, str]]:
        rows = self._table.search().where(f"id = {key}").select(["id", "val", "name"]).to_list()
        return [(row["id"], row["val"], row["name"]) for row in rows]

    def close(self) -> None:
        """See `Peer.close`."""
