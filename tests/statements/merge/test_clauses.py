"""MERGE, against the same statements in DuckDB."""

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.statements.changes import reading
from memwal_sql.statements.queries import query_frames
from tests.soak import SOAK, usual
from tests.statements.beside_duckdb import BesideDuckDB, live
from tests.statements.conftest import Meanwhile

ON_KEY = "ON t.tenant = s.tenant AND t.id = s.id"
INSERT = "WHEN NOT MATCHED THEN INSERT"
STATEMENTS = [
    f"MERGE INTO t USING new AS s {ON_KEY} WHEN MATCHED THEN UPDATE SET n = t.n + s.n",
    f"MERGE INTO t USING new s {ON_KEY} WHEN MATCHED THEN UPDATE SET * {INSERT} *",
    f"MERGE INTO t USING new AS s {ON_KEY} WHEN MATCHED AND s.n > 4 THEN DELETE "
    f'WHEN MATCHED AND t.n IS DISTINCT FROM s.n THEN UPDATE SET n = s.n, "Name" = s."Name" '
    f"{INSERT} (tenant, id, n) VALUES (s.tenant, s.id, s.n) RETURNING merge_action, *",
    f"MERGE INTO t USING new AS s {ON_KEY} WHEN MATCHED THEN DO NOTHING {INSERT} *",
    f"MERGE INTO t USING new AS s {ON_KEY} WHEN NOT MATCHED AND s.n > 3 THEN INSERT *"
    "WHEN NOT MATCHED BY TARGET THEN INSERT VALUES (s.tenant, s.id, 0, 'new')",
    f"MERGE INTO t USING new AS s {ON_KEY} WHEN NOT MATCHED BY SOURCE AND n = 3 THEN DELETE",
    f"MERGE INTO t USING new AS s {ON_KEY} {INSERT} * WHEN NOT MATCHED BY SOURCE AND t.n < 2 THEN "
    "DELETE WHEN NOT MATCHED BY SOURCE AND id < 4 THEN UPDATE SET \"Name\" = 'old' "
    "WHEN MATCHED THEN UPDATE SET n = CASE WHEN s.n > 3 THEN 1 ELSE 2 END RETURNING *",
    "MERGE INTO t AS x USING (SELECT id, max(n) AS m FROM due GROUP BY id) AS s ON x.id = s.id "
    "WHEN MATCHED AND x.tenant = 'a' THEN UPDATE SET n = s.m RETURNING x.id, merge_action, n + 1",
    "MERGE INTO t USING (VALUES ('a', 3), ('b', 77)) AS s(k, i) ON (t.tenant = s.k AND s.i = t.id) "
    f"WHEN MATCHED THEN DELETE {INSERT} (tenant, id, \"Name\") VALUES (s.k, s.i, 'v')",
    "MERGE INTO t USING new AS s ON t.tenant = s.tenant AND t.id = s.id + 1 "
    f"WHEN MATCHED THEN UPDATE SET n = 8 {INSERT} (tenant, id) VALUES (s.tenant, s.id + 1)",
    "MERGE INTO t USING (VALUES ('a'), ('b')) AS s(k) ON t.tenant = s.k AND t.id = n "
    "WHEN MATCHED THEN UPDATE SET \"Name\" = 'both' RETURNING *",
    "MERGE INTO t USING new AS s ON t.tenant = s.tenant AND t.id = s.id AND t.n > 3 "
    "WHEN MATCHED THEN UPDATE SET n = 0",
    "WITH big AS (SELECT * FROM new WHERE n > 3) MERGE INTO t USING big AS s "
    f'{ON_KEY} {INSERT} * WHEN MATCHED THEN UPDATE SET "Name" = s."Name" || s.tenant',
    f"MERGE INTO t USING new AS s {ON_KEY} "
    "WHEN MATCHED AND s.n > (SELECT avg(n) FROM t) THEN DELETE",
]


def fill(ctx: datafusion.SessionContext) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 1, 1, NULL), ('a', 2, 2, NULL)")
    mw.sql(ctx, "CREATE TABLE s AS VALUES ('a', 1, 10), ('a', 7, 70)").collect()


