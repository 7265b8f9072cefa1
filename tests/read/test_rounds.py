"""How many requests a read of an object store takes, and that they are under way at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Barrier, Condition, Thread
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.columns import BASE_GENERATION
from exec_nodes.sources.lance_source import LanceSource
from memwal_sql.read.region import RegionReader
from tests.maintain.life import merge_all, rows
from tests.maintain.remote import BASE, LONGEST_SECONDS, REGIONS, hooked, written
from tests.model.process import as_another_process
from tests.model.s3 import Requests, s3_server
from tests.write.hooked_store import Call, passing

Read = Callable[[mw.Table], Any]


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    return written(tmp_path)


@pytest.mark.parametrize(
    ("read", "requests"),
    [
        (lambda table: table.get(7), BASE + 3),
        (lambda table: table.get(list(range(50))), BASE + 3 * REGIONS),
        (lambda table: table.count_rows(), BASE + 1 + 3 * REGIONS),
        (lambda table: table.count_rows("val > 2"), BASE + 1 + 3 * REGIONS),
        (lambda table: table.count_rows("id = 7"), BASE + 3),
        (lambda table: table.count_rows(consistency="manifest"), BASE + 1 + 2 * REGIONS),
        (lambda table: table.count_rows(consistency="eventual"), BASE),
    ],
)
def test_what_a_read_asks_again_is_under_way_at_once(
    table: mw.Table, read: Read, requests: int
) -> None:
    """Where nothing is new, one wait is all: none of them is answered before all have come."""
    reader = hooked(table)
    all_of_them = Barrier(requests)

    def hook(operation: str, path: str, call: Call) -> Any:
        all_of_them.wait(LONGEST_SECONDS)
        return call()

    with as_another_process():
        expected = [read(reader) for _ in range(3)][-1]
        reader.context.store.hook = hook
        for _ in range(2):
            assert read(reader) == expected
        reader.context.store.hook = passing


@pytest.mark.parametrize(("key", "in_base"), [(150, True), (7, False)])
def test_a_row_of_the_base_table_is_read_meanwhile(
    table: mw.Table, key: int, in_base: bool
) -> None:
    """Where no source that is known can have a newer one: else the read would be for nothing."""
    with table.writer() as writer:
        writer.upsert(rows(150, 150, 5))
        writer.flush()
    merge_all(table)
    with table.writer() as writer:
        writer.upsert(rows(0, 99, 6))
    reader = hooked(table)
    together = Barrier(BASE + 3 + in_base)
    last = LanceSource.last

    def hook(operation: str, path: str, call: Call) -> Any:
        together.wait(LONGEST_SECONDS)
        return call()

    def read(source: LanceSource, *arguments: Any) -> Any:
        if source.generation == BASE_GENERATION:
            assert in_base
            together.wait(LONGEST_SECONDS)
        return last(source, *arguments)

    with as_another_process():
        expected = [reader.get(key) for _ in range(3)][-1]
        assert expected["val"].to_pylist() == [5 if in_base else 6]
        reader.context.store.hook = hook
        with patch.object(LanceSource, "last", read):
            assert reader.get(key) == expected
        reader.context.store.hook = passing


@pytest.mark.parametrize(
    ("read", "what", "needed"),
    [
        (lambda table: table.get(7), "bloom_filter.bin", 2),
        (lambda table: table.get(list(range(50))), "bloom_filter.bin", 2 * REGIONS),
        (lambda table: table.count_rows(), "open", 1 + 2 * REGIONS),
        (lambda table: table.scan(["val"]).read_all().num_rows, "open", 1 + 2 * REGIONS),
    ],
)
def test_what_a_process_needs_first_is_read_beside_the_logs(
    table: mw.Table, read: Read, what: str, needed: int
) -> None:
    """No log is listed before the filters of a key, or base and generations of a scan, are read."""
    reader = hooked(table)
    read_by_then: Counter[str] = Counter()
    all_of_them, opened = Condition(), LanceSource.open

    def note(name: str) -> None:
        with all_of_them:
            read_by_then[name] += 1
            all_of_them.notify_all()

    def hook(operation: str, path: str, call: Call) -> Any:
        if operation == "list" and path.endswith("/wal"):
            with all_of_them:
                assert all_of_them.wait_for(lambda: read_by_then[what] >= needed, LONGEST_SECONDS)
        answer = call()
        note(path.rsplit("/", maxsplit=1)[-1])
        return answer

    def open_source(source: LanceSource, *arguments: Any, **options: Any) -> None:
        opened(source, *arguments, **options)
        assert source.resident(["id"], (), 0), source
        note("open")

    with as_another_process():
        reader.context.store.hook = hook
        with patch.object(LanceSource, "open", open_source):
            found = read(reader)
        reader.context.store.hook = passing
        assert found == read(table)


@pytest.mark.parametrize(("keys", "new"), [(7, 2), (list(range(50)), REGIONS)])
def test_filters_of_new_generations_are_loaded_at_once(
    table: mw.Table, keys: Any, new: int
) -> None:
    """Not one after the other, as the keys are looked up."""
    reader = hooked(table)
    with as_another_process():
        reader.get(keys)
    with table.writer() as writer:
        for number in range(2 if new == 2 else 1):
            writer.upsert(rows(50, 99, 8 + number))
            writer.flush()
    together = Barrier(new)

    def hook(operation: str, path: str, call: Call) -> Any:
        if path.endswith("bloom_filter.bin"):
            together.wait(LONGEST_SECONDS)
        return call()

    reader.context.store.hook = hook
    with as_another_process():
        assert reader.get(keys) == table.get(keys)
    reader.context.store.hook = passing


@pytest.mark.parametrize("keys", [7, list(range(50))])
def test_filters_are_not_loaded_for_keys_that_the_log_has(table: mw.Table, keys: Any) -> None:
    reader = hooked(table)
    with as_another_process():
        reader.get(keys)
    with table.writer() as writer:
        writer.upsert(rows(50, 99, 8))
        writer.flush()
        writer.upsert(rows(0, 49, 9))
    asked: list[str] = []

    def hook(operation: str, path: str, call: Call) -> Any:
        asked.append(path)
        return call()

    reader.context.store.hook = hook
    with as_another_process():
        assert reader.get(keys) == table.get(keys)
    reader.context.store.hook = passing
    assert asked
    assert not [path for path in asked if path.endswith("bloom_filter.bin")]


def test_columns_that_change_while_a_read_begins_are_those_of_its_base(table: mw.Table) -> None:
    """Another thread of the handle may read the base table with its new columns meanwhile."""
    reader = hooked(table)
    prepare, changed = RegionReader._prepare_sources, list[bool]()

    def change() -> None:
        changed.append(True)
        other = mw.open_table(table.uri)
        other.drop_columns(["val"])
        other.add_columns(pa.field("val", pa.int64()))
        assert set(reader.scan(["val"]).read_all()["val"].to_pylist()) == {None}

    def then_changed(region: RegionReader, base: Any) -> None:
        prepare(region, base)
        if not changed:
            thread = Thread(target=change)
            thread.start()
            thread.join()

    with as_another_process():
        expected = table.to_arrow().sort_by("id")
        with patch.object(RegionReader, "_prepare_sources", then_changed):
            answer = reader.scan().read_all().sort_by("id")
    assert changed
    assert answer == expected


def test_requests_of_a_process_that_begins() -> None:
    """A lookup reads only the key's region: a hint, the manifest that it names, those before and
    after it, three questions, its log by a listing and an entry, a bloom filter. It reads the
    table's newest version three times, looks for the next one, and lists twice. Lance reads a small
    base table in one request, and a small generation in three."""
    seen = Requests()
    with s3_server("tables", around=seen.around) as options:
        schema = pa.schema([pa.field("id", pa.int64(), False), ("val", pa.int64())])
        uri, regions = "s3://tables/asked", [mw.bucket("id", REGIONS)]
        made = mw.create_table(uri, schema, "id", regions=regions, storage_options=options)
        with made.writer() as writer:
            writer.upsert(rows(0, 99, 1))
            writer.flush()
            made.merge()
            writer.upsert(rows(0, 99, 2))
            writer.flush()
            writer.upsert(rows(100, 199, 3))
        with as_another_process():
            seen.take()
            table = mw.open_table(uri, storage_options=options)
            assert len(seen.take()) <= 5
            assert table.get(7)["val"].to_pylist() == [2]
            asked = seen.take()
            assert len(asked) <= 10 + 6 + 1 + 3, asked


def test_a_key_that_is_given_is_not_read() -> None:
    """A lookup in an indexed base table reads the other columns, a request each."""
    seen = Requests()
    with s3_server("tables", around=seen.around) as options, as_another_process():
        names = ["id", "first", "second"]
        schema = pa.schema([pa.field(name, pa.int64(), name != "id") for name in names])
        table = mw.create_table("s3://tables/wide", schema, "id", storage_options=options)
        random, count = np.random.default_rng(1), 100_000
        values = [random.permutation(count), *random.integers(0, 1 << 62, (2, count))]
        with table.writer() as writer:
            writer.upsert(pa.Table.from_arrays([pa.array(one) for one in values], schema=schema))
            writer.flush()
        table.merge()
        table.build_indexes()
        expected = [table.get(77_777) for _ in range(3)][-1]
        seen.take()
        assert table.get(77_777) == expected
        asked = seen.take()
        assert len([one for one in asked if one.startswith("GET")]) == 2, asked
