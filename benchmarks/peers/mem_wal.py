"""Lance's own MemWAL, which pylance has in `lance.mem_wal`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.support.native import NativeTable, native_scan, put_all

# Its scanner misses the rows of a MemTable that is being flushed, as it is at 100,000 rows else:
# findings/lance_mem_wal_scans.py.
_NEVER_FULL = {"max_memtable_rows": 10_000_000}


class LanceMemWal:
    """One writer, and scans through it: no other reader finds rows that are not flushed."""

    packages = ("pylance",)
    setting = "put into the log, max_wal_flush_interval_ms=1; nothing is synced"

    def __init__(self, folder: Path, base: pa.Table) -> None:
        self._writer = NativeTable(folder / "table", base).writer(True, **_NEVER_FULL)

    def upsert(self, rows: pa.Table) -> None:
        put_all(self._writer, rows.to_batches())

    def aggregate(self) -> tuple[int, float]:
        """See `Peer.aggregate`; its scanner counts rows, and has no other aggregates."""
        values = native_scan(self._writer, ["val"])["val"]
        return len(values), pc.mean(values).as_py()

    def get(self, key: int) -> list[tuple[int, float, str]]:
        rows = native_scan(self._writer, ["id", "val", "name"], f"id = {key}")
        return [tuple(row.values()) for row in rows.to_pylist()]

    def close(self) -> None:
        self._writer.close()
