"""SQLite: `INSERT OR REPLACE` into a table whose key is its row id."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa


class Sqlite:
    """A database file with a write-ahead log."""

    packages = ()
    setting = "INSERT OR REPLACE, a transaction each; journal_mode=WAL, synchronous=FULL"

    def __init__(self, folder: Path, base: pa.Table) -> None:
        self._connection = sqlite3.connect(folder / "events.db", isolation_level=None)
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self._connection.execute(f"PRAGMA {pragma}")
        self._connection.execute(
            "CREATE TABLE events (id INTEGER PRIMARY KEY, val REAL, name TEXT)"
        )
        self.upsert(base)

    def upsert(self, rows: pa.Table) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?)", _rows(rows))
        self._connection.execute("COMMIT")

    def aggregate(self) -> tuple[int, float]:
        return self._one("SELECT count(*), avg(val) FROM events")[0]

    def get(self, key: int) -> list[tuple[int, float, str]]:
        return self._one("SELECT * FROM events WHERE id = ?", key)

    def close(self) -> None:
        self._connection.close()

    def _one(self, text: str, *values: int) -> list[tuple]:
        with closing(self._connection.execute(text, values)) as cursor:
            return cursor.fetchall()


def _rows(table: pa.Table) -> Iterator[tuple]:
    return zip(*(column.to_pylist() for column in table.columns), strict=True)
