"""Calls that read first, and another process that takes regions over before their rows land."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import WriterFailedError
from memwal_sql.write.region_writer import RegionWriter
from memwal_sql.write.turns import TurnSeconds
from memwal_sql.write.wal_writer import WalWriter
from tests.write.conditional.committing import before_commits

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("n", pa.int64()), pa.field("m", pa.int64())]
)
Call = Callable[[mw.TableWriter], object]
KEYS = [1, 2]
GIVEN = {"id": KEYS, "n": [1, 1], "m": [5, 5]}
CALLS: dict[str, Call] = {
    "update": lambda writer: writer.update({"n": "n + 1"}),
    "update, serializable": lambda writer: writer.update({"n": "n + 1"}, isolation="serializable"),
    "delete_where": lambda writer: writer.delete_where("n >= 10"),
    "delete, when": lambda writer: writer.delete(KEYS, when="t.n >= 10"),
    "upsert, when": lambda writer: writer.upsert(GIVEN, when="t.n >= 10"),
    "upsert, set": lambda writer: writer.upsert(GIVEN, set={"n": "t.n + s.n"}),
    "upsert, some columns": lambda writer: writer.upsert({"id": KEYS, "n": [1, 1]}),
}


@pytest.fixture
def table(uri: str) -> mw.Table:
    """A region for each key."""
    return mw.create_table(uri, SCHEMA, "id", "identity(id)")


def take(uri: str, keys: list[int]) -> None:
    """Take over the regions of these keys, and leave their rows as they are."""
    with mw.open_table(uri) as table, table.writer() as writer:
        writer.upsert(table.get(keys))


def live(table: mw.Table) -> dict[int, tuple[int, int]]:
    return {row["id"]: (row["n"], row["m"]) for row in table.to_arrow().to_pylist()}


@pytest.mark.parametrize("taken", [[1], [2], [1, 2]], ids=str)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_that_loses_a_region_writes_nothing(
    table: mw.Table,
    other: Executor,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
    taken: list[int],
) -> None:
    with table.writer(turns=False) as writer:
        writer.upsert({"id": KEYS, "n": [10, 20], "m": [0, 0]})
        before_commits(monkeypatch, lambda: other.submit(take, table.uri, taken).result())
        before = live(table)
        with pytest.raises(mw.FencedError):
            call(writer)
        assert live(mw.open_table(table.uri)) == before


def test_the_first_rows_of_one_region_are_a_part_too(
    uri: str, other: Executor, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    append = WalWriter.append
    with table.writer(memtable_rows=2) as writer:
        writer.upsert({"id": [1, 2, 3, 4], "n": [0] * 4, "m": [0] * 4})

        def then_taken(*given: Any) -> int:
            position = append(*given)
            other.submit(take, uri, [1]).result()
            return position

        monkeypatch.setattr(WalWriter, "append", then_taken)
        with pytest.raises(mw.PartlyWrittenError):
            writer.update({"n": "n + 1"})
    assert sorted(n for n, _ in live(mw.open_table(uri)).values()) == [0, 0, 1, 1]


def test_of_several_errors_the_one_is_told_that_does_not_know_what_is_written(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the other one says that nothing is."""
    with table.writer() as writer:
        writer.upsert({"id": KEYS, "n": [10, 20], "m": [0, 0]})
        taken = min(one.region_id for one in table.snapshot().regions)

        def fails(wal: WalWriter, *_: Any, **__: Any) -> int:
            if wal._region_id == taken:
                raise mw.FencedError("another writer has the region")
            raise WriterFailedError("it is unknown whether its rows are in the WAL")

        monkeypatch.setattr(WalWriter, "append", fails)
        with pytest.raises(WriterFailedError, match="it is unknown"):
            writer.upsert(GIVEN)


def test_a_serializable_statement_whose_region_is_taken_before_it_reads_is_made_again(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    mw.sql(ctx, "INSERT INTO t VALUES (1, 0, 0), (2, 0, 0)")
    mw.sql(ctx, "SET memwal.isolation = 'serializable'")
    begin_cut = RegionWriter.begin_cut
    others = [[{"id": 2, "n": 5, "m": 0}]]

    def taken_over_before(writer: RegionWriter) -> object:
        if others:
            with mw.open_table(table.uri) as taker, taker.writer() as its:
                its.upsert(others.pop())
        return begin_cut(writer)

    monkeypatch.setattr(RegionWriter, "begin_cut", taken_over_before)
    mw.sql(ctx, "UPDATE t SET n = n + (SELECT n FROM t WHERE id = 2) WHERE id = 1")
    assert others == []
    assert live(table)[1] == (5, 0)
    table.close()


def counted(table: mw.Table, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows each read of a statement has found so far."""
    found = list[int]()
    to_arrow, get = type(table).to_arrow, type(table).get

    def counting(read: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
        def counting_read(*given: Any, **named: Any) -> pa.Table:
            rows = read(*given, **named)
            found.append(rows.num_rows)
            return rows

        return counting_read

    monkeypatch.setattr(type(table), "to_arrow", counting(to_arrow))
    monkeypatch.setattr(type(table), "get", counting(get))
    return found


def overwrite(uri: str) -> None:
    with mw.open_table(uri) as table:
        ctx = datafusion.SessionContext()
        mw.register(ctx, "t", table)
        mw.sql(ctx, "INSERT OVERWRITE t VALUES (1, 50, 0), (2, 60, 0), (3, 70, 0)")


def write(uri: str, key: int, *, flushes: bool = False) -> None:
    with mw.open_table(uri) as table, table.writer() as writer:
        writer.upsert({"id": [key], "n": [50], "m": [0]})
        if flushes:
            writer.flush()


# What another process does before a statement is committed, the rows that the statement reads, and
# the values that it leaves.
TAKEN: dict[str, tuple[Callable[[str], None], list[int], list[int]]] = {
    "a key": (partial(write, key=2), [3, 1], [11, 51, 31]),
    "another key": (partial(write, key=4), [3], [11, 21, 31, 50]),
    "a key, flushed": (partial(write, key=2, flushes=True), [3, 3], [11, 51, 31]),
    "all of them": (overwrite, [3, 3], [51, 61, 71]),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_statement_that_loses_its_region_reads_again_what_others_wrote(
    uri: str, other: Executor, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """It is all that it reads again, unless that is not in the log any more."""
    act, expected, values = TAKEN[name]
    table = mw.create_table(uri, SCHEMA, "id")
    acts = [lambda: other.submit(act, uri).result()]
    with TurnSeconds.set(local=0.1), table.writer() as writer:
        writer.upsert({"id": [1, 2, 3], "n": [10, 20, 30], "m": [0] * 3})
        found = counted(table, monkeypatch)
        before_commits(monkeypatch, lambda: acts and acts.pop()())
        writer.update({"n": "n + 1"})
        assert found == expected
    assert [n for n, _ in dict(sorted(live(mw.open_table(uri)).items())).values()] == values
