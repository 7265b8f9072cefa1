"""`excluded`, the row given, in expressions of ON CONFLICT DO UPDATE: against DuckDB."""

import datafusion
import duckdb
import pyarrow as pa
import pytest

import memwal_sql as mw

SCHEMA = pa.schema({"a": pa.int64(), "v": pa.int64(), "m": pa.int64(), "s": pa.string()})
OLD = "(1, 1, 5, 'x'), (2, 3, NULL, 'y'), (3, -4, 7, NULL)"
NEW = "(1, 2, 5, 'X'), (2, 3, 1, 'z'), (3, 4, NULL, 'w'), (4, 4, 4, 'v')"
# Over both rows: a condition, or a value.
CONDITIONS = (
    "t.v = excluded.v - 1",
    "t.v = abs(excluded.v)",
    "t.v = -excluded.v",
    "t.v = coalesce(excluded.v, 0) AND t.m = excluded.m",
    "t.v + t.m = excluded.v + excluded.m - 1",
    "lower(excluded.s) = t.s",
    "excluded.v + 0 = t.v OR t.m IS NULL",
    "t.v IN (excluded.v, excluded.m - 6)",
    "t.v < excluded.v AND excluded.m IS DISTINCT FROM t.m",
    "EXCLUDED . v = (SELECT max(o.v) FROM t AS o WHERE o.a = excluded.a - 1) + 2",
)
VALUES = ("excluded.v + v", 'CASE WHEN excluded."m" = m THEN a ELSE excluded.a + v END')


@pytest.fixture
def ctx(uri: str) -> datafusion.SessionContext:
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", mw.create_table(uri, SCHEMA, primary_key="a"))
    mw.sql(ctx, f"INSERT INTO t VALUES {OLD}")
    return ctx


@pytest.mark.parametrize("condition", CONDITIONS)
@pytest.mark.parametrize("value", VALUES)
def test_excluded_is_a_row_of_columns(
    ctx: datafusion.SessionContext, condition: str, value: str
) -> None:
    beside = duckdb.connect()
    beside.execute("CREATE TABLE t (a bigint PRIMARY KEY, v bigint, m bigint, s text)")
    beside.execute(f"INSERT INTO t VALUES {OLD}")
    statement = (
        f"INSERT INTO t VALUES {NEW} ON CONFLICT (a) DO UPDATE SET v = {value} WHERE {condition}"
    )
    if "SELECT max" in condition:  # which DuckDB refuses: what it comes to for these rows
        beside.execute(statement.replace(condition, "t.a = 2"))
    else:
        beside.execute(statement)
    mw.sql(ctx, statement)
    mine = mw.sql(ctx, "SELECT a, v, m, s FROM t ORDER BY a").to_pylist()
    assert [tuple(row.values()) for row in mine] == beside.sql("FROM t ORDER BY a").fetchall()


def test_columns_named_like_those_of_the_rows_given_are_the_tables(uri: str) -> None:
    schema = pa.schema({"a": pa.int64(), "memwal given a": pa.int64(), "excluded": pa.int64()})
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", mw.create_table(uri, schema, primary_key="a"))
    set_all = 'SET excluded = excluded + excluded.excluded, "memwal given a" = excluded.a'
    statement = f"INSERT INTO t VALUES (1, 2, 3) ON CONFLICT DO UPDATE {set_all}"
    mw.sql(ctx, statement)
    mw.sql(ctx, statement)
    assert [tuple(r.values()) for r in mw.sql(ctx, "SELECT * FROM t").to_pylist()] == [(1, 1, 6)]


@pytest.mark.parametrize(
    "clause",
    [
        "SET v = excluded.^nope",
        "SET v = excluded.^m",
        "SET v = (SELECT max(excluded.^w) FROM t)",
        "SET v = ^excluded",
    ],
)
def test_faults_have_their_places(ctx: datafusion.SessionContext, clause: str) -> None:
    marked = f"INSERT INTO t (a, v) VALUES (1, 2) ON CONFLICT DO UPDATE {clause}"
    with pytest.raises(mw.InvalidCallError, match=f"column {marked.index('^') + 1}: ") as error:
        mw.sql(ctx, marked.replace("^", ""))
    assert "memwal" not in str(error.value)


def test_types_that_do_not_go_together_are_told_by_the_users_names(
    ctx: datafusion.SessionContext,
) -> None:
    statement = (
        "INSERT INTO t VALUES (1, 2, 3, 'x') ON CONFLICT DO UPDATE SET v = excluded.s + true"
    )
    with pytest.raises(mw.InvalidCallError) as error:
        mw.sql(ctx, statement)
    assert "memwal" not in str(error.value)
