"""When statements that change rows run, what they leave in storage, and what they read."""

from collections.abc import Iterator

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