@pytest.mark.parametrize("seed", range(SOAK))
def test_statements_do_what_duckdb_does(
    table: mw.Table, ctx: datafusion.SessionContext, seed: int
) -> None:
    both = BesideDuckDB(table, ctx, seed)
    for statement in both.random.sample(STATEMENTS, len(STATEMENTS)):
        both.check(statement)
    table.close()


def test_counts_say_what_was_done(table: mw.Table, ctx: datafusion.SessionContext) -> None:
    fill(ctx)
    done = mw.sql(
        ctx,
        "MERGE INTO t USING s ON t.tenant = s.column1 AND t.id = s.column2 "
        "WHEN MATCHED THEN UPDATE SET n = $n WHEN NOT MATCHED BY SOURCE THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT (tenant, id) VALUES (s.column1, s.column2)",
        n=5,
    )
    assert done.to_pylist() == [{"count": 3, "inserted": 1, "updated": 1, "deleted": 1}]
    assert [(row["id"], row["n"]) for row in live(table)] == [(1, 5), (7, None)]
    table.close()


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        ("USING (SELECT * FROM s UNION ALL SELECT * FROM s) AS s ON t.id = s.column2 "
         "WHEN MATCHED THEN UPDATE SET n = 0", "more than once"),
        ("USING (SELECT * FROM s UNION ALL SELECT * FROM s) AS s ON t.id = s.column2 "
         "WHEN MATCHED AND s.column3 > 0 THEN DELETE", "more than once"),
        ("USING s ON t.n = s.column3 WHEN NOT MATCHED THEN INSERT (tenant, id) VALUES ('a', 2)",
         "several rows would get"),
        ("USING s ON t.n = s.column3 WHEN NOT MATCHED THEN "
         "INSERT (tenant, id) VALUES ('a', s.column2)", r"other rows have 1 .*\('a', 1\)"),
        ("USING s ON t.id = s.column2 AND t.tenant = s.column1 AND false WHEN NOT MATCHED THEN "
         "INSERT (tenant, id) VALUES (s.column1, s.column2)", "other rows have 1"),
        ("USING s ON t.id = s.column2 WHEN MATCHED THEN UPDATE SET n = 1.5", "1.5"),
        ("USING s ON t.id = s.column2 WHEN MATCHED THEN UPDATE SET n = unnest([1])", "one value"),
        ("USING s ON t.id = s.column2 WHEN NOT MATCHED THEN "
         "INSERT (tenant, id) VALUES ('a', unnest([1]))", "one value"),
        ("USING s ON t.id = s.column2 WHEN MATCHED THEN UPDATE SET *",
         r"lacks the columns \['tenant', 'id', 'n', 'Name'\].* name those .*column 71"),
        ("USING (SELECT column1 AS tenant, column2 AS id, 1 AS n FROM s) AS s ON t.id = s.id WHEN "
         "NOT MATCHED THEN INSERT *", r"lacks the columns \['Name'\].* column 126"),
        ("USING (SELECT 'a' AS tenant, 1 AS id, 2 AS n) AS s ON t.id = s.id AND t.tenant = s.tenant"
         " WHEN NOT MATCHED THEN INSERT * WHEN MATCHED AND n > 5 THEN UPDATE SET *", "'Name'"),
        ("USING s WHERE column2 > 1 ON t.id = s.column2 WHEN MATCHED THEN DELETE",
         "in parentheses.* at line 1, column 22"),
        ("USING s AS x UNION ALL SELECT * FROM s ON t.id = s.column2 WHEN MATCHED THEN DELETE",
         "in parentheses.* at line 1, column 27"),
        ("USING s AS x, s ON t.id = s.column2 WHEN MATCHED THEN DELETE",
         "in parentheses.* at line 1, column 26"),
        ("USING s JOIN s AS x USING (column2) ON t.id = s.column2 WHEN MATCHED THEN DELETE",
         "in parentheses.* at line 1, column 22"),
        ("USING s LIMIT 1 ON t.id = s.column2 WHEN MATCHED THEN DELETE", "in parentheses"),
        ("USING s ON t.id = s.nope WHEN MATCHED THEN DELETE", "nope"),
        ("USING s ON t.id = s.column2 WHEN MATCHED AND nope THEN DELETE", "nope"),
        ("USING s ON t.id = s.column2 WHEN NOT MATCHED THEN INSERT (tenant) VALUES ('a')", "NULL"),
        ("USING s ON t.id = s.column2 WHEN NOT MATCHED THEN INSERT (n, n) VALUES (1, 2)",
         "given twice, at line 1, column 75"),
        ("USING s ON t.id = s.column2 WHEN NOT MATCHED THEN INSERT (n) VALUES (1, 2)",
         "2 values are given for 1 columns"),
        ("USING s ON t.id = s.column2 WHEN NOT MATCHED THEN UPDATE SET n = 1", "INSERT or DO"),
        ("USING s ON t.id = s.column2 WHEN MATCHED THEN INSERT *", "UPDATE, DELETE or DO"),
        ("USING s ON t.id = s.column2 WHEN MATCHED THEN DELETE WHEN MATCHED THEN DO NOTHING",
         "earlier WHEN takes all"),
        ("USING s ON t.id = s.column2", "WHEN .* is missing"),
        ("USING s WHEN MATCHED THEN DELETE", "expected ON here"),
        ("USING s ON WHEN MATCHED THEN DELETE", "an expression|WHEN"),
        ("USING t ON true WHEN MATCHED THEN DELETE", "name that differs"),
        ("USING s ON t.id = s.column2 WHEN MATCHED THEN DELETE RETURNING nope", "nope"),
    ],
)  # fmt: skip
def test_what_can_not_be_done_is_refused_and_nothing_written(
    table: mw.Table, ctx: datafusion.SessionContext, rest: str, message: str
) -> None:
    fill(ctx)
    before = live(table)
    with pytest.raises(mw.InvalidCallError, match=f"(?s){message}"):
        mw.sql(ctx, f"MERGE INTO t {rest}")
    assert live(table) == before
    table.close()


