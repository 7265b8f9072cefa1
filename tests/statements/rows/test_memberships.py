"""A DELETE by IN and NOT IN of subqueries with NULLs deletes what DuckDB deletes, or is refused."""

from pathlib import Path

import datafusion
import duckdb
import pyarrow as pa
import pytest

import memwal_sql as mw

ROWS = pa.table({"a": [1, 2, 3, 5], "n": pa.array([1, 2, None, None], pa.int64())})
OTHERS = pa.table({"k": [1, 2, 3, 3], "m": pa.array([1, None, 3, None], pa.int64())})
TAKEN = (
    "a IN (SELECT m FROM o)",
    "a = 3 OR n IN (SELECT m FROM o)",
    "a NOT IN (SELECT m FROM o)",
    "a NOT IN (SELECT m FROM o WHERE m IS NOT NULL)",
    "n NOT IN (SELECT k FROM o) AND a > 0",
    "NOT (n IN (SELECT k FROM o x WHERE x.k > 1))",
    "NOT n IN (SELECT o.k FROM o)",
    "a + 1 NOT IN (SELECT k FROM o)",
    "a NOT IN (SELECT k FROM o WHERE k NOT IN (SELECT m FROM o))",
    "EXISTS (SELECT 1 FROM o WHERE o.k = t.a AND o.m IN (SELECT n FROM t))",
    "NOT (EXISTS (SELECT 1 FROM o WHERE o.k = t.a AND o.m IN (SELECT n FROM t)))",
    "(a IN (SELECT m FROM o)) IS TRUE",
    "5 <> ALL (SELECT m FROM o)",
    "a = 1 OR n <> ALL (SELECT m FROM o)",
)
REFUSED = (
    "5 NOT IN (SELECT m FROM o)",
    "NOT 5 IN (SELECT m FROM o)",
    "a = 1 OR n NOT IN (SELECT m FROM o)",
    "a = 1 OR NOT (n IN (SELECT m FROM o))",
    "NOT (a = 5 AND n IN (SELECT m FROM o))",
    "n NOT IN (SELECT m FROM o WHERE o.k = t.a)",
    "n NOT IN (SELECT m FROM o AS t2 WHERE t2.k IN (SELECT t.a))",
    "(a IN (SELECT m FROM o)) IS NULL",
    "(a IN (SELECT m FROM o)) IS NOT FALSE",
    "CASE WHEN a > 1 THEN n NOT IN (SELECT m FROM o) END",
    "a IN (SELECT k FROM o WHERE k = 1 OR m NOT IN (SELECT n FROM t))",
    'n NOT IN (SELECT m FROM o AS "T" WHERE "T".k = t.a)',
    "n NOT IN (SELECT m FROM o AS x WHERE X.k = T.a)",
)


@pytest.fixture
def ctx(tmp_path: Path) -> datafusion.SessionContext:
    """A session with both tables."""
    ctx = datafusion.SessionContext()
    for name, rows, key in (("t", ROWS, "a"), ("o", OTHERS, None)):
        if key is None:
            ctx.register_record_batches(name, [rows.to_batches()])
            continue
        table = mw.create_table(tmp_path / name, rows.schema, primary_key=key)
        with table.writer() as writer:
            writer.upsert(rows)
        mw.register(ctx, name, table)
    return ctx


def _left(condition: str) -> list[int]:
    with duckdb.connect() as database:
        for name, rows in (("rows", ROWS), ("others", OTHERS)):
            database.register(name, rows)
        database.execute("CREATE TABLE t AS FROM rows; CREATE TABLE o AS FROM others")
        database.execute(f"DELETE FROM t WHERE {condition}")
        return [a for (a,) in database.execute("SELECT a FROM t ORDER BY a").fetchall()]


@pytest.mark.parametrize("condition", TAKEN)
def test_what_is_taken_deletes_what_duckdb_deletes(
    ctx: datafusion.SessionContext, condition: str
) -> None:
    mw.sql(ctx, f"DELETE FROM t WHERE {condition}")
    left = mw.sql(ctx, "SELECT a FROM t ORDER BY a").to_pydict()["a"]
    assert left == _left(condition)


@pytest.mark.parametrize("condition", REFUSED)
def test_what_datafusion_would_answer_wrongly_is_refused(
    ctx: datafusion.SessionContext, condition: str
) -> None:
    for statement in (
        f"DELETE FROM t WHERE {condition}",
        f"UPDATE t SET n = 7 WHERE {condition}",
        f"MERGE INTO t USING (SELECT * FROM t WHERE {condition}) AS s ON t.a = s.a "
        "WHEN MATCHED THEN DELETE",
    ):
        with pytest.raises(mw.UnsupportedError, match="<> ALL"):
            mw.sql(ctx, statement)
    assert mw.sql(ctx, "SELECT * FROM t").to_arrow_table().num_rows == len(ROWS)
