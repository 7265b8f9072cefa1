"""Statements that can't be one transaction say so, or are refused before anything is written."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import memwal_sql as mw
from memwal_sql.write.commit import Together
from tests.each import each
from tests.model.process import as_another_process
from tests.transactions.tables import created, elsewhere, rows

STATEMENTS = [
    "UPDATE t SET v = 1",
    "DELETE FROM t WHERE v = 0",
    "INSERT INTO t SELECT id, 1 AS v FROM t",
    "INSERT INTO t SELECT value AS id, 1 AS v FROM range(16)",
    "MERGE INTO t USING range(16) AS s ON t.id = s.value WHEN MATCHED THEN UPDATE SET v = 1",
    "INSERT INTO t VALUES (0, 1), (1, 1), (2, 1), (3, 1), (4, 1) ON CONFLICT DO UPDATE SET v = 1",
]


class _Table:
    """A table in a session, and what makes its statements too large: more regions than a
    transaction takes, or more rows than a MemTable does."""

    def __init__(self, uri: str, cause: str) -> None:
        self.uri = created(uri, None if cause == "rows" else "bucket(id, 4)")
        self.context = mw.SessionContext()
        self.table = mw.open_table(self.uri)
        mw.register(self.context, "t", self.table)
        self.writer = self.table.writer(memtable_rows=4) if cause == "rows" else None

    def sql(self, text: str) -> dict[str, Any]:
        return next(iter(mw.sql(self.context, text).to_pylist()), {})


@pytest.fixture(params=["regions", "rows", None])
def cause(request: pytest.FixtureRequest) -> Iterator[str | None]:
    cause: str | None = request.param
    with Together.set(most_regions=2 if cause == "regions" else Together.most_regions):
        yield cause


@each("text", STATEMENTS)
def test_a_statement_tells(fast_folder: Path, cause: str | None, text: str) -> None:
    name = f"{STATEMENTS.index(text)}{cause}"
    given = _Table(str(fast_folder / name), cause or "")
    given.sql("SET memwal.atomic = 'required'")
    if cause is not None:
        with pytest.raises(mw.UnsupportedError, match="nothing was written"):
            given.sql(text)
        assert elsewhere(given.uri) == {0}
        given.sql("RESET memwal.atomic")
        with pytest.warns(mw.NotAtomicWarning, match="not one transaction"):
            counts = given.sql(text)
    else:
        counts = given.sql(text)
    assert counts.get("atomic") is (None if cause is None else False)
    assert elsewhere(given.uri) in ({1}, {0, 1}, set())
    given.table.close()


def test_rows_that_move_to_other_regions_are_one_transaction_or_stay(fast_folder: Path) -> None:
    within, across = "UPDATE t SET v = 1, id = id + 100", "UPDATE t SET id = id + 1"
    for cause, most_regions, text in (
        ("rows", Together.most_regions, within),
        ("regions", 2, across),
        ("regions", 4, across),
    ):
        given = _Table(str(fast_folder / f"{cause}{most_regions}"), cause)
        with Together.set(most_regions=most_regions):
            if most_regions == 2:
                with pytest.raises(mw.UnsupportedError, match="too large for one transaction"):
                    given.sql(text)
            elif text == within:
                with pytest.warns(mw.NotAtomicWarning):
                    given.sql(text)
            else:
                given.sql(text)
        with as_another_process():
            ids = mw.open_table(given.uri).to_arrow(["id"])["id"].to_pylist()
        first = 0 if most_regions == 2 else 100 if text == within else 1
        assert sorted(ids) == [*range(first, first + 16)], cause
        given.table.close()


def test_calls_of_a_writer_say_so_in_their_result(fast_folder: Path) -> None:
    cases: list[tuple[Callable[[mw.TableWriter], Any], bool]] = [
        (lambda w: w.update({"v": "v + 1"}), True),
        (lambda w: w.update({"v": "v + 1"}, where="id = 1"), True),
        (lambda w: w.upsert(rows(1), atomic=True), True),
        (lambda w: w.upsert(rows(1)), False),
        (lambda w: w.delete_where("id < 99"), True),
    ]
    uri = created(str(fast_folder / "t"), "bucket(id, 4)")
    with mw.open_table(uri).writer() as writer:
        for call, atomic in cases:
            assert call(writer).atomic is atomic
        writer.upsert(rows(0))
        with Together.set(most_regions=2):
            assert writer.update({"v": "v + 1"}).atomic is False
            assert writer.update({"v": "v + 1"}, where="id = 1").atomic is True


def test_insert_of_datafusion_warns(fast_folder: Path) -> None:
    given = _Table(str(fast_folder / "t"), "regions")
    text = "INSERT INTO t SELECT value AS id, 1 AS v FROM range(16)"
    with Together.set(most_regions=2), pytest.warns(mw.NotAtomicWarning):
        given.context.sql(text).collect()
    with Together.set(most_regions=2), warnings.catch_warnings():
        warnings.simplefilter("error")
        given.context.sql("INSERT INTO t VALUES (1, 1)").collect()
    given.table.close()


def test_the_setting(fast_folder: Path) -> None:
    given = _Table(str(fast_folder / "t"), "")
    assert given.sql("SHOW memwal.atomic")["value"] == "preferred"
    given.sql("SET memwal.atomic = 'Required'")
    assert given.sql("SHOW memwal.atomic")["value"] == "required"
    with pytest.raises(mw.InvalidCallError, match="'preferred' or 'required'"):
        given.sql("SET memwal.atomic = 'on'")
