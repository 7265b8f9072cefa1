"""This package."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import datafusion
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.workspace import enabled_table


class MemWal:
    """One writer, SQL by DataFusion, `table.get`; all of it strongly consistent."""

    packages = ("memwal-sql", "pylance", "datafusion")
    setting = "durable writes, the default: synced"

    def __init__(self, folder: Path, base: pa.Table) -> None:
        self._open = ExitStack()
        self._table = enabled_table(folder / "table", base)
        self._writer = self._open.enter_context(self._table.writer())
        self._context = datafusion.SessionContext()
        mw.register(self._context, "events", self._table)

    def upsert(self, rows: pa.Table) -> None:
        self._writer.upsert(rows)

    def aggregate(self) -> tuple[int, float]:
        columns = self._context.sql("SELECT count(*), avg(val) FROM events").to_arrow_table()
        return columns[0][0].as_py(), columns[1][0].as_py()

    def get(self, key: int) -> list[tuple[int, float, str]]:
        return [tuple(row.values()) for row in self._table.get([key]).to_pylist()]

    def close(self) -> None:
        self._open.close()
