"""Collections on machines whose clock is wrong: what is old is decided by the store's."""

from __future__ import annotations

import logging
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import memwal_sql as mw
from memwal_sql.storage.objects.memory import MemoryStore
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.objects.store_time import now_by_store
from memwal_sql.storage.records.transactions import Transactions
from tests.each import each
from tests.maintain.life import create, rows
from tests.write.hooked_store import HookedStore

DAY = 24 * 3600.0
NOW = timedelta(0)


def test_a_collector_whose_clock_is_ahead_keeps_records(tmp_path: Path) -> None:
    """An aborted one may still keep a coordinator from committing, and who gives a committed id
    again learns that it was."""
    table = create(tmp_path, regions=2)
    with table.writer() as writer:
        writer.upsert(rows(0, 9, 1), atomic=True)
        writer.flush()
    table.merge()
    records = Transactions(open_store(table.uri))
    records.abort("x", "a claim")
    before, real = records.ids(), time.time
    assert len(before) == 2
    with patch.object(time, "time", lambda: real() + 400 * DAY):
        for _ in range(2):
            mw.open_table(table.uri).collect_garbage(older_than=NOW)
    assert records.ids() == before


@each(
    "off, words",
    [
        (8 * DAY, "11520 minutes ahead of that of memory://clock"),
        (-8 * DAY, "11520 minutes behind that of memory://clock"),
        (601.0, "10 minutes ahead of"),
        (599.0, None),
        (-599.0, None),
        (0.0, None),
    ],
)
def test_a_machine_whose_clock_is_wrong_says_so(
    caplog: pytest.LogCaptureFixture, off: float, words: str | None
) -> None:
    store = MemoryStore("memory://clock")
    caplog.clear()
    with patch.object(time, "time", lambda: 1e9), caplog.at_level(logging.WARNING):
        assert now_by_store(store, 1e9 + off) == 1e9
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (words is not None)
    assert all(words is not None and words in text for text in said)


def test_a_store_without_times_leaves_it_to_the_machine() -> None:
    store = HookedStore(MemoryStore("memory://clock"))

    def without(operation: str, path: str, call: Any) -> Any:
        return [] if operation == "list" else call()

    store.hook = without
    assert now_by_store(store, 7.0) == 7.0
