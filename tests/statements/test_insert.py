"""INSERT: counters beside one another, and values in the types of columns."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each
from tests.statements.beside_duckdb import live


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


def test_columns_named_like_those_of_the_rows_given_are_the_tables(uri: str) -> None:
    schema = pa.schema({"a": pa.int64(), "memwal given a": pa.int64(), "excluded": pa.int64()})
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", mw.create_table(uri, schema, primary_key="a"))
    set_all = 'SET excluded = excluded + excluded.excluded, "memwal given a" = excluded.a'
    statement = f"INSERT INTO t VALUES (1, 2, 3) ON CONFLICT DO UPDATE {set_all}"
    mw.sql(ctx, statement)
    mw.sql(ctx, statement)
    assert [tuple(r.values()) for r in mw.sql(ctx, "SELECT * FROM t").to_pylist()] == [(1, 1, 6)]


KINDS: dict[str, tuple[pa.DataType, Any]] = {
    "'2020-01-02 03:04:05'": (pa.timestamp("us", "Europe/Amsterdam"), "2020-01-02T03:04:05+01:00"),
    "'2020-01-02T03:04:05Z'": (pa.timestamp("us", "UTC"), "2020-01-02T03:04:05+00:00"),
    "'2020-01-02'": (pa.date32(), "2020-01-02"),
    "DATE '2020-01-02'": (pa.timestamp("ms", "UTC"), "2020-01-02T00:00:00+00:00"),
    "TIMESTAMP '2020-01-02T03:04:05.123456789'": (
        pa.timestamp("ms", "Asia/Tokyo"),
        "2020-01-02T03:04:05.123000+09:00",
    ),
    "TIMESTAMP '2020-01-02T03:04:05'": (pa.timestamp("s"), "2020-01-02T03:04:05"),
    "'1.25'": (pa.decimal128(9, 2), "1.25"),
    "1.25": (pa.decimal128(9, 2), "1.25"),
    "3": (pa.decimal128(9, 2), "3.00"),
    "[3]": (pa.list_(pa.decimal128(9, 2)), "[Decimal('3.00')]"),
    "'10:30'": (pa.time64("us"), "10:30:00"),
    "'10:30:05.25'": (pa.time32("ms"), "10:30:05.250000"),
    "[1, 2]": (pa.list_(pa.float32(), 2), "[1.0, 2.0]"),
    "[0.9, 2]": (pa.list_(pa.float32(), 2), "[0.8999999761581421, 2.0]"),
    "[0.9, NULL]": (pa.list_(pa.float16()), "[0.89990234375, None]"),
    "[[0.9]]": (pa.list_(pa.large_list(pa.float32())), "[[0.8999999761581421]]"),
    "[{x: 0.9, n: 1}]": (
        pa.list_(pa.struct({"x": pa.float32(), "n": pa.int64()})),
        "[{'x': 0.8999999761581421, 'n': 1}]",
    ),
    "{a: 1}": (pa.struct({"a": pa.int16()}), "{'a': 1}"),
    """'{"a": 1}'""": (pa.json_(), '{"a": 1}'),
    "'abc'": (pa.binary(), "b'abc'"),
    "true": (pa.bool_(), "True"),
    "NULL": (pa.list_(pa.int32()), "None"),
}


@each("text", KINDS)
def test_values_are_read_as_the_types_of_their_columns(
    uri: str, ctx: datafusion.SessionContext, text: str
) -> None:
    kind, expected = KINDS[text]
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "v": kind}), primary_key="id")
    mw.register(ctx, "t", table)
    mw.sql(ctx, f"INSERT INTO t VALUES (1, {text})")
    mw.sql(ctx, f"INSERT INTO t (id, v) VALUES (2, {text}) ON CONFLICT DO NOTHING")
    mw.sql(ctx, "INSERT INTO t VALUES (3, NULL)")
    mw.sql(ctx, f"UPDATE t SET v = {text} WHERE id = 3")
    mw.sql(ctx, "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *")
    found = [getattr(v, "isoformat", v.__str__)() for v in table.to_arrow()["v"].to_pylist()]
    assert found == [expected] * 3
    table.close()


@pytest.mark.parametrize("time", ["2024-03-31 02:30:00", "2024-10-27 02:30:00"])
@pytest.mark.parametrize("kind", ["", "TIMESTAMP "])
def test_a_time_that_a_zone_lacks_or_has_twice_is_refused(
    uri: str, ctx: datafusion.SessionContext, kind: str, time: str
) -> None:
    schema = pa.schema({"id": pa.int64(), "at": pa.timestamp("us", "Europe/Oslo")})
    table = mw.register(ctx, "t", mw.create_table(uri, schema, primary_key="id"))
    with pytest.raises(mw.InvalidCallError, match=r"column 'at': .* timezone 'Europe/Oslo'"):
        mw.sql(ctx, f"INSERT INTO t VALUES (1, {kind}'{time}')")
    table.close()


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
def test_a_text_above_the_largest_float_is_refused(
    uri: str, ctx: datafusion.SessionContext, kind: pa.DataType
) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", kind)])
    table = mw.register(ctx, "u", mw.create_table(uri, schema, primary_key="id"))
    for text in ("1e400", " -1E400 "):
        with pytest.raises(mw.InvalidCallError, match=f"column 'x': .*{text}"):
            mw.sql(ctx, f"INSERT INTO u VALUES (1, '2.5'), (2, NULL), (3, '{text}')")
    mw.sql(ctx, "INSERT INTO u VALUES (1, 'inf'), (2, '-Infinity'), (3, NULL), (4, '1.5')")
    assert table.to_arrow().sort_by("id")["x"].to_pylist() == [math.inf, -math.inf, None, 1.5]
    table.close()
