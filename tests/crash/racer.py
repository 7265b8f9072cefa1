"""One of several processes that write the same regions at the same time."""

from __future__ import annotations

import time
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import pyarrow as pa

import memwal_sql as mw
from memwal_sql.errors import MemWalError
from tests.crash.script import SCHEMA


def write_for_a_while(uri: str, number: int, seconds: float, start: Any, link: Connection) -> None:
    """Write rows (id, op=number) of ever new ids, taking the regions back whenever they are lost.

    Sends which rows were acknowledged, and which failed.
    """
    told: list[tuple[int, int]] = []
    failed: list[tuple[int, int]] = []
    table = mw.open_table(uri)
    start.wait()
    end = time.monotonic() + seconds
    key = 0
    writer = None
    while time.monotonic() < end:
        rows = [(key, number), (key + 1, number)]  # one row in each region
        key += 2
        batch = {"id": [r[0] for r in rows], "op": [r[1] for r in rows], "text": ["x", "y"]}
        try:
            if writer is None:
                writer = table.writer(memtable_rows=10)
            writer.upsert(pa.table(batch, schema=SCHEMA))
            told += rows
        except MemWalError:
            failed += rows
            if writer is not None:
                with suppress(MemWalError):
                    writer.close()
            writer = None
            time.sleep(0.005 * (number + 1))
    if writer is not None:
        with suppress(MemWalError):
            writer.close()
    link.send((told, failed))
