"""Sources, keys and results of MERGE."""

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.statements.changes import reading
from memwal_sql.statements.queries import query_frames
from tests.statements.beside_duckdb import live


def fill(ctx: datafusion.SessionContext) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 1, 1, NULL), ('a', 2, 2, NULL)")
    mw.sql(ctx, "CREATE TABLE s AS VALUES ('a', 1, 10), ('a', 7, 70)").collect()


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