@pytest.mark.parametrize("on", ["t.tenant = s.k AND t.id = s.i", "t.n = s.i", "t.id = s.i + 0"])
def test_a_source_may_have_views_of_texts(
    table: mw.Table, ctx: datafusion.SessionContext, on: str
) -> None:
    """As those of a CREATE TABLE with TEXT are."""
    fill(ctx)
    mw.sql(ctx, "CREATE TABLE v (k TEXT, i BIGINT, w TEXT[]) AS VALUES ('a', 1, ['x', NULL])")
    done = mw.sql(
        ctx,
        f"MERGE INTO t USING v AS s ON {on} WHEN MATCHED AND s.k > '0' THEN "
        'UPDATE SET "Name" = s.k || s.w[1] WHEN NOT MATCHED THEN INSERT VALUES (k, i, 0, k) '
        'RETURNING "Name"',
    )
    assert done.to_pylist() == [{"Name": "ax"}]
    query = 'SELECT k, i + 1, 4, w[1] FROM v ON CONFLICT DO UPDATE SET "Name" = excluded."Name"'
    assert mw.sql(ctx, f"INSERT INTO t {query} RETURNING id").to_pylist() == [{"id": 2}]
    table.close()


@pytest.mark.parametrize("after", range(5))
def test_no_update_is_lost_to_one_that_came_meanwhile(
    table: mw.Table, ctx: datafusion.SessionContext, meanwhile: Meanwhile, after: int
) -> None:
    """Whichever of its queries has been answered by then."""
    fill(ctx)
    other = "INSERT INTO t VALUES ('a', 1, 100, NULL), ('a', 7, 7, 'x')"
    meanwhile(other, after)
    mw.sql(
        ctx,
        "MERGE INTO t USING s ON t.tenant = s.column1 AND t.id = s.column2 "
        "WHEN MATCHED THEN UPDATE SET n = t.n + s.column3 "
        "WHEN NOT MATCHED THEN INSERT VALUES (s.column1, s.column2, s.column3, NULL)",
    )
    assert [(row["id"], row["n"]) for row in live(table)] == [(1, 110), (2, 2), (7, 77)]
    table.close()


