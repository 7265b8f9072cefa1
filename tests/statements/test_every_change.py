"""What holds for every statement that changes rows."""

from collections.abc import Iterator

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("n", pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", "UTC")),
    ]
)
# With a parameter each, and the rows (id, n) that are there afterwards.
STATEMENTS = {
    "DELETE FROM t WHERE n = $1": [(2, 20)],
    "UPDATE t SET n = n + $1": [(1, 20), (2, 30)],
    "UPDATE t SET id = id + $1": [(11, 10), (12, 20)],
    "INSERT INTO t VALUES (3, $1, now())": [(1, 10), (2, 20), (3, 10)],
    "INSERT INTO t (id, n) VALUES (2, $1)": [(1, 10), (2, 10)],
    "INSERT INTO t BY NAME SELECT 4 AS id, $1 AS n": [(1, 10), (2, 20), (4, 10)],
    "INSERT INTO t SELECT id, 0, NULL FROM t ON CONFLICT DO UPDATE SET n = t.n + $1": [
        (1, 20),
        (2, 30),
    ],
    "INSERT INTO t (id, n) VALUES (1, $1), (5, $1) ON CONFLICT DO NOTHING": [
        (1, 10),
        (2, 20),
        (5, 10),
    ],
    "INSERT OVERWRITE t SELECT 6, $1, NULL": [(6, 10)],
    "REPLACE INTO t (id, n) VALUES (1, 2 * $1)": [(1, 20), (2, 20)],
    "MERGE INTO t USING (SELECT 2 AS id, $1 AS n) AS s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED BY SOURCE AND t.n = $1 THEN DELETE": [
        (2, 10)
    ],
}


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> Iterator[mw.Table]:
    table = mw.create_table(uri, SCHEMA, primary_key="id")
    mw.register(ctx, "t", table)
    mw.sql(ctx, "INSERT INTO t VALUES (1, 10, NULL), (2, 20, NULL)")
    yield table
    table.close()


def live(table: mw.Table) -> list[tuple[int, int]]:
    return sorted((row["id"], row["n"]) for row in table.to_arrow().to_pylist())


@pytest.mark.parametrize("statement", STATEMENTS)
def test_it_runs_where_it_was_prepared_and_explain_writes_nothing(
    table: mw.Table, ctx: datafusion.SessionContext, statement: str
) -> None:
    before = live(table)
    explained = mw.sql(ctx, f"EXPLAIN {statement}", **{"1": 10}).to_pylist()
    assert explained[-1]["plan_type"] == "physical_plan"
    with pytest.raises(mw.UnsupportedError, match="would run the"):
        mw.sql(ctx, f"EXPLAIN ANALYZE {statement}", **{"1": 10})
    assert live(table) == before
    mw.sql(ctx, statement, **{"1": 10})
    assert live(table) == STATEMENTS[statement]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_it_may_have_queries_before_it_and_answers_returning(
    table: mw.Table, ctx: datafusion.SessionContext, statement: str
) -> None:
    text = statement.replace("$1", "(SELECT ten FROM w)")
    found = mw.sql(ctx, f"WITH w AS (SELECT 10 AS ten) {text} RETURNING id, n * 2 AS twice, t.n")
    rows = {(row["id"], row["n"]) for row in found.to_pylist()}
    assert all(row["twice"] == 2 * row["n"] for row in found.to_pylist())
    after = STATEMENTS[statement]
    assert live(table) == after
    changed = {(1, 10), (2, 20)} ^ set(after)
    assert {one for one in changed if one in after} <= rows <= changed | set(after)


@each("returning", ["", "RETURNING *", "RETURNING nope", "RETURNING 1 / (n - n)"])
@each(
    "statement",
    [
        "INSERT INTO t (id) VALUES (3)",
        "INSERT INTO t VALUES (1, NULL, NULL)",
        "REPLACE INTO t (id) VALUES (1)",
        "INSERT OVERWRITE t (id) VALUES (1)",
        "UPDATE t SET n = NULL",
        "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = NULL",
        "MERGE INTO t USING t AS s ON t.id = s.id + 7 WHEN NOT MATCHED THEN "
        "INSERT (id) VALUES (s.id + 7)",
    ],
)
def test_what_is_required_is_not_written_as_null(
    table: mw.Table, ctx: datafusion.SessionContext, statement: str, returning: str
) -> None:
    before = live(table)
    with pytest.raises(mw.InvalidCallError, match=r"'n' is not nullable|nope"):
        mw.sql(ctx, f"{statement} {returning}")
    assert live(table) == before
