"""Columns and fields inside of them that plain Lance adds, drops and renames: they go by field id,
wherever their rows are (protocol rule 2; issue "Bad input and faults")."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
from tests.model.process import forget_writers
from tests.model.writing import flush_rows, merge_rows
from tests.soak import usual

PAIR = pa.struct([("x", pa.int64()), ("y", pa.string())])
SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "a": pa.int64(),
        "b": pa.string(),
        "c": pa.float64(),
        "s": PAIR,
        "deep": pa.struct([("in", PAIR), ("n", pa.int64())]),
        "many": pa.list_(PAIR),
        "by_name": pa.map_(pa.string(), pa.list_(PAIR)),
    }
)
PATHS = ("s", "deep.in", "many.item", "by_name.entries.value.item")


def _alter(uri: str, path: str, name: str) -> None:
    lance.dataset(uri).alter_columns({"path": path, "name": name})


def _add_column(uri: str) -> None:
    lance.dataset(uri).add_columns(pa.field("d", pa.int32()))


def _swap_columns(uri: str) -> None:
    for old, new in (("a", "t"), ("c", "a"), ("t", "c")):
        _alter(uri, old, new)


def _drop_and_add_a_column(uri: str) -> None:
    lance.dataset(uri).drop_columns(["b"])
    lance.dataset(uri).add_columns(pa.field("b", pa.string()))


def _rename(uri: str) -> None:
    for path in PATHS:
        _alter(uri, f"{path}.x", "z")


def _rename_a_struct(uri: str) -> None:
    _alter(uri, "deep.in", "within")
    _alter(uri, "deep.within.y", "w")


def _swap(uri: str) -> None:
    for path in PATHS:
        for old, new in (("x", "t"), ("y", "x"), ("t", "y")):
            _alter(uri, f"{path}.{old}", new)


def _drop(uri: str) -> None:
    lance.dataset(uri).drop_columns(["s.x", "deep.in.x", "many.item.x"])


def _drop_and_add(uri: str) -> None:
    lance.dataset(uri).drop_columns(["s.x"])
    lance.dataset(uri).add_columns(pa.field("s", pa.struct([("x", pa.int64())])))


def _replace_all(uri: str) -> None:
    lance.dataset(uri).add_columns(pa.field("s", pa.struct([("q", pa.int64())])))
    lance.dataset(uri).drop_columns(["s.x", "s.y"])


Pair = dict[str, Any]


@dataclass(frozen=True)
class Change:
    """What plain Lance does. Afterwards the pairs at `paths` are what `pair` says, and each of
    `columns` holds what had the other name, or nulls."""

    alter: Callable[[str], object]
    pair: Callable[[Pair], Pair] = dict
    paths: tuple[str, ...] = ()
    columns: Mapping[str, str | None] = field(
        default_factory=lambda: {"a": "a", "b": "b", "c": "c"}
    )


NONE = Change(lambda uri: None)
CHANGES = {
    "add": Change(_add_column, columns={"a": "a", "b": "b", "c": "c", "d": None}),
    "drop": Change(
        lambda uri: lance.dataset(uri).drop_columns(["b"]), columns={"a": "a", "c": "c"}
    ),
    "rename": Change(lambda uri: _alter(uri, "a", "x"), columns={"x": "a", "b": "b", "c": "c"}),
    "swap": Change(_swap_columns, columns={"c": "a", "b": "b", "a": "c"}),
    "drop and add again": Change(_drop_and_add_a_column, columns={"a": "a", "b": None, "c": "c"}),
    "rename fields": Change(_rename, lambda p: {"z": p["x"], "y": p["y"]}, PATHS),
    "swap fields": Change(_swap, lambda p: {"y": p["x"], "x": p["y"]}, PATHS),
    "drop fields": Change(_drop, lambda p: {"y": p["y"]}, PATHS[:3]),
    "drop and add fields again": Change(
        _drop_and_add, lambda p: {"y": p["y"], "x": None}, PATHS[:1]
    ),
    "replace all fields": Change(_replace_all, lambda p: {"q": None}, PATHS[:1]),
    "rename a struct": Change(_rename_a_struct),
}


def _row(key: int, name: str | None = None) -> dict[str, Any]:
    """A row as it was written, or as it is after a change."""
    change = CHANGES[name] if name else NONE
    pair = {"x": key, "y": f"y{key}"}
    pairs = {path: change.pair(pair) if path in change.paths else pair for path in PATHS}
    inner = {"in": pairs["deep.in"]}
    if name == "rename a struct":
        inner = {"within": {"x": key, "w": f"y{key}"}}
    missing = key % 4 == 0  # some of all kinds are null
    values = {"a": 10 * key, "b": f"b{key}", "c": key / 2}
    return {
        "id": key,
        **{new: None if old is None else values[old] for new, old in change.columns.items()},
        "s": None if missing else pairs["s"],
        "deep": {**dict.fromkeys(inner), "n": key} if missing else {**inner, "n": key},
        "many": [pairs["many.item"], None] * (key % 3),
        "by_name": None if missing else [("k", [pairs["by_name.entries.value.item"]])],
    }


def _write(writer: Any, keys: range) -> None:
    writer.upsert(pa.Table.from_pylist([_row(key) for key in keys], SCHEMA))


def _sorted(table: pa.Table) -> list[dict[str, Any]]:
    return [dict(row) for row in table.sort_by("id").to_pylist()]


# Of structs that lost all their fields, Lance itself forgets in the base which ones are null.
FOLLOWED = [name for name in CHANGES if name != "replace all fields"]


@pytest.mark.parametrize(
    ("change", "durable"),
    [*((name, True) for name in FOLLOWED), *((name, False) for name in usual(FOLLOWED, 3))],
)
def test_rows_follow_their_fields_wherever_they_are(
    tmp_path: Path, change: str, durable: bool
) -> None:
    """In the base, in a generation, in the log, in the memory of a writer that goes on."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer(durable=durable) as writer:
        for first in (1, 11, 21):
            _write(writer, range(first, first + 8))
            if first < 21:
                writer.flush()
            if first == 1:
                table.merge()
        _write(writer, range(28, 33))
        before = [_row(key) for key in (*range(1, 9), *range(11, 19), *range(21, 33))]
        assert _sorted(table.scan().read_all()) == before
        CHANGES[change].alter(table.uri)
        expected = [_row(row["id"], change) for row in before]
        gone = set(SCHEMA.names) - set(expected[0])
        for name in gone:
            with pytest.raises(mw.InvalidCallError, match=rf"unknown columns \['{name}'\]"):
                mw.open_table(table.uri).scan(columns=["id", name])
        for handle in (table, mw.open_table(table.uri)):
            assert _sorted(handle.scan().read_all()) == expected
            kept = handle.scan(filter="id > 3 AND c > 9").read_all()
            assert _sorted(kept) == [r for r in expected if r["id"] > 3 and r["c"] > 9]
            for key in (3, 13, 23, 28):
                assert handle.get([key]).to_pylist() == [_row(key, change)]
    assert _sorted(mw.open_table(table.uri).scan().read_all()) == expected


