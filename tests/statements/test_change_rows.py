"""DELETE, UPDATE and TRUNCATE, against the same statements in DuckDB."""

import datafusion
import pytest

import memwal_sql as mw
from tests.each import each
from tests.model.process import as_another_process
from tests.soak import SOAK
from tests.statements.beside_duckdb import DUE, SCHEMA, BesideDuckDB, live
from tests.statements.conftest import Meanwhile

STATEMENTS = [
    "DELETE FROM t WHERE id = 3",
    "DELETE FROM t AS z WHERE z.n > 5 AND z.tenant = 'a'",
    "delete from t where id in (select id from due where n = 2)",
    "DELETE FROM t WHERE id NOT IN (SELECT id FROM due WHERE id IS NOT NULL) AND n < 3",
    "DELETE FROM t WHERE EXISTS (SELECT 1 FROM due WHERE due.id = t.id AND due.n = 1)",
    "DELETE FROM t WHERE NOT EXISTS (SELECT 1 FROM due d WHERE d.id = t.id) AND t.n = 4",
    "DELETE FROM t WHERE n > (SELECT avg(n) + 4 FROM t)",
    "DELETE FROM t USING due WHERE t.id = due.id AND due.n = 3",
    "DELETE FROM t USING due WHERE t.id = due.id RETURNING *",
    "DELETE FROM t AS z WHERE n = 1 RETURNING z.id + 1 AS next, tenant || 'x'",
    "WITH d AS (SELECT max(id) AS m FROM due) DELETE FROM t USING d WHERE t.id = d.m RETURNING id",
    "WITH d AS (SELECT id FROM due) UPDATE t SET n = 3 WHERE id IN (SELECT id FROM d) RETURNING *",
    'UPDATE t SET n = n + 2 WHERE id > 3 RETURNING id, n * 2, "Name"',
    "UPDATE t SET id = id + 100 WHERE n = 3 RETURNING *",
    "UPDATE t SET id = id - 1, n = 5 WHERE id > 90",
    "UPDATE t SET n = n + 1",
    'UPDATE t SET n = 7, "Name" = \'x\' || "Name" WHERE id < 4',
    'UPDATE t SET "Name" = NULL WHERE id = 5 AND n IS DISTINCT FROM 2',
    "UPDATE t SET n = (SELECT max(n) FROM due) WHERE t.id = 1",
    "UPDATE t SET n = (SELECT max(x) FROM (SELECT unnest([1, 2]) AS x)) WHERE t.id = 1",
    "UPDATE t SET n = (SELECT max(due.n) FROM due WHERE due.id = t.id) WHERE id IN (1, 2)",
    "UPDATE t SET n = 0 WHERE n > (SELECT avg(n) FROM t)",
    "UPDATE t SET n = d.n FROM (SELECT id, max(n) AS n FROM due GROUP BY id) d WHERE t.id = d.id",
    "UPDATE t SET n = CASE WHEN \"Name\" IS DISTINCT FROM 'b' THEN 1 ELSE 2 END WHERE id > 6",
]


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, primary_key=["tenant", "id"], regions="bucket(tenant, 2)")
    return mw.register(ctx, "t", table, "eventual")


@pytest.mark.parametrize("seed", range(SOAK))
def test_statements_do_what_duckdb_does(
    table: mw.Table, ctx: datafusion.SessionContext, seed: int
) -> None:
    both = BesideDuckDB(table, ctx, seed)
    for statement in both.random.sample(STATEMENTS, len(STATEMENTS)):
        both.check(statement)
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
    table.close()


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


def test_no_update_of_a_row_is_lost_to_one_that_came_meanwhile(
    table: mw.Table, ctx: datafusion.SessionContext, meanwhile: Meanwhile
) -> None:
    ctx.sql("INSERT INTO t VALUES ('a', 1, 1, NULL), ('b', 2, 1, NULL)").collect()
    meanwhile("UPDATE t SET n = n + 10 WHERE id = 1")
    assert mw.sql(ctx, "UPDATE t SET n = n + 100").to_pylist() == [{"count": 2}]
    assert [row["n"] for row in live(table)] == [111, 101]
    table.close()


