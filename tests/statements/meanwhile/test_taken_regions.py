"""Statements that lose regions to another process while they run: told by what is written."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from itertools import cycle, product
from math import inf
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.storage.retries import ATTEMPTS
from memwal_sql.write.table_writer import TableWriter
from memwal_sql.write.wal_writer import WalWriter
from tests.model.process import forks
from tests.soak import IS_SOAK
from tests.statements.other_process import connect, run, run_each
from tests.write.conditional.committing import before_commits

Take = Callable[[dict[int, int], float], list[Any]]
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
BOTH = "(SELECT * FROM (VALUES (1, 1), (2, 1)) AS v(id, n))"
# Each adds 1 to both rows, or deletes them.
STATEMENTS = [
    "UPDATE t SET n = n + 1",
    "UPDATE t SET n = t.n + s.n FROM (SELECT 1 AS n) AS s",
    "DELETE FROM t WHERE n < 50",
    "TRUNCATE t",
    "INSERT INTO t VALUES (1, 1), (2, 1) ON CONFLICT DO UPDATE SET n = t.n + excluded.n",
    "INSERT INTO t SELECT id, n + 1 FROM t",
    f"MERGE INTO t USING {BOTH} AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = t.n + s.n",
]


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> Iterator[mw.Table]:
    table = mw.create_table(uri, SCHEMA, primary_key="id", regions="identity(id)")
    mw.register(ctx, "t", table)
    mw.sql(ctx, "INSERT INTO t VALUES (1, 10), (2, 20)")
    yield table
    table.close()


def live(table: mw.Table) -> dict[int, int]:
    return {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}


@pytest.fixture
def take(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch, other: Executor, uri: str, no_pauses: None
) -> Take:
    """Has the other process give rows of some keys the values that are said, so many times: right
    before a statement writes. Gives how often it has."""
    other.submit(connect, {"t": uri}).result()
    taken: list[Any] = []

    def make(rows: dict[int, int], times: float) -> list[Any]:
        values = ", ".join(f"({key}, {n})" for key, n in rows.items())

        def insert() -> None:
            if len(taken) < times:
                taken.append(other.submit(run, f"INSERT INTO t VALUES {values}").result())

        before_commits(monkeypatch, insert)
        return taken

    return make


def with_either(*values: int) -> list[tuple[str, int]]:
    """Each statement with all values in a soak, else with one of them in turns."""
    if IS_SOAK:
        return list(product(STATEMENTS, values))
    return list(zip(STATEMENTS, cycle(values), strict=False))


@pytest.mark.parametrize(("statement", "key"), with_either(1, 2))
def test_where_one_of_its_regions_is_taken_nothing_of_it_is_written_and_it_runs_again(
    table: mw.Table, ctx: datafusion.SessionContext, take: Take, statement: str, key: int
) -> None:
    take({key: 10 * key}, 1)
    assert mw.sql(ctx, statement).to_pylist()[0]["count"] == 2
    assert live(table) in ({}, {1: 11, 2: 21})


@pytest.mark.parametrize(("statement", "times"), with_either(1, 3))
def test_where_nothing_of_it_is_written_all_is_read_and_computed_anew(
    table: mw.Table, ctx: datafusion.SessionContext, take: Take, statement: str, times: int
) -> None:
    taken = take({1: 20, 2: 30}, times)
    assert mw.sql(ctx, statement).to_pylist()[0]["count"] == 2
    assert live(table) in ({}, {1: 21, 2: 31})
    assert len(taken) == times


def test_others_who_take_its_regions_each_time_end_it(
    table: mw.Table, ctx: datafusion.SessionContext, take: Take
) -> None:
    taken = take({1: 20, 2: 30}, inf)
    with pytest.raises(mw.RetryError, match="nothing was written, run it again"):
        mw.sql(ctx, STATEMENTS[0])
    assert len(taken) == ATTEMPTS
    assert live(table) == {1: 20, 2: 30}


def test_processes_that_count_in_one_row_lose_no_count(
    table: mw.Table, uri: str, within: Callable[[Any], Any]
) -> None:
    table.close()
    processes = [within(ProcessPoolExecutor(1, forks())) for _ in range(3)]
    made = [
        one.submit(run_each, uri, "UPDATE t SET n = n + 1 WHERE id = 1", 12) for one in processes
    ]
    done = sum(one.result() for one in made)
    assert live(table) == {1: 10 + done, 2: 20}
    assert done > 0


@pytest.mark.parametrize("durable", [True, False])
def test_a_statement_by_a_writer_of_the_program_that_is_closed_then_is_done(
    table: mw.Table, ctx: datafusion.SessionContext, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """As its rows are durable."""
    table.close()
    change = TableWriter.change

    def change_and_close(writer: TableWriter, *given: object, **named: object) -> object:
        result = change(writer, *given, **named)  # type: ignore[arg-type]
        writer.close()
        return result

    monkeypatch.setattr(TableWriter, "change", change_and_close)
    with table.writer(durable=durable):
        assert mw.sql(ctx, "UPDATE t SET n = n + 1").to_pylist() == [{"count": 2}]
    assert live(table) == {1: 11, 2: 21}


@pytest.mark.parametrize("kind", [mw.PartlyWrittenError, mw.WriterFailedError])
def test_what_is_written_in_part_is_not_run_again_where_its_writer_was_closed_too(
    table: mw.Table,
    ctx: datafusion.SessionContext,
    monkeypatch: pytest.MonkeyPatch,
    kind: type[mw.ReopenError],
) -> None:
    calls: list[object] = []

    def fails(writer: TableWriter, *given: object, **_: object) -> object:
        calls.append(given)
        writer.close()
        raise kind("some regions have its rows")

    monkeypatch.setattr(TableWriter, "change", fails)
    with table.writer(), pytest.raises(kind, match="some regions have its rows"):
        mw.sql(ctx, "UPDATE t SET n = n + 1")
    assert len(calls) == 1


def test_what_may_be_written_is_not_to_be_run_again(
    table: mw.Table, ctx: datafusion.SessionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> int:
        raise mw.WriterFailedError("it is unknown whether its rows are in the WAL")

    monkeypatch.setattr(WalWriter, "append", fails)
    with pytest.raises(mw.WriterFailedError, match="it is unknown"):
        mw.sql(ctx, "UPDATE t SET n = n + 1")