@pytest.mark.parametrize("change", CHANGES)
def test_a_merge_keeps_what_fields_hold(tmp_path: Path, change: str) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        for keys in (range(1, 9), range(5, 13)):
            _write(writer, keys)
            writer.flush()
    CHANGES[change].alter(table.uri)
    expected = [_row(key, change) for key in range(1, 13)]
    assert _sorted(table.scan(consistency="manifest").read_all()) == expected
    assert {finding.check for finding in table.check().findings} <= {"leftovers"}
    assert table.merge() == 2
    assert _sorted(lance.dataset(table.uri).to_table()) == expected
    assert _sorted(table.scan().read_all()) == expected


def _write_and_flush(uri: str) -> None:
    with mw.open_table(uri).writer() as writer:
        writer.upsert([{"id": 9}], missing="null")
        writer.flush()


@pytest.mark.parametrize("change", CHANGES)
def test_a_replay_and_the_feed_go_by_id(tmp_path: Path, change: str) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    with table.writer() as writer:
        _write(writer, range(1, 9))
    CHANGES[change].alter(table.uri)
    expected = [_row(key, change) for key in range(1, 9)]
    names = list(expected[0])
    assert _sorted(table.changes().read_all().select(names)) == expected
    forget_writers(table.uri)
    _write_and_flush(table.uri)
    assert table.check().ok
    assert _sorted(table.scan().read_all())[:-1] == expected
    table.merge()
    assert _sorted(lance.dataset(table.uri).to_table())[:-1] == expected


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
    merge_rows(table, pa.Table.from_pylist([_row(1)], SCHEMA))
    flush_rows(table, pa.Table.from_pylist([{**_row(1), "a": 3, "c": 5.0}], SCHEMA))
    collector = table.collector
    before = collector.versions.latest()
    _swap_columns(table.uri)
    after = collector.versions.latest()
    (region,) = collector.registry.regions(before)
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
        _add_column(table.uri)
        table.refresh()
        return snapshot(*arguments)

    with patch.object(SnapshotCollector, "snapshot", changed):
        assert table.scan(filter="a > 1").schema.names == ["id", "a"]
    assert table.scan(filter="a > 1").schema.names == ["id", "a", "d"]
