"""Sessions in another dialect of SQL, and what DataFusion leaves out of its plans."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import memwal_sql as mw
from memwal_native import SqlParser
from memwal_sql.arguments import literal
from memwal_sql.cli.exit_codes import ExitCode
from memwal_sql.session.clauses import check_clauses
from tests.cli.calls import call, failing

OTHERS = (
    *("MySQL", "PostgreSQL", "Hive", "SQLite", "Snowflake", "Redshift", "MsSQL", "ClickHouse"),
    *("BigQuery", "ANSI", "DuckDB", "Databricks", "Spark"),
)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> mw.Table:
    schema = pa.schema({"id": pa.int64(), "n": pa.int64(), "s": pa.string()})
    table = mw.create_table(tmp_path_factory.mktemp("dialects") / "t", schema, "id")
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": None, "s": "a"}, {"id": 2, "n": 5, "s": "b"}])
        writer.flush()
        writer.upsert([{"id": 3, "n": 5, "s": "a"}])
    return table


def test_a_session_in_another_dialect_is_refused(table: mw.Table) -> None:
    for dialect in OTHERS:
        config = datafusion.SessionConfig().set("datafusion.sql_parser.dialect", dialect)
        ctx = datafusion.SessionContext(config)
        mw.register(ctx, "t", table)
        for text in ("SELECT 1", "DELETE FROM t", "EXPLAIN SELECT 'it\\'s'", "SHOW TABLES"):
            with pytest.raises(mw.UnsupportedError, match=f"to 'generic'.*{dialect.lower()}"):
                mw.sql(ctx, text)
        ctx.sql("RESET datafusion.sql_parser.dialect").collect()
        assert mw.sql(ctx, "SELECT count(*) AS n FROM t").to_pydict() == {"n": [3]}


@given(text=st.text(st.sampled_from("\\'\"`$%_n/*-#\n é")))
@example("\\') UNION ALL SELECT 1 --")
@example("")
def test_a_text_is_written_as_it_is_read(text: str) -> None:
    written = literal(text)
    assert SqlParser.tokens(written) == [("string", text, 0, len(written))]


LEFT_OUT = [
    "TABLESAMPLE (1 PERCENT)",
    "SAMPLE 0.1",
    "PREWHERE n = 5",
    "FOR UPDATE",
    "WITH (NOLOCK)",
    "PARTITION (p0)",
    "START WITH id = 1 CONNECT BY PRIOR id = n",
    "GROUP BY id, n, s WITH ROLLUP",
    "GROUP BY id, n, s WITH CUBE",
    "GROUP BY id, n, s WITH TOTALS",
    "GROUP BY ALL WITH ROLLUP",
    "GROUP BY id, n, s GROUPING SETS ((id), ())",
    "CROSS JOIN LATERAL generate_series(1, 3) WITH ORDINALITY",
    "|> AGGREGATE count(*) AS c GROUP BY s DESC",
    "|> SELECT * ILIKE '%s%'",
]
QUERIES = [f"SELECT * FROM t {clause}" for clause in LEFT_OUT]
QUERIES += [
    "SELECT sum(2)(id) FROM t",
    "SELECT value FROM generate_series(1, 3, SETTINGS a = 1)",
]
QUERIES += ["SELECT * ILIKE '%s%' FROM t", "SELECT 1 AS one, t.* ILIKE '%s%' FROM t"]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(
    "statement",
    [
        "{}",
        "EXPLAIN {}",
        "SELECT * FROM ({}) AS x",
        "WITH a AS ({}) SELECT * FROM a",
        "INSERT INTO t {}",
        "COPY ({}) TO 'x.csv'",
    ],
)
def test_what_datafusion_would_leave_out_is_refused_in_sessions_of_our_own(
    table: mw.Table, query: str, statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    statement = statement.format(query)
    with pytest.raises(mw.UnsupportedError, match="leave it out"):
        check_clauses(SqlParser().statements(statement))
    assert "as if [" in failing("sql", table.uri, statement, code=ExitCode.CALL)
    assert len(table.scan().read_all()) == 3 and not list(tmp_path.iterdir())


@pytest.mark.parametrize("query", QUERIES)
def test_datafusion_does_leave_it_out(table: mw.Table, query: str) -> None:
    """Else it need not be refused."""
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", table)
    ctx.sql(query).collect()


def test_other_clauses_are_not(table: mw.Table) -> None:
    for query in (
        "SELECT * EXCLUDE (n) FROM t FINAL",
        "SELECT DISTINCT ON (s) s FROM t ORDER BY s LIMIT 3",
        "SELECT t.* EXCEPT (n, s), s FROM t",
        "SELECT * REPLACE (n + 1 AS n) FROM t WHERE s ILIKE '%A%'",
        "SELECT s, count(*) FROM t GROUP BY ROLLUP (s)",
        "SELECT * FROM t |> AGGREGATE count(*) AS c GROUP BY s |> ORDER BY s",
        "WITH a AS (SELECT * FROM t) SELECT * FROM a AS sample",
        "SELECT 'TABLESAMPLE (1 PERCENT)' AS x -- FOR UPDATE",
        "SELECT sum(id) FILTER (WHERE id > 1) OVER (PARTITION BY s) FROM t",
    ):
        check_clauses(SqlParser().statements(query))
        assert call("sql", table.uri, query)


MISREAD = [
    "n IS DISTINCT FROM 5 AND id < 2",
    "n IS NOT DISTINCT FROM 5 OR id < 2",
    "(n IS DISTINCT FROM id OR s = 'a') AND NOT n IS NOT DISTINCT FROM id AND true",
    "CASE WHEN id IS DISTINCT FROM n AND s = 'a' THEN true END",
]


@pytest.mark.parametrize("condition", MISREAD)
def test_comparisons_that_are_read_otherwise_are_refused(table: mw.Table, condition: str) -> None:
    """DataFusion compares with all of `b AND c` in `a IS DISTINCT FROM b AND c`."""
    ctx = mw.SessionContext()
    mw.register(ctx, "t", table)
    before = table.to_arrow()
    calls = [
        *(
            partial(mw.sql, ctx, text)
            for text in (
                f"SELECT * FROM t WHERE {condition}",
                f"EXPLAIN SELECT id FROM t JOIN (SELECT 1) ON {condition}",
                f"DELETE FROM t WHERE {condition}",
                f"UPDATE t SET n = 0 WHERE {condition}",
                f"INSERT INTO t SELECT * FROM t WHERE {condition}",
                "MERGE INTO t USING (SELECT 1 AS other) AS q ON t.id = q.other "
                f"WHEN MATCHED AND {condition} THEN DELETE",
            )
        ),
        partial(table.to_arrow, filter=condition),
    ]
    with table.writer() as writer:
        calls.append(partial(writer.update, {"n": "0"}, where=condition))
        calls.append(partial(writer.delete_where, condition))
        calls.append(partial(writer.update, {"n": f"CASE WHEN {condition} THEN 1 END"}))
        for one in calls:
            with pytest.raises(mw.UnsupportedError, match="into parentheses"):
                one()
    assert table.to_arrow() == before


def test_comparisons_in_parentheses_are_those_of_sql(table: mw.Table) -> None:
    ctx = mw.SessionContext()
    mw.register(ctx, "t", table)
    text = "SELECT id FROM t WHERE (n IS DISTINCT FROM 5) AND id < 2 OR id IS NOT DISTINCT FROM 3"
    assert {row["id"] for row in mw.sql(ctx, text).to_pylist()} == {1, 3}
    assert table.to_arrow(["id"], filter="(n IS DISTINCT FROM 5) AND id < 3")["id"].to_pylist() == [
        1
    ]