@pytest.mark.parametrize("after", range(3))
def test_a_row_that_no_longer_matches_meanwhile_is_inserted(
    table: mw.Table, ctx: datafusion.SessionContext, meanwhile: Meanwhile, after: int
) -> None:
    """Under another key than that of the row that it matched before."""
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 1, 10, NULL)")
    mw.sql(ctx, "CREATE TABLE s AS VALUES (10, 50)").collect()
    meanwhile("INSERT INTO t VALUES ('a', 1, 11, 'x')", after)
    mw.sql(
        ctx,
        "MERGE INTO t USING s ON t.n = s.column1 WHEN MATCHED THEN UPDATE SET \"Name\" = 'met' "
        "WHEN NOT MATCHED THEN INSERT (tenant, id) VALUES ('a', s.column2)",
    )
    assert [(row["id"], row["Name"]) for row in live(table)] == [(1, "x"), (50, None)]
    table.close()


MOST = "(SELECT max(n) FROM t)"
WITHIN = [
    f"USING (SELECT id, {MOST} AS m FROM g) AS s ON {{on}} WHEN MATCHED AND t.n < s.m "
    "THEN UPDATE SET n = s.m",
    f"USING g AS s ON {{on}} WHEN MATCHED AND t.n < {MOST} THEN UPDATE SET n = {MOST}",
    f"USING g AS s ON {{on}} AND t.n < {MOST} WHEN MATCHED THEN UPDATE SET n = {MOST}",
]


@pytest.mark.parametrize("after", range(3))
@pytest.mark.parametrize("more", usual([20, -8], 1))  # too many rows would be written, or too few
@pytest.mark.parametrize("merge", usual(WITHIN, 2))
@pytest.mark.parametrize(
    "on", ["t.tenant = 'a' AND t.id = s.id", "t.tenant IN ('a') AND t.id = s.id"]
)
def test_keys_are_looked_up_in_the_snapshot_of_its_queries(
    table: mw.Table,
    ctx: datafusion.SessionContext,
    meanwhile: Meanwhile,
    merge: str,
    on: str,
    more: int,
    after: int,
) -> None:
    """As if the other statement had come before or after it, and not in between."""
    mw.sql(ctx, "INSERT INTO t (tenant, id, n) VALUES ('a', 1, 5), ('a', 2, 10), ('a', 3, 1)")
    mw.sql(ctx, "CREATE TABLE g AS SELECT * FROM (VALUES (1), (3)) AS v(id)")
    meanwhile(f"UPDATE t SET n = n + {more}", after)
    mw.sql(ctx, f"MERGE INTO t {merge.format(on=on)}")
    assert [row["n"] for row in live(table)] == [10 + more] * 3
    table.close()


