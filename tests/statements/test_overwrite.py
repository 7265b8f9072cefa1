"""INSERT OVERWRITE of what its query makes of the same table, beside other writers."""

from collections.abc import Iterator

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.statements.conftest import Between

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
# Rows of every region, and one of a region that is new.
OTHERS = [{"id": 1, "n": 100}, {"id": 7, "n": 7}]
# Adds 1 to every row; `seen` is 0, and makes the other calls after the row was read.
QUERY = "SELECT id, n + 1 + seen(n) FROM t"


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> Iterator[mw.Table]:
    table = mw.create_table(uri, SCHEMA, primary_key="id", regions="identity(id)")
    mw.register(ctx, "t", table)
    mw.sql(ctx, "INSERT INTO t VALUES (1, 10), (2, 20)")
    mw.sql(ctx, "CREATE TABLE given AS SELECT * FROM (VALUES (1), (2), (7)) AS v(id)")
    yield table
    table.close()


def live(table: mw.Table) -> dict[int, int]:
    return {row["id"]: row["n"] for row in table.to_arrow().to_pylist()}


def upsert(uri: str, rows: list[dict[str, int]], *, flushes: bool = False) -> None:
    with mw.open_table(uri) as other, other.writer() as writer:
        writer.upsert(rows)
        if flushes:
            writer.flush()


def test_what_others_write_while_it_reads_the_table_is_read_again(
    table: mw.Table, ctx: datafusion.SessionContext, between: Between, uri: str
) -> None:
    for flushes in (False, True):
        mw.sql(ctx, "INSERT OVERWRITE t VALUES (1, 10), (2, 20)")
        between(lambda flushes=flushes: upsert(uri, OTHERS, flushes=flushes))
        assert mw.sql(ctx, f"INSERT OVERWRITE t {QUERY}").to_pylist() == [{"count": 3}]
        assert live(table) == {1: 101, 2: 21, 7: 8}


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        ("UPDATE t SET n = n + 1 + seen(n)", {1: 6}),
        ("DELETE FROM t WHERE seen(n) = 0", {}),
        ("INSERT INTO t (id, n) SELECT id, n + 1 + seen(n) FROM t", {1: 6}),
        (
            "MERGE INTO t USING given AS g ON t.id = g.id "
            "WHEN MATCHED THEN UPDATE SET n = t.n + 1 + seen(t.n)",
            {1: 6},
        ),
    ],
)
def test_a_statement_whose_rows_are_replaced_meanwhile_reads_the_new_ones(
    table: mw.Table,
    ctx: datafusion.SessionContext,
    between: Between,
    statement: str,
    after: dict[int, int],
) -> None:
    between(lambda: mw.sql(ctx, "INSERT OVERWRITE t VALUES (1, 5)"))
    assert mw.sql(ctx, statement).to_pylist()[0]["count"] == 1
    assert live(table) == after


def test_merges_and_rows_of_the_base_table_meanwhile(
    table: mw.Table, ctx: datafusion.SessionContext, between: Between, uri: str
) -> None:
    def changes_the_base() -> None:
        table.merge()
        lance.write_dataset(pa.table({"id": [9], "n": [9]}, SCHEMA), uri, mode="append")

    between(changes_the_base)
    mw.sql(ctx, f"INSERT OVERWRITE t {QUERY}")
    assert live(table) == {1: 11, 2: 21, 9: 10}


def test_who_keeps_writing_ends_it_with_an_error_and_nothing_is_replaced(
    table: mw.Table,
    ctx: datafusion.SessionContext,
    between: Between,
    uri: str,
    no_pauses: None,
) -> None:
    for n in range(100):
        between(lambda n=n: upsert(uri, [{"id": 1, "n": n}]))
    with pytest.raises(mw.RetryError, match="came in between 20 times"):
        mw.sql(ctx, f"INSERT OVERWRITE t {QUERY}")
    found = live(table)
    assert found[2] == 20
    assert 0 < found[1] < 100


def test_a_query_about_others_replaces_what_came_while_it_ran(
    table: mw.Table, ctx: datafusion.SessionContext, between: Between, uri: str
) -> None:
    """As if they had come before it."""
    between(lambda: upsert(uri, OTHERS))
    mw.sql(ctx, "INSERT OVERWRITE t SELECT id, seen(id) FROM given")
    assert live(table) == {1: 0, 2: 0, 7: 0}
    between(lambda: upsert(uri, OTHERS))
    past = f"VERSION AS OF {table.version}"
    mw.sql(ctx, f"INSERT OVERWRITE t SELECT id, 1 + seen(n) FROM t {past}")
    assert live(table) == {1: 1, 2: 1, 7: 1}


def test_rows_that_are_read_lazily_are_read_again(table: mw.Table, uri: str) -> None:
    calls = [lambda: upsert(uri, OTHERS)]

    def doubled() -> pa.Table:
        found = table.to_arrow().to_pylist()
        if calls:
            calls.pop()()
        return pa.Table.from_pylist([{"id": one["id"], "n": 2 * one["n"]} for one in found], SCHEMA)

    table.replace_rows(doubled)
    assert live(table) == {1: 200, 2: 40, 7: 14}
