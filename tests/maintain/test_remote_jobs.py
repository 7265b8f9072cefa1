"""Requests of jobs to an object store, as bounds."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import uuid4

import pytest

import memwal_sql as mw
from memwal_sql.maintain.lease import maintenance_lease
from memwal_sql.storage import paths
from memwal_sql.storage.objects.concurrent import ReadWindow
from memwal_sql.storage.objects.open import open_store
from tests.maintain.life import create
from tests.maintain.merging_tables import (
    GENERATIONS,
    SCHEMA,
    expected,
    rows_of,
    write_generations,
)
from tests.maintain.remote import hooked
from tests.model.s3 import Requests, s3_server
from tests.write.hooked_store import Call

REGIONS = 2
LEASE = 4  # a listing, the last record, one more, and whether that one is still there


@pytest.fixture
def seen() -> Requests:
    return Requests()


@pytest.fixture
def options(seen: Requests) -> Iterator[dict[str, str]]:
    with s3_server("tables", around=seen.around) as found:
        yield found


@pytest.fixture
def table(options: dict[str, str]) -> mw.Table:
    regions = [mw.bucket("id", REGIONS)]
    return mw.create_table(f"s3://tables/{uuid4()}", SCHEMA, "id", regions, storage_options=options)


def writes(requests: list[str]) -> list[str]:
    return [one for one in requests if one.startswith(("PUT", "POST", "DELETE"))]


def test_requests_of_a_merge_and_of_an_index(
    table: mw.Table, seen: Requests, options: dict[str, str]
) -> None:
    """All regions in one commit, under one lease."""
    before = table.version
    write_generations(table, [({n: n for n in range(400)}, [])])
    seen.take()
    assert table.merge() == REGIONS
    requests = seen.take()
    assert len(requests) <= 19 * REGIONS + 20, requests
    records = [one for one in writes(requests) if "_memwal_sql/maintenance" in one]
    assert len(records) == 3  # taken, the record of the regions noted, given back
    assert mw.open_table(table.uri, storage_options=options).version == before + 2
    table.build_indexes()
    seen.take()
    write_generations(table, [({n: n + 1 for n in range(400)}, [])])
    table.merge()
    seen.take()
    table.build_indexes()
    requests = seen.take()
    assert len(requests) <= 30, requests


def test_tombstones_of_all_regions_go_together(
    table: mw.Table, seen: Requests, options: dict[str, str]
) -> None:
    before = table.version
    rows = {n: n for n in range(400)}
    write_generations(table, [(rows, []), ({}, list(range(0, 400, 2)))])
    assert table.merge() == 2 * REGIONS
    # The first ones; a record before the parts; the deletes.
    found = mw.open_table(table.uri, storage_options=options)
    assert found.version == before + 3
    assert rows_of(found) == {n: n for n in range(1, 400, 2)}


def test_jobs_without_work_write_nothing(table: mw.Table, seen: Requests, within: Any) -> None:
    within(ReadWindow.set(seconds=0.0))
    write_generations(table, GENERATIONS)
    table.merge()
    table.build_indexes()
    for _ in range(2):  # what is recorded changes with what is collected
        version = table.snapshot_regions()
        table.collect_garbage(older_than=timedelta(0))
    seen.take()
    assert table.merge() == 0
    assert table.build_indexes() == []
    assert table.snapshot_regions() == version
    seen.take()
    table.collect_garbage()
    requests = seen.take()
    assert writes(requests) == []
    # Lance lists the versions of the base table as well.
    listed = [one for one in requests if one.startswith("LIST") and "/_versions/" not in one]
    assert len(listed) == len(set(listed)) <= 10, requests
    assert rows_of(table) == expected()


def test_a_collection_lists_side_by_side(tmp_path: Path) -> None:
    """None of these is answered before all have come."""
    table = create(tmp_path, regions=2)
    collector = hooked(table)
    folders = [paths.MEM_WAL_FOLDER, "_indices", paths.STAGING_FOLDER]
    folders += [f"{paths.RECORD_FOLDER}/checkpoints"]
    records = [f"{paths.RECORD_FOLDER}/{name}" for name in ("maintenance", "publishing")]
    waves = [(wave, Barrier(len(wave))) for wave in (folders, records)]
    asked: list[str] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        if operation == "list":
            for wave, together in waves:
                if path in wave:
                    asked.append(path)
                    together.wait(60)
        return call()

    collector.context.store.hook = hook
    collector.collect_garbage()
    assert sorted(asked) == sorted(folders + records)


def test_an_idle_table_takes_two_requests_a_minute_at_most(table: mw.Table, seen: Requests) -> None:
    """In the second hour, by a clock that goes on with each pause: in the first the pauses grow."""
    write_generations(table, GENERATIONS)
    moment, hours = 0.0, list[list[str]]()

    def sleep(seconds: float) -> None:
        nonlocal moment
        moment += seconds
        if moment > (len(hours) + 1) * 3600:
            hours.append(seen.take())
        if len(hours) == 2:
            raise TimeoutError

    with pytest.raises(TimeoutError):
        mw.run_jobs_forever(table, clock=lambda: moment, sleep=sleep)
    assert len(hours[1]) <= 120 and writes(hours[1]) == [], hours[1]


def test_requests_of_the_lease(seen: Requests, options: dict[str, str]) -> None:
    store = open_store("s3://tables/t", options)
    with maintenance_lease(store, "first"):
        pass
    for _ in range(20):  # whatever others left
        seen.take()
        with maintenance_lease(store, "next"):
            assert len(seen.take()) <= LEASE
        assert len(seen.take()) == 2