def test_the_rows_of_a_source_are_looked_up_by_their_keys(
    table: mw.Table, ctx: datafusion.SessionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(ctx)
    queries: list[str] = []
    frame = query_frames.query_frame

    def read(ctx: object, query: str, *args: object, **named: object) -> object:
        queries.append(query)
        return frame(ctx, query, *args, **named)

    monkeypatch.setattr(reading, "query_frame", read)
    mw.sql(
        ctx,
        "MERGE INTO t USING s ON t.tenant = lower(s.column1) AND s.column2 = t.id "
        "WHEN MATCHED THEN DELETE",
    )
    assert not any("FROM t " in query for query in queries)
    assert [row["id"] for row in live(table)] == [2]
    table.close()


def test_explain_shows_the_join(table: mw.Table, ctx: datafusion.SessionContext) -> None:
    fill(ctx)
    before = live(table)
    explained = mw.sql(
        ctx, "EXPLAIN MERGE INTO t USING s ON t.id = s.column2 WHEN MATCHED THEN DELETE"
    )
    assert "HashJoinExec" in explained.to_pylist()[1]["plan"]
    assert live(table) == before
    table.close()


@pytest.mark.parametrize("after", range(5))
@pytest.mark.parametrize("on", ["t.tenant = s.column1 AND t.id = s.column2", "t.id = s.column2"])
def test_each_row_is_answered_once_and_as_it_is_where_one_came_meanwhile(
    table: mw.Table, ctx: datafusion.SessionContext, meanwhile: Meanwhile, on: str, after: int
) -> None:
    fill(ctx)
    ctx.sql("INSERT INTO s VALUES ('a', 2, 20), ('a', 8, 80)").collect()
    meanwhile("INSERT INTO t VALUES ('a', 1, 100, NULL)", after)
    merge = f"""MERGE INTO t USING s ON {on} WHEN MATCHED THEN UPDATE SET n = t.n + s.column3
    WHEN NOT MATCHED THEN INSERT VALUES (s.column1, s.column2, s.column3, NULL)"""
    found = mw.sql(ctx, f"{merge} RETURNING id, n").to_pylist()
    assert sorted((row["id"], row["n"]) for row in found) == [(1, 110), (2, 22), (7, 70), (8, 80)]
    assert [(row["id"], row["n"]) for row in live(table)] == [(1, 110), (2, 22), (7, 70), (8, 80)]
    meanwhile("INSERT INTO t VALUES ('a', 8, 0, NULL)", after)
    counts = {"count": 4, "inserted": 0, "updated": 4, "deleted": 0}
    assert mw.sql(ctx, merge).to_pylist() == [counts]
    table.close()


def test_a_column_may_be_called_merge_action(uri: str, ctx: datafusion.SessionContext) -> None:
    schema = pa.schema({"id": pa.int64(), "merge_action": pa.string()})
    table = mw.register(ctx, "w", mw.create_table(uri, schema, primary_key="id"))
    mw.sql(ctx, "INSERT INTO w VALUES (1, 'a'), (2, 'b')")
    merge = "MERGE INTO w USING (SELECT 1 AS id) AS s ON w.id = s.id WHEN MATCHED THEN"
    for returning in ("merge_action", "w.merge_action, upper(merge_action)"):
        with pytest.raises(mw.InvalidCallError, match=r"t\.merge_action.*: 'merge_action'"):
            mw.sql(ctx, f"{merge} DELETE RETURNING {returning}")
    done = mw.sql(ctx, f"{merge} UPDATE SET merge_action = 'c' RETURNING *, w.merge_action AS x")
    assert done.to_pylist() == [{"id": 1, "merge_action": "c", "x": "c"}]
    done = mw.sql(ctx, f"{merge} DELETE RETURNING w.id AS merge_action")
    assert done.to_pylist() == [{"merge_action": 1}]
    table.close()


@pytest.mark.parametrize("condition", ["", "AND s.n > 0"])
@pytest.mark.parametrize(("unit", "finer"), [("us", "ns"), ("s", "ms")])
def test_a_key_that_no_row_of_the_source_equals_may_be_there_once_it_fits(
    uri: str, ctx: datafusion.SessionContext, unit: str, finer: str, condition: str
) -> None:
    """1.5 units do not equal 1, and are cut to 1 when they are inserted."""
    schema = pa.schema([pa.field("ts", pa.timestamp(unit), False), ("n", pa.int64())])
    with mw.register(ctx, "t", mw.create_table(uri, schema, "ts")) as table:
        with table.writer() as writer:
            writer.upsert(pa.table({"ts": pa.array([1], pa.timestamp(unit)), "n": [10]}))
        source = pa.table({"ts": pa.array([1500], pa.timestamp(finer)), "n": [99]})
        ctx.register_record_batches("s", [source.to_batches()])
        with pytest.raises(mw.KeysExistError):
            mw.sql(
                ctx,
                f"MERGE INTO t USING s ON t.ts = s.ts {condition} "
                "WHEN NOT MATCHED THEN INSERT (ts, n) VALUES (s.ts, s.n)",
            )
        assert table.to_arrow()["n"].to_pylist() == [10]
