"""Statements and other writes of one writer have one order."""

from __future__ import annotations

from collections.abc import Set
from threading import Thread
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.write.conditional.recent import Cut, RecentWrites

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("n", pa.int64())])
KEYS = list(range(4))
REPLACED = pa.table({"id": KEYS, "n": [7] * 4}, SCHEMA)
COUNT = pa.table({"id": KEYS, "n": [100] * 4}, SCHEMA)


@pytest.fixture
def table(uri: str) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, primary_key="id", regions="bucket(id, 2)")
    with table.writer() as writer:
        writer.upsert({"id": KEYS, "n": KEYS})
    return table


def test_nobody_writes_between_a_statement_s_comparing_and_writing(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What others write then would be replaced by what was computed without it."""
    written, threads = RecentWrites.written, list[Thread]()

    def then_others(self: RecentWrites, cut: Cut, keys: Set[Any]) -> set[Any]:
        lost = written(self, cut, keys)
        if not threads:
            threads.append(Thread(target=writer.upsert, args=(REPLACED,)))
            threads[0].start()
            threads[0].join(0.1)
        return lost

    monkeypatch.setattr(RecentWrites, "written", then_others)
    with table.writer() as writer:
        writer.upsert(COUNT, set={"n": "t.n + s.n"})
        threads[0].join()
        assert table.get(KEYS)["n"].to_pylist() == [7] * 4


def test_a_statement_reads_what_was_enqueued_before_it(table: mw.Table) -> None:
    """Also where whoever enqueued it has not come to waiting until it has landed."""
    with table.writer() as writer:
        batch = writer._normaliser.upserts(REPLACED)
        for region, rows in writer.route(batch):
            region.enqueue(rows)
        writer.upsert(COUNT, set={"n": "t.n + s.n"})
        assert table.get(KEYS)["n"].to_pylist() == [107] * 4
