"""What each level of isolation lets through: write skew and phantoms, never lost updates."""

from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.statements.conftest import Meanwhile
from tests.statements.other_process import connect, run, run_listed_before
from tests.write.conditional.committing import before_commits

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("here", pa.bool_())])
# Each may leave only while somebody else is here.
LEAVE = "UPDATE t SET here = false WHERE id = $id AND (SELECT count(*) FROM t WHERE here) > 1"


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> Iterator[mw.Table]:
    table = mw.create_table(uri, SCHEMA, primary_key="id", regions="identity(id)")
    mw.register(ctx, "t", table)
    mw.sql(ctx, "INSERT INTO t VALUES (1, true), (2, true)")
    yield table
    table.close()


def here(table: mw.Table) -> list[int]:
    return sorted(row["id"] for row in table.to_arrow(filter="here").to_pylist())


def test_every_object_of_a_session_has_its_isolation() -> None:
    ctx = datafusion.SessionContext.global_ctx()
    mw.sql(ctx, "SET memwal.isolation = 'serializable'")
    try:
        for other in (datafusion.SessionContext.global_ctx(), ctx.enable_url_table()):
            assert mw.sql(other, "SHOW memwal.isolation").to_pylist()[0]["value"] == "serializable"
    finally:
        mw.sql(ctx, "RESET memwal.isolation")
    assert mw.sql(ctx, "SHOW memwal.isolation").to_pylist()[0]["value"] == "snapshot"


@pytest.mark.parametrize(("level", "left"), [("snapshot", 0), ("serializable", 1)])
def test_two_statements_that_read_what_the_other_writes(
    table: mw.Table, ctx: datafusion.SessionContext, meanwhile: Meanwhile, level: str, left: int
) -> None:
    mw.sql(ctx, f"SET memwal.isolation = '{level}'")
    meanwhile(lambda: mw.sql(ctx, LEAVE, id=2))
    mw.sql(ctx, LEAVE, id=1)
    assert len(here(table)) == left


@pytest.mark.parametrize(("level", "left"), [("snapshot", [3]), ("serializable", [])])
def test_a_row_that_begins_to_meet_the_condition_meanwhile(
    table: mw.Table,
    ctx: datafusion.SessionContext,
    meanwhile: Meanwhile,
    level: str,
    left: list[int],
) -> None:
    """In a region of its own, which is made then."""
    mw.sql(ctx, f"SET memwal.isolation TO {level}")
    meanwhile(lambda: ctx.sql("INSERT INTO t VALUES (3, true)").collect())
    mw.sql(ctx, "UPDATE t SET here = false WHERE here")
    assert here(table) == left


def test_processes_that_took_a_region_of_each_other_before_they_read(
    table: mw.Table,
    ctx: datafusion.SessionContext,
    meanwhile: Meanwhile,
    uri: str,
    other: Executor,
) -> None:
    """Each still holds the region that it writes, and not the one that it reads."""
    table.close()
    other.submit(connect, {"t": uri}).result()
    other.submit(run, "INSERT INTO t VALUES (1, true)").result()
    mw.sql(ctx, "SET memwal.isolation = 'serializable'")
    mw.sql(ctx, "INSERT INTO t VALUES (2, true)")
    left: list[Future[object]] = []
    meanwhile(lambda: left.append(other.submit(run, LEAVE.replace("$id", "2"))) or wait(left))
    mw.sql(ctx, LEAVE, id=1)
    assert left[0].result() == [{"count": 1}]
    assert here(table) == [1]


def test_processes_that_make_regions_at_the_same_time(
    table: mw.Table,
    ctx: datafusion.SessionContext,
    uri: str,
    other: Executor,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each lists the regions before the other's is made, and inserts where the other has not."""
    table.close()
    insert = "INSERT INTO t SELECT $id, true WHERE NOT EXISTS (SELECT id FROM t WHERE id > 2)"
    other.submit(connect, {"t": uri}).result()
    mw.sql(ctx, "SET memwal.isolation = 'serializable'")
    left = list[object]()

    def insert_elsewhere() -> None:
        if not left:  # this one has read, and made its region
            left.append(other.submit(run_listed_before, insert.replace("$id", "4")).result())

    before_commits(monkeypatch, insert_elsewhere)
    mw.sql(ctx, insert, id=3)
    assert left and len([key for key in here(table) if key > 2]) == 1


@pytest.mark.parametrize(("level", "left"), [("snapshot", [3]), ("serializable", [])])
def test_a_region_that_another_thread_makes_when_all_regions_are_claimed(
    table: mw.Table,
    ctx: datafusion.SessionContext,
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    left: list[int],
) -> None:
    """After the statement has read, and before others can't write."""
    mw.sql(ctx, f"SET memwal.isolation TO {level}")
    others = ["INSERT INTO t VALUES (3, true)"]

    def insert() -> None:
        with ThreadPoolExecutor(1) as other:
            while others:
                other.submit(ctx.sql(others.pop()).collect).result()

    before_commits(monkeypatch, insert)
    mw.sql(ctx, "UPDATE t SET here = false WHERE here")
    assert here(table) == left


def test_serializable_calls_of_a_writer(table: mw.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table.close()
    with table.writer() as writer:
        read = table.get
        calls = [lambda: writer.upsert([{"id": 1, "here": False}])]

        def get(*args: object) -> pa.Table:
            found = read(*args)
            if calls:
                calls.pop()()
            return found

        monkeypatch.setattr(table, "get", get)
        skipped = writer.upsert([{"id": 1, "here": True}], when="NOT t.here")
        assert (skipped.skipped, here(table)) == (1, [2])
        writer.upsert([{"id": 1, "here": True}])
        calls.append(lambda: writer.upsert([{"id": 1, "here": False}]))
        written = writer.upsert(
            [{"id": 1, "here": True}], when="NOT t.here", isolation="serializable"
        )
        assert (written.rows, here(table)) == (1, [1, 2])
        updated = writer.update({"here": "false"}, where="id = 2", isolation="serializable")
        deleted = writer.delete_where("here", isolation="serializable")
        assert (updated.rows, deleted.rows, here(table)) == (1, 1, [])
        assert writer.delete([2], when="NOT t.here", isolation="serializable").rows == 1


def test_other_levels_of_a_writer_are_refused(table: mw.Table) -> None:
    with table.writer() as writer, pytest.raises(mw.InvalidCallError, match="isolation='x'"):
        writer.update({"here": "true"}, isolation="x")
