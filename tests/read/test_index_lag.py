"""What an index does not cover yet is found without disturbing other readers of the version."""

from __future__ import annotations

import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.read import index_lag
from memwal_sql.read.index_lag import IndexGaps, VersionsRead
from memwal_sql.read.region import Merged
from memwal_sql.state.base_table import load_base
from memwal_sql.state.context import TableContext
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.objects.protocol import ObjectStore
from tests.model.writing import merge_rows

SCHEMA = pa.schema({"id": pa.int64(), "body": pa.string()})


def test_a_handle_that_others_read_with_is_left_alone(tmp_path: Path) -> None:
    """Lance refuses every call on a handle while its transactions are read."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    table.create_index("body", "FTS")
    with table.writer() as writer:
        for number in range(3):
            writer.upsert({"id": [number], "body": [f"text {number}"]})
            writer.flush()
            table.merge()
    context = TableContext(table.uri, open_store(table.uri), None)
    base = load_base(context, lance.dataset(table.uri))
    (name,) = (index.name for index in base.indexes.infos)
    done = threading.Event()
    refused: list[BaseException] = []

    def read() -> None:
        while not done.is_set():
            try:
                base.dataset.session()
            except RuntimeError as error:
                refused.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(20):
            fresh = TableContext(table.uri, context.store, None)
            # It looks back first, and then finds no reader of the region to search with.
            assert name not in IndexGaps(fresh, base, ())
    finally:
        done.set()
        reader.join()
    assert not refused


def test_another_index_that_was_made_meanwhile_changes_nothing(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    table.create_index("body", "FTS", name="texts")
    merge_rows(table, {"id": [1], "body": ["text"]})
    assert "texts" in table.snapshot().gaps
    table.create_index("body", "BTREE", name="bodies")
    assert "texts" in table.snapshot().gaps


def _table(folder: Path) -> mw.Table:
    """An index, and a generation that was merged and that it lacks."""
    table = mw.create_table(folder / "t", SCHEMA, "id")
    with table.writer() as writer:
        writer.upsert({"id": [0], "body": ["text 0"]})
        writer.flush()
        table.merge()
        table.create_index("body", "FTS", name="texts")
    _merged(table, 1)
    return table


def _merged(table: mw.Table, key: int) -> None:
    merge_rows(table, {"id": [key], "body": [f"text {key}"]})


def _make_versions(table: mw.Table, count: int) -> None:
    """Versions that change no row: each records a generation more."""
    with table.writer() as writer:
        for _ in range(count):
            writer.upsert({"id": [1], "body": ["text 1"]})
            writer.flush()
            table.snapshot_regions()


def _found(table: mw.Table) -> list[int]:
    found: list[int] = table.full_text_search("body", "text", 100)["id"].to_pylist()
    return sorted(found)


def test_a_gap_is_bridged_however_many_versions_an_index_is_behind(tmp_path: Path) -> None:
    table = _table(tmp_path)
    _make_versions(table, 40)
    assert "texts" in table.snapshot().gaps
    assert "texts" in mw.open_table(table.uri).snapshot().gaps
    assert _found(table) == [0, 1]


def test_versions_are_read_once_and_some_by_each_query(
    tmp_path: Path, within: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    within(VersionsRead.set(together=3, most=6))
    table = _table(tmp_path)
    _make_versions(table, 20)
    read: list[int] = []
    original = index_lag.read_details_at

    def counted(store: ObjectStore, version: int) -> Any:
        read.append(version)
        return original(store, version)

    monkeypatch.setattr(index_lag, "read_details_at", counted)
    reader = mw.open_table(table.uri)
    bridged = []
    while not (bridged and bridged[-1]):
        read.clear()
        bridged.append("texts" in reader.snapshot().gaps)
        assert _found(reader) == [0, 1], "right, bridged or not"
        assert len(read) <= 16, "two queries"
        assert len(bridged) < 10
    assert len(bridged) > 1
    read.clear()
    assert "texts" in reader.snapshot().gaps
    assert read == []
    _merged(table, 2)
    assert "texts" in reader.snapshot().gaps
    assert len(read) <= 8, "the new version and some before it"
    assert _found(reader) == [0, 1, 2]


def test_versions_that_the_store_could_not_give_are_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _table(tmp_path)

    def refused(*_: Any) -> Any:
        raise mw.StoreUnavailableError("out of reach")

    for name in ("read_details_at", "read_fragment_ids"):
        reader = mw.open_table(table.uri)
        with monkeypatch.context() as patch:
            patch.setattr(index_lag, name, refused)
            assert "texts" not in reader.snapshot().gaps
            assert _found(reader) == [0, 1], "right, bridged or not"
        assert "texts" in reader.snapshot().gaps


def test_what_others_wrote_since_ends_the_looking_back(
    tmp_path: Path, within: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    within(VersionsRead.set(together=2))
    table = _table(tmp_path)
    _make_versions(table, 6)
    lance.dataset(table.uri).delete("id = 0")
    _make_versions(table, 4)
    reader, last = mw.open_table(table.uri), lance.dataset(table.uri).version
    read: list[int] = []
    original = index_lag.read_details_at
    monkeypatch.setattr(
        index_lag, "read_details_at", lambda store, v: read.append(v) or original(store, v)
    )
    assert "texts" not in reader.snapshot().gaps
    assert min(read) > last - 8
    assert _found(reader) == [1]


def test_generations_that_an_index_lacks_stay_open_over_merges(tmp_path: Path, within: Any) -> None:
    within(Merged.set(kept_open=1))
    table = _table(tmp_path)
    opened: list[list[object]] = []
    for key in range(2, 7):
        _merged(table, key)
        (merged,) = table.snapshot().gaps["texts"].merged.values()
        opened.append(list(reversed(merged)))
    for before, after in pairwise(opened):
        assert len(after) == len(before) + 1
        assert all(one is other for one, other in zip(before, after, strict=False))
    table.build_indexes()
    assert _found(table) == list(range(7))