@each(
    "statement, message",
    [
        ("UPDATE t SET n = 1, n = 2", "set twice, at line 1, column 21"),
        ("UPDATE t SET x = 1", "no such column"),
        ("UPDATE t SET (n, id) = (1, 2)", "column = value, at line 1, column 14"),
        ("UPDATE t SET z.n = 1", "'z' is not the table"),
        ("UPDATE t SET n 1", "Expected: =, found: 1"),
        ("UPDATE t SET n =", "an expression"),
        ("UPDATE t\nSET", "identifier, .*, at line 2, column 4: the end"),
        ("UPDATE t WHERE n = 1", "Expected: SET"),
        ("DELETE FROM t RETURNING", "an expression"),
        ("UPDATE t SET n = 2 RETURNING DISTINCT n", "found: n|DISTINCT"),
        ("DELETE FROM t WHERE n = 1 LIMIT 1", "can't have this clause"),
        ("DELETE FROM t WHERE nope = 1", "nope"),
        ("WITH t AS (SELECT 1 AS id) DELETE FROM t WHERE id = 1", "WITH has a query of this name"),
        ("DELETE FROM t USING WHERE n = 1", "found: WHERE|identifier|n"),
        ("DELETE FROM t WHERE id < 0 UNION SELECT tenant, id FROM t", "UNION"),
        ("DELETE FROM t WHERE n = 1 GROUP BY tenant, id", "GROUP"),
        ("DELETE FROM t WHERE n = 1 OFFSET 1", "OFFSET"),
        ("UPDATE t SET n = 2 WHERE id < 0 EXCEPT SELECT * FROM t", "EXCEPT"),
        ("UPDATE t SET n = 2 WHERE n = 1 QUALIFY true", "QUALIFY"),
        ("DELETE FROM t USING t AS u UNION SELECT tenant, id FROM t", "column 28: 'UNION'"),
        ("DELETE FROM t USING t AS u GROUP BY tenant, id", "in"),
        ("DELETE FROM t RETURNING unnest([1, 2])", "one row for each"),
        ("DELETE FROM t AS z USING t AS u WHERE u.id = z.id RETURNING u.*", "columns of 'z'"),
        ("TRUNCATE t, u", "the end of the statement"),
        ("UPDATE t SET n = d.n FROM (VALUES (1), (2)) AS d(n)", "more than once"),
        ("UPDATE t SET n = unnest(make_array())", "to one value.* column 18: 'unnest'"),
        ('UPDATE t SET n = 1 + "unnest"([n])', "to one value"),
        ("UPDATE t SET n = (SELECT 1) + (1 * UNNEST([1]))", "to one value"),
        ("UPDATE t SET n = 1.5", "1.5"),
        ("UPDATE t SET n = 'x'", "x"),
    ],
)
def test_what_can_not_be_done_is_refused_and_nothing_written(
    table: mw.Table, ctx: datafusion.SessionContext, statement: str, message: str
) -> None:
    ctx.sql("INSERT INTO t VALUES ('a', 1, 1, NULL)").collect()
    with pytest.raises((mw.InvalidCallError, mw.UnsupportedError), match=f"(?s){message}"):
        mw.sql(ctx, statement)
    assert [row["n"] for row in live(table)] == [1]
    table.close()


def test_another_table_by_the_name_of_the_one_that_is_changed_is_refused(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    """As either could be meant by its columns."""
    ctx.sql("INSERT INTO t VALUES ('a', 1, 1, NULL), ('a', 2, 2, NULL)").collect()
    ctx.register_batch("due", DUE.to_batches()[0])
    for name in ("t", "public.t", "T", "t AS a"):
        column = name[-1].lower()
        for other in ("due AS {}", "due {}", "due AS d, due AS {}", "(SELECT * FROM due) {}"):
            second = other.format(column)
            for text in (
                f"DELETE FROM {name} USING {second} WHERE {column}.id = 1",
                f"UPDATE {name} SET n = 9 FROM {second} WHERE {column}.id = 1",
            ):
                with pytest.raises(mw.InvalidCallError, match="duplicate qualified field name"):
                    mw.sql(ctx, text)
    assert [row["n"] for row in live(table)] == [1, 2]
    table.close()


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
    table.close()


def test_other_statements_and_tables_are_left_to_datafusion(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    mw.sql(ctx, "CREATE TABLE plain AS VALUES (1)")
    with pytest.raises(mw.InvalidCallError):
        mw.sql(ctx, "DELETE FROM nowhere")
    assert mw.sql(ctx, "SELECT * FROM plain").to_pylist() == [{"column1": 1}]
    table.close()


def test_what_datafusion_does_not_run_is_refused_when_it_is_called(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    for statement, words in {
        "SAVEPOINT a": "leaves what the transaction",
        "VACUUM t": "collect_garbage",
        "OPTIMIZE t": "memwal.compact",
        "USE lake": "Unsupported",
        "CALL other.job()": "Unsupported",
    }.items():
        with pytest.raises(mw.UnsupportedError, match=words):
            mw.sql(ctx, statement)
    table.close()


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
    table.close()


@pytest.mark.parametrize(
    "name", ["datafusion.catalog.default_catalog", "DATAFUSION.catalog.Default_Schema"]
)
def test_another_default_catalog_is_refused(
    table: mw.Table, ctx: datafusion.SessionContext, name: str
) -> None:
    with pytest.raises(mw.UnsupportedError, match=r"datafusion\.public"):
        mw.sql(ctx, f"SET {name} = 'lake'")
    mw.sql(ctx, "SET datafusion.execution.batch_size = 100")
    assert mw.sql(ctx, "INSERT INTO t VALUES ('a', 1, 1, NULL)").to_pylist() == [{"count": 1}]
    table.close()
