"""The other process of `test_consistency.py`."""

from __future__ import annotations

from multiprocessing.connection import Connection

import pyarrow as pa

import memwal_sql as mw


def write_counters(uri: str, count: int, link: Connection) -> None:
    """Write 1, 2, ... to row 5, say each number when it is acknowledged, wait for an answer."""
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64())])
    with mw.open_table(uri).writer(memtable_rows=7) as writer:
        for number in range(1, count + 1):
            writer.upsert(pa.table({"id": [5], "n": [number]}, schema=schema))
            link.send(number)
            link.recv()
