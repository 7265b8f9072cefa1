"""Replacing all rows while others commit to the base table: one row a key, and none is lost."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.replace import Replacement
from memwal_sql.bulk.rows import RowForm
from memwal_sql.maintain.merge.commit import PassWriter
from memwal_sql.maintain.merge.merger import Merger
from memwal_sql.table import staging
from tests.soak import usual

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
Rows = dict[int, int]


@pytest.fixture(params=[False, True], ids=["empty", "with rows"])
def table(fast_folder: Path, request: pytest.FixtureRequest, no_pauses: None) -> mw.Table:
    """One with an index on its column, and maybe with rows in its base."""
    table = mw.create_table(fast_folder / "table", SCHEMA, "id", "identity(id)")
    if request.param:
        with table.writer() as writer:
            writer.upsert(rows({1: 10, 2: 20}))
            writer.flush()
        table.merge()
        table.create_index("n", "BTREE")
    return table


def rows(values: Rows) -> pa.Table:
    return pa.table({"id": list(values), "n": list(values.values())}, SCHEMA)


def live(table: mw.Table) -> Rows:
    found = mw.open_table(table.uri).to_arrow().to_pylist()
    assert len({row["id"] for row in found}) == len(found), "a key came twice"
    return {row["id"]: row["n"] for row in found}


def writes(uri: str, values: Rows) -> None:
    """Another process with a writer, whose rows are flushed and merged."""
    with mw.open_table(uri) as other, other.writer() as writer:
        writer.upsert(rows(values))
        writer.flush()
        other.merge()


def appends(uri: str, values: Rows) -> None:
    lance.write_dataset(rows(values), uri, mode="append")


def replaces(uri: str, values: Rows) -> None:
    """Another process that does not know whose turn it is."""
    with mw.open_table(uri) as other:
        other.replace_rows(rows(values))


def by_tasks(table: mw.Table, made: Callable[[Rows], Rows]) -> None:
    """As Spark does it: of rows that were read before."""
    task = table.stager("job", RowForm(), replaces=True).stage(rows(made({})).to_batches())
    table.replace_staged([task])


def by_reading(table: mw.Table, made: Callable[[Rows], Rows]) -> None:
    table.replace_rows(lambda: rows(made(live(table))))


@pytest.mark.parametrize("other", usual([{1: 77, 7: 77}, {1: 77}, {7: 77}], 1), ids=str)
@pytest.mark.parametrize("change", [writes, appends, replaces])
@pytest.mark.parametrize("replace", [by_tasks, by_reading])
def test_another_commit_right_before_that_of_the_new_rows_comes_before_it(
    table: mw.Table,
    monkeypatch: pytest.MonkeyPatch,
    replace: Callable[[mw.Table, Callable[[Rows], Rows]], None],
    change: Callable[[str, Rows], None],
    other: Rows,
) -> None:
    if change is appends and 1 in live(table):
        other = {key: n for key, n in other.items() if key != 1} or {8: 77}
    monkeypatch.setattr(Replacement, "_turn", lambda _: nullcontext())
    looks, commit = Replacement._commit, lance.LanceDataset.commit
    calls: list[Callable[[], None]] = [lambda: change(table.uri, other)]

    def late(*given: Any) -> int:
        def with_another(*given: Any, **named: Any) -> Any:
            if calls:
                calls.pop()()
            return commit(*given, **named)

        with patch("lance.LanceDataset.commit", with_another):
            return looks(*given)

    monkeypatch.setattr(Replacement, "_commit", late)
    before = live(table)
    replace(table, lambda read: {1: 5, 2: len(read), 3: sum(read.values())})
    read = {} if replace is by_tasks else other if change is replaces else before | other
    assert live(table) == {1: 5, 2: len(read), 3: sum(read.values())}
    assert not calls
    assert [one for one in table.check() if one.severity != "info"] == []
    writes(table.uri, {2: 6})
    assert live(table)[2] == 6


def test_no_rows_replace_all(table: mw.Table) -> None:
    table.replace_rows(rows({}))
    assert live(table) == {}
    table.replace_rows(rows({4: 4}))
    assert live(table) == {4: 4}
    table.replace_rows(rows({}))
    assert live(table) == {}
    assert lance.dataset(table.uri).get_fragments() == []


@pytest.mark.parametrize("passes", [0, 1])
def test_what_is_made_of_the_old_rows_and_flushed_does_not_show_among_the_new_ones(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch, passes: int
) -> None:
    """Nor where somebody has begun to merge it."""
    writes(table.uri, {1: 10, 2: 20})
    merge = Merger.run

    def changes_then() -> None:
        with mw.open_table(table.uri) as other, other.writer() as writer:
            writer.update({"n": "n + 1"})
            writer.flush()
            dataset = lance.dataset(table.uri)
            for region in other.snapshot().regions[:passes]:
                (source,) = region.sources
                begun = PassWriter(dataset, ["id"], {region.region_id: [source.generation]}, {})
                begun.upsert(rows({1: 11}), last=False)

    calls = [changes_then]

    def merge_then(*given: Any) -> Any:
        merged = merge(*given)
        if calls:
            calls.pop()()
        return merged

    monkeypatch.setattr(Merger, "run", merge_then)
    by_tasks(table, lambda _: {2: 5})
    assert live(table) == {2: 5}
    table.merge()
    assert live(table) == {2: 5}


@pytest.mark.parametrize("failing", ["build_indexes", "discard_staged"])
@pytest.mark.parametrize("lazily", [False, True])
def test_what_fails_when_the_rows_are_replaced_is_left_to_the_jobs(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch, failing: str, lazily: bool
) -> None:
    def fails(*_: Any) -> None:
        raise mw.StoreUnavailableError("no space: nothing was written")

    with monkeypatch.context() as patched:
        patched.setattr(staging, failing, fails)
        version = table.replace_rows((lambda: rows({4: 4})) if lazily else rows({4: 4}))
    assert live(table) == {4: 4}
    assert version <= mw.open_table(table.uri).version
    table.build_indexes()
    assert table.check().ok


def test_why_rows_are_not_replaced_is_told_whatever_else_fails(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> pa.Table:
        raise mw.StoreUnavailableError("no space")

    def no_rows() -> pa.Table:
        raise mw.InvalidCallError("the query fails")

    monkeypatch.setattr(staging, "discard_staged", fails)
    before = live(table)
    with pytest.raises(mw.InvalidCallError, match="the query fails"):
        table.replace_rows(no_rows)
    assert live(table) == before
