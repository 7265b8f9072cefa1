"""Columns that plain Lance adds, drops and renames while generations wait to be merged: they are
read and merged by field id (protocol rule 2; issue "Bad input and faults")."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.read.planning import scan
from memwal_sql.read.snapshots import SnapshotCollector
from planner.model import Query
from tests.model.writing import merge_rows

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string()), ("c", pa.float64())])
CONSISTENCIES = ("strong", "manifest")


def _add(dataset: Any) -> None:
    dataset.add_columns(pa.field("d", pa.int32()))


def _drop(dataset: Any) -> None:
    dataset.drop_columns(["b"])


def _rename(dataset: Any) -> None:
    dataset.alter_columns({"path": "a", "name": "x"})


def _swap(dataset: Any) -> None:
    for old, new in (("a", "t"), ("c", "a"), ("t", "c")):
        lance.dataset(dataset.uri).alter_columns({"path": old, "name": new})


def _drop_and_add(dataset: Any) -> None:
    dataset.drop_columns(["b"])
    lance.dataset(dataset.uri).add_columns(pa.field("b", pa.string()))


CHANGES: dict[str, tuple[Callable[[Any], None], dict[str, str | None]]] = {
    # what each column of the table then holds: the name it had, None for nulls
    "add": (_add, {"id": "id", "a": "a", "b": "b", "c": "c", "d": None}),
    "drop": (_drop, {"id": "id", "a": "a", "c": "c"}),
    "rename": (_rename, {"id": "id", "x": "a", "b": "b", "c": "c"}),
    "swap": (_swap, {"id": "id", "c": "a", "b": "b", "a": "c"}),
    "drop and add again": (_drop_and_add, {"id": "id", "a": "a", "c": "c", "b": None}),
}


def _rows(ids: list[int]) -> list[dict[str, Any]]:
    return [{"id": n, "a": 10 * n, "b": f"b{n}", "c": n / 2} for n in ids]


def _write(table: mw.Table, ids: list[int], deletes: list[int]) -> None:
    with table.writer(durable=False) as writer:
        writer.upsert(pa.Table.from_pylist(_rows(ids), SCHEMA))
        if deletes:
            writer.delete(deletes)
        writer.flush()


@pytest.mark.parametrize("change", CHANGES)
def test_generations_are_read_and_merged_under_the_names_of_now(
    tmp_path: Path, change: str
) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    _write(table, [1, 2, 3], [])
    table.merge()
    _write(table, [2, 3, 4], [1])
    _write(table, [5], [4])
    changed, origins = CHANGES[change]
    before = table.scan().read_all().num_rows  # everything is cached under the old names
    assert before == 3
    changed(lance.dataset(table.uri))
    expected = [
        {name: None if origin is None else row[origin] for name, origin in origins.items()}
        for row in _rows([2, 3, 5])
    ]
    table.snapshot()  # a handle learns of new columns from the first thing that it reads
    for handle in (table, mw.open_table(table.uri)):
        for consistency in CONSISTENCIES:
            found = handle.scan(consistency=consistency).read_all().sort_by("id").to_pylist()
            assert [dict(row) for row in found] == expected
        assert handle.get([3]).to_pylist() == expected[1:2]
        kept = handle.scan(filter="id > 2 AND c IS NOT NULL").read_all().sort_by("id")
        assert kept.to_pylist() == expected[1:]
    assert table.merge() == 2
    assert lance.dataset(table.uri).to_table().sort_by("id").to_pylist() == expected
    assert table.scan().read_all().sort_by("id").to_pylist() == expected
    assert mw.open_table(table.uri).get([5]).to_pylist() == expected[2:]


@pytest.mark.parametrize("change", CHANGES)
def test_generations_with_the_names_of_before_are_not_called_damaged(
    tmp_path: Path, change: str
) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    _write(table, [1, 2, 3], [])
    table.merge()
    _write(table, [2, 3, 4], [1])
    apply, _ = CHANGES[change]
    apply(lance.dataset(table.uri))
    assert {finding.check for finding in table.check().findings} <= {"leftovers"}


def test_a_handle_from_before_a_change_reads_the_columns_of_now(tmp_path: Path) -> None:
    table = mw.create_table(
        tmp_path / "t",
        pa.schema(
            [pa.field("id", pa.int64(), False), pa.field("a", pa.int64()), ("b", pa.string())]
        ),
        primary_key="id",
    )
    merge_rows(table, pa.table({"id": [1], "a": [2], "b": ["x"]}))
    handles = [mw.open_table(table.uri) for _ in range(3)]
    dataset = lance.dataset(table.uri)
    dataset.drop_columns(["a"])
    assert handles[0].scan().read_all().to_pylist() == [{"id": 1, "b": "x"}]
    assert handles[1].get([1]).to_pylist() == [{"id": 1, "b": "x"}]
    with pytest.raises(mw.InvalidCallError, match=r"unknown columns \['a'\]"):
        handles[2].scan(columns=["id", "a"])


def test_a_column_that_goes_between_the_call_and_its_snapshot_is_named(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("a", pa.int64())])
    table = mw.create_table(tmp_path / "t", schema, primary_key="id")
    with pytest.raises(mw.RetryError, match=r"\['gone'\] are gone"):
        table.planned(partial(scan, Query(("id", "gone"))))


class _Interrupted(tuple[Any, ...]):
    """Does something else the first time that it is gone through."""

    meanwhile: Callable[[], object] | None

    def __iter__(self) -> Iterator[Any]:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return super().__iter__()


def test_queries_over_other_columns_do_not_share_what_a_region_has_read(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    merge_rows(table, pa.table([[1], [2], ["b"], [4.0]], schema=SCHEMA))
    with table.writer() as writer:
        writer.upsert(pa.table([[1], [3], ["b"], [5.0]], schema=SCHEMA))
        writer.flush()
    collector = table._collector
    before = collector.newest()
    _swap(lance.dataset(table.uri))
    after = collector.newest()
    (region,) = collector.regions(before)
    newest = region.refresh()
    generations = _Interrupted(newest.flushed_generations)
    manifest = replace(newest, flushed_generations=generations)
    generations.meanwhile = lambda: region.sources(after, manifest, ())
    for base, value in ((before, 3), (after, 5.0), (before, 3)):
        (source,) = region.sources(base, manifest, ())
        assert source.rows_at(np.zeros(1, np.uint64), ["a"])["a"].to_pylist() == [value]


def test_a_scan_has_the_columns_of_its_snapshot(tmp_path: Path) -> None:
    """Whatever is added between its first look at the table and the snapshot."""
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("a", pa.int64())])
    table = mw.create_table(tmp_path / "t", schema, primary_key="id")
    snapshot = SnapshotCollector.snapshot

    def changed(*arguments: Any) -> Any:
        _add(lance.dataset(table.uri))
        table.refresh()
        return snapshot(*arguments)

    with patch.object(SnapshotCollector, "snapshot", changed):
        assert table.scan(filter="a > 1").schema.names == ["id", "a"]
    assert table.scan(filter="a > 1").schema.names == ["id", "a", "d"]


def _logged(tmp_path: Path, *, flush: bool) -> tuple[mw.Table, mw.Table]:
    """A table with one row in its log, or flushed, and a handle that has read it."""
    table = mw.create_table(tmp_path / "t", SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert(pa.Table.from_pylist(_rows([1]), SCHEMA))
        if flush:
            writer.flush()
    reader = mw.open_table(table.uri)
    assert reader.scan().read_all().num_rows == 1
    return table, reader


def _expected(kinds: dict[str, str | None]) -> dict[str, Any]:
    (row,) = _rows([1])
    return {name: None if held is None else row[held] for name, held in kinds.items()}


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_rows_of_the_log_follow_their_columns(tmp_path: Path, change: str, flush: bool) -> None:
    table, reader = _logged(tmp_path, flush=flush)
    apply, kinds = CHANGES[change]
    apply(lance.dataset(table.uri))
    expected = _expected(kinds)
    late = mw.open_table(table.uri)
    for handle in (reader, late):
        assert handle.scan().read_all().to_pylist() == [expected]
        assert handle.get([1]).to_pylist() == [expected]
        (fed,) = handle.changes().read_all().select(list(kinds)).to_pylist()
        assert fed == expected
    with late.writer() as writer:  # replays the log, and flushes what was in it
        writer.upsert(pa.table({"id": [2]}), missing="null")
        writer.flush()
    assert late.get([1]).to_pylist() == [expected]
    assert reader.get([1]).to_pylist() == [expected]
