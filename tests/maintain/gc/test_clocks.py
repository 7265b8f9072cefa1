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
from memwal_sql.maintain.gc.collector import _Collector
from memwal_sql.storage.objects import store_time
from memwal_sql.storage.objects.memory import MemoryStore
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.objects.store_time import now_by_store
from memwal_sql.storage.records.transactions import Transactions
from tests.each import each
from tests.maintain.life import create, flush, rows
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


@each("ahead, wait", [(40.0, 30.0), (0.0, 30.0), (0.0, 61.0), (-5.0, 90.0)])
def test_a_long_collection_does_not_hide_what_the_clock_is_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ahead: float, wait: float
) -> None:
    """Its plan takes 45 minutes; what is older than an hour when it begins goes."""
    table = create(tmp_path)
    for number in range(3):
        flush(table, rows(0, 3, number))
    table.merge()
    hour, real, passed = timedelta(hours=1), time.time, [wait * 60]
    of_store, plan = store_time.store_time, _Collector.plan

    def slow(self: Any, *parts: Any) -> Any:
        planned = plan(self, *parts)
        passed[0] = (wait + 45) * 60
        return planned

    caplog.clear()
    with (
        patch.object(time, "time", lambda: real() + passed[0] + ahead * 60),
        patch.object(store_time, "store_time", lambda s: (of_store(s) or 0.0) + passed[0]),
        patch.object(_Collector, "plan", slow),
        caplog.at_level(logging.WARNING, logger=store_time.__name__),
    ):
        deleted = mw.open_table(table.uri).collect_garbage(older_than=hour).num_rows
    said = [record.getMessage() for record in caplog.records]
    assert bool(deleted) == (wait > 60)
    assert len(said) == (ahead == 40) and all("40 minutes ahead" in text for text in said)


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
