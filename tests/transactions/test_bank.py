"""Processes that move money between accounts of three tables, while others merge and read: every
read of all tables sums to the same total."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.soak import IS_SOAK
from tests.transactions import bank

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("n", pa.int64()),
        pa.field("note", pa.string()),
    ]
)
SECONDS = 600.0 if IS_SOAK else 12.0


@pytest.mark.slow
def test_no_money_is_made_or_lost(fast_folder: Path) -> None:
    uris = []
    for name, buckets in (("a", 4), ("b", 3), ("c", 1)):
        uri = str(fast_folder / name)
        table = mw.create_table(uri, SCHEMA, "id", regions=f"bucket(id, {buckets})")
        with table.writer() as writer:
            ids = range(bank.ACCOUNTS)
            writer.upsert({"id": ids, "n": [bank.START] * len(ids), "note": [""] * len(ids)})
        uris.append(uri)
    with ProcessPoolExecutor(4, get_context("spawn")) as pool:
        moving = [pool.submit(bank.move, uris, seed, SECONDS) for seed in (1, 2)]
        maintaining = pool.submit(bank.maintain, uris, 3, SECONDS)
        reading = pool.submit(bank.sums, uris, SECONDS)
        moved = [future.result() for future in moving]
        maintaining.result()
        reads, *wrong = reading.result()
    assert wrong == [], reads
    assert all(moved), moved
    tables = [mw.open_table(uri) for uri in uris]
    total = sum(sum(table.to_arrow(["n"])["n"].to_pylist()) for table in tables)
    assert total == bank.TOTAL
    for table in tables:
        assert not [f for f in table.check().findings if f.severity == "error"], table.check()
