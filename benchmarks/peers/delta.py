"""Delta Lake by delta-rs: `merge` into a table of Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, write_deltalake


class Delta:
    """Queried by the DataFusion that comes with it."""

    packages = ("deltalake",)
    setting = "merge, a commit each; nothing is synced, and there is no such setting"

    def __init__(self, folder: Path, base: pa.Table) -> None:
        write_deltalake(str(folder), base)
        self._table = DeltaTable(str(folder))

    def upsert(self, rows: pa.Table) -> None:
        merge = self._table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def aggregate(self) -> tuple[int, float]:
        columns = self._query("SELECT count(*), avg(val) FROM events")
        return columns[0][0].as_py(), columns[1][0].as_py()

    def get(self, key: int) -> list[tuple[int, float, str]]:
        rows = self._query(f"SELECT id, val, name FROM events WHERE id = {key}")
        return [tuple(row.values()) for row in rows.to_pylist()]

    def close(self) -> None:
        """See `Peer.close`."""

    def _query(self, text: str) -> pa.Table:
        self._table.update_incremental()
        return pa.table(QueryBuilder().register("events", self._table).execute(text).read_all())
