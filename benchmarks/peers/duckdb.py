"""DuckDB: `MERGE` into a table with a primary key, several times as fast as `INSERT OR REPLACE`."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa


class DuckDb:
    """A database file, with its log."""

    packages = ("duckdb",)
    setting = "MERGE, a transaction each, the default: the log is synced"

    def __init__(self, folder: Path, base: pa.Table) -> None:
        self._connection = duckdb.connect(folder / "events.db")
        self._connection.execute(
            "CREATE TABLE events (id BIGINT PRIMARY KEY, val DOUBLE, name VARCHAR)"
        )
        self._connection.register("base", base)
        self._connection.execute("INSERT INTO events SELECT * FROM base")
        self._connection.unregister("base")

    def upsert(self, rows: pa.Table) -> None:
        self._connection.register("upserted", rows)
        self._connection.execute(
            "MERGE INTO events USING upserted USING (id) "
            "WHEN MATCHED THEN UPDATE WHEN NOT MATCHED THEN INSERT"
        )
        self._connection.unregister("upserted")

    def aggregate(self) -> tuple[int, float]:
        rows = self._connection.execute("SELECT count(*), avg(val) FROM events").fetchall()
        return rows[0]

    def get(self, key: int) -> list[tuple[int, float, str]]:
        return self._connection.execute("SELECT * FROM events WHERE id = ?", [key]).fetchall()

    def close(self) -> None:
        self._connection.close()
