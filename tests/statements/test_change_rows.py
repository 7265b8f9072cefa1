"""When statements that change rows run, what they leave in storage, and what they read."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import datafusion
import pytest

import memwal_sql as mw
from tests.each import each
from tests.model.process import as_another_process
from tests.statements.beside_duckdb import DUE, SCHEMA, live


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> Iterator[mw.Table]:
    table = mw.create_table(uri, SCHEMA, primary_key=["tenant", "id"], regions="bucket(tenant, 2)")
    yield mw.register(ctx, "t", table, "eventual")
    table.close()


def test_a_statement_runs_once_however_often_it_is_collected(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    ctx.sql("INSERT INTO t VALUES ('a', 1, 1, NULL), ('a', 2, 1, NULL)").collect()
    done = mw.sql(ctx, "UPDATE t SET n = n + $more WHERE id = $id", more=5, id=1)
    assert done.to_pylist() == done.to_pylist() == [{"count": 1}]
    assert [row["n"] for row in live(table)] == [6, 1]
    assert mw.sql(ctx, "TRUNCATE TABLE t;").to_pylist() == [{"count": 2}]
    assert live(table) == []
    assert mw.sql(ctx, "DELETE FROM t").to_pylist() == [{"count": 0}]


@each(
    "statement",
    [
        "UPDATE t SET n = n + 1",
        "INSERT INTO t (tenant, id, n) VALUES ('a', 1, 5), ('b', 3, 5)",
        "MERGE INTO t USING due AS s ON t.id = s.id AND t.tenant = 'a' WHEN MATCHED THEN DELETE",
        "DELETE FROM t WHERE id > 1",
    ],
)
def test_a_statement_is_durable_when_it_returns_whatever_writer_it_is_made_by(
    table: mw.Table, ctx: datafusion.SessionContext, statement: str
) -> None:
    ctx.register_batch("due", DUE.to_batches()[0].slice(3, 1))
    with table.writer(durable=False, wal_flush_interval_s=100.0) as writer:
        for tenant, key in (("a", 1), ("b", 2), ("a", 3)):
            writer.upsert([{"tenant": tenant, "id": key, "n": 1, "Name": None}])
        assert mw.sql(ctx, statement).to_pylist()[0]["count"] > 0
        expected = live(table)
        with as_another_process():
            assert live(mw.open_table(table.uri)) == expected
    ctx.deregister_table("due")


def test_a_table_that_stands_twice_is_read_in_one_snapshot(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    mw.register(ctx, "t", table)
    ctx.sql("INSERT INTO t VALUES ('a', 1, 1, NULL)").collect()
    both = mw.sql(ctx, "SELECT (SELECT count(*) FROM t) AS a, (SELECT count(*) FROM public.t) AS b")
    one = mw.sql(ctx, "SELECT t.n FROM t WHERE t.n = $n", n=1)
    assert [list(row.values()) for row in both.to_pylist()] == [[1, 1]]
    ctx.sql("INSERT INTO t VALUES ('b', 2, 1, NULL)").collect()
    assert [list(row.values()) for row in both.to_pylist()] == [[1, 1]]
    assert len(one.to_pylist()) == 2
    assert not [name for name in ctx.catalog().names() if "memwal" in name]


@pytest.mark.parametrize("catalog", ["own", "datafusion"])
def test_a_session_of_another_default_catalog_or_schema_is_refused(
    table: mw.Table, catalog: str
) -> None:
    config = datafusion.SessionConfig().with_default_catalog_and_schema(catalog, "main")
    ctx = datafusion.SessionContext(config)
    mw.register(ctx, "t", table)
    for statement in ("SELECT * FROM t", "UPDATE t SET n = 1", "INSERT INTO t (id) VALUES (1)"):
        with pytest.raises(mw.UnsupportedError, match=r"datafusion\.public"):
            mw.sql(ctx, statement)
    assert ctx.sql("SELECT * FROM t").to_pylist() == []


def test_counters_count_right_beside_one_another(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    """Three threads add by three kinds of statements, a fourth flushes and merges."""
    add = "(tenant, id, n) VALUES ('a', $id, 1)"
    met = "ON t.tenant = s.k AND t.id = s.i"
    statements = [
        f"INSERT INTO t {add} ON CONFLICT DO UPDATE SET n = t.n + excluded.n",
        f"MERGE INTO t USING (SELECT 'a' AS k, $id AS i) AS s {met} WHEN MATCHED THEN "
        "UPDATE SET n = t.n + 1 WHEN NOT MATCHED THEN INSERT (tenant, id, n) VALUES (s.k, s.i, 1)",
        "UPDATE t SET n = n + 1 WHERE id = $id AND tenant = 'a'",
    ]
    mw.sql(ctx, "INSERT INTO t (tenant, id, n) VALUES ('a', 0, 0), ('a', 1, 0)")
    turns = 8

    def run(statement: str) -> None:
        own = datafusion.SessionContext()
        mw.register(own, "t", table)
        for turn in range(turns):
            mw.sql(own, statement, id=turn % 3 if "UPDATE t" not in statement else turn % 2)

    with ThreadPoolExecutor(len(statements)) as pool:
        running = [pool.submit(run, statement) for statement in statements]
        while not all(one.done() for one in running):
            table.flush()
            table.merge()
        for one in running:
            one.result()
    assert sum(row["n"] for row in live(table)) == turns * len(statements)
