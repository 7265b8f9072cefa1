"""INSERT and REPLACE, against the same statements in DuckDB."""

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each
from tests.soak import SOAK
from tests.statements.beside_duckdb import BesideDuckDB, live
from tests.statements.conftest import Meanwhile

# And how DuckDB says it.
STATEMENTS: dict[str, str | None] = {
    "INSERT INTO t SELECT * FROM new": "INSERT OR REPLACE INTO t FROM new",
    "INSERT INTO t VALUES ('a', 3, 4, NULL), ('b', 70, NULL, 'x') RETURNING *": (
        "INSERT OR REPLACE INTO t VALUES ('a', 3, 4, NULL), ('b', 70, NULL, 'x') RETURNING *"
    ),
    "INSERT INTO t (id, n, tenant) SELECT id, n + 1, tenant FROM new RETURNING *": (
        "INSERT OR REPLACE INTO t (id, n, tenant) SELECT id, n + 1, tenant FROM new RETURNING *"
    ),
    'INSERT INTO t ("Name", "id", tenant) SELECT \'x\', id, tenant FROM new RETURNING *': (
        'INSERT OR REPLACE INTO t ("Name", "id", tenant) '
        "SELECT 'x', id, tenant FROM new RETURNING *"
    ),
    "INSERT INTO t BY NAME SELECT 'q' AS \"Name\", id, tenant FROM new": (
        "INSERT OR REPLACE INTO t BY NAME SELECT 'q' AS \"Name\", id, tenant FROM new"
    ),
    "INSERT INTO t SELECT * FROM new ON CONFLICT DO NOTHING RETURNING id, n": None,
    "INSERT INTO t (tenant, id, n) VALUES ('a', 5, 1), ('a', 80, 1), ('a', 80, 2) "
    "ON CONFLICT DO NOTHING": None,
    "INSERT INTO t AS x SELECT * FROM new ON CONFLICT (id, tenant) DO UPDATE "
    "SET n = x.n + excluded.n WHERE x.n < 6 RETURNING x.n, id": None,
    'INSERT INTO t SELECT * FROM new ON CONFLICT DO UPDATE SET n = n + 1, "Name" = '
    'coalesce(excluded."Name", t."Name", \'none\')': None,
    "WITH w AS (SELECT id FROM due WHERE n = 3) INSERT INTO t (tenant, id, n) "
    "SELECT 'b', id, 33 FROM w ON CONFLICT DO UPDATE SET n = excluded.n RETURNING *": None,
    "INSERT INTO t VALUES (1, 3, 4, DATE '2024-01-02'), (2, 3, 4, NULL) RETURNING *": (
        "INSERT OR REPLACE INTO t VALUES (1, 3, 4, DATE '2024-01-02'), (2, 3, 4, NULL) RETURNING *"
    ),
    "INSERT INTO t VALUES ('a', 3, 4, true)": "INSERT OR REPLACE INTO t VALUES ('a', 3, 4, true)",
    "REPLACE INTO t SELECT tenant, id, 1, NULL FROM new": (
        "INSERT OR REPLACE INTO t SELECT tenant, id, 1, NULL FROM new"
    ),
}


@pytest.mark.parametrize("seed", range(SOAK))
def test_statements_do_what_duckdb_does(
    table: mw.Table, ctx: datafusion.SessionContext, seed: int
) -> None:
    both = BesideDuckDB(table, ctx, seed)
    for statement in both.random.sample(list(STATEMENTS), len(STATEMENTS)):
        both.check(statement, STATEMENTS[statement])
    table.close()


def test_a_statement_runs_when_it_is_called(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    done = mw.sql(ctx, "INSERT INTO t VALUES ($a, $b, 1, 'x')", a="a", b=7)
    assert live(table) == [{"tenant": "a", "id": 7, "n": 1, "Name": "x"}]
    assert done.to_pylist() == done.to_pylist() == [{"count": 1}]
    table.close()


def test_into_may_be_left_out(table: mw.Table, ctx: datafusion.SessionContext) -> None:
    mw.sql(ctx, "INSERT t VALUES ('a', 1, 1, NULL)")
    mw.sql(ctx, "INSERT t (tenant, id) SELECT 'a', 2")
    assert [(row["id"], row["n"]) for row in live(table)] == [(1, 1), (2, None)]
    table.close()


def test_of_rows_with_one_key_the_last_is_written(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 1, 1, 'kept')")
    rows = "VALUES ('a', 1, 5), ('a', 2, 6), ('a', 1, 7)"
    partly = mw.sql(ctx, f'INSERT INTO t (tenant, id, n) {rows} RETURNING n, "Name"')
    assert sorted(map(str, partly.to_pylist())) == [
        "{'n': 6, 'Name': None}",
        "{'n': 7, 'Name': 'kept'}",
    ]
    whole = "INSERT INTO t VALUES ('a', 1, 5, 'p'), ('a', 1, 6, 'q')"
    assert [row["n"] for row in mw.sql(ctx, f"{whole} RETURNING *").to_pylist()] == [6]
    assert mw.sql(ctx, whole).to_pylist() == [{"count": 1}]
    table.close()


def test_replace_sets_columns_that_it_lacks_to_null(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 1, 1, 'x')")
    mw.sql(ctx, "REPLACE INTO t (id, tenant) VALUES (1, 'a')")
    assert live(table) == [{"tenant": "a", "id": 1, "n": None, "Name": None}]
    table.close()


def test_overwrite_replaces_all_rows(table: mw.Table, ctx: datafusion.SessionContext) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 1, 1, 'x'), ('b', 2, 2, 'y')")
    done = mw.sql(ctx, "INSERT OVERWRITE t SELECT tenant, id + 1, n, NULL FROM t WHERE n < 2")
    assert done.to_pylist() == [{"count": 1}]
    assert live(table) == [{"tenant": "a", "id": 2, "n": 1, "Name": None}]
    twice = "INSERT OVERWRITE INTO t (id, tenant) VALUES (3, 'a'), (3, 'a') RETURNING id"
    assert mw.sql(ctx, twice).to_pylist() == [{"id": 3}]
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 4, 1, 'x')")
    mw.sql(ctx, "DELETE FROM t WHERE id = 3")
    assert [row["id"] for row in live(table)] == [4]
    mw.sql(ctx, "INSERT OVERWRITE t SELECT * FROM t WHERE false")
    assert live(table) == []
    table.close()


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
    table.close()


@pytest.mark.parametrize("after", range(2))
def test_no_update_is_lost_to_one_that_came_meanwhile(
    table: mw.Table, ctx: datafusion.SessionContext, meanwhile: Meanwhile, after: int
) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 1, 1, 'x')")
    other = "INSERT INTO t VALUES ('a', 1, 100, 'y'), ('a', 2, 200, 'z')"
    for number, (statement, expected) in enumerate(
        {
            "INSERT INTO t (tenant, id, n) VALUES ('a', 1, 5), ('a', 2, 6)": [(5, "y"), (6, "z")],
            "INSERT INTO t VALUES ('a', 1, 5, 'q'), ('a', 2, 6, 'q') ON CONFLICT DO NOTHING": [
                (100, "y"),
                (200, "z"),
            ],
            "INSERT INTO t VALUES ('a', 1, 5, 'q'), ('a', 2, 6, 'q') ON CONFLICT DO UPDATE "
            "SET n = t.n + excluded.n": [(105, "y"), (206, "z")],
        }.items()
    ):
        meanwhile(other, after)
        mw.sql(ctx, statement)
        assert [(row["n"], row["Name"]) for row in live(table)] == expected, number
        mw.sql(ctx, "DELETE FROM t WHERE id = 2")
    table.close()


@pytest.mark.parametrize(
    "statement",
    [
        'INSERT INTO t SELECT tenant, id, n + 5, "Name" FROM t',
        "WITH w AS (SELECT * FROM t) REPLACE INTO t (tenant, id, n) SELECT w.tenant, id, n + 5 "
        "FROM w",
        'INSERT INTO t SELECT tenant, id, n + 5, "Name" FROM shown',
    ],
)
def test_rows_made_of_those_of_the_table_lose_no_update(
    table: mw.Table, ctx: datafusion.SessionContext, meanwhile: Meanwhile, statement: str
) -> None:
    mw.register(ctx, "t", table)  # as views read it
    mw.sql(ctx, "INSERT INTO t (tenant, id, n) VALUES ('a', 1, 1), ('b', 1, 2), ('b', 2, 3)")
    mw.sql(ctx, "CREATE VIEW shown AS SELECT * FROM t")
    meanwhile("UPDATE t SET n = n + 100 WHERE id = 1")
    assert mw.sql(ctx, statement).to_pylist() == [{"count": 3}]
    assert [row["n"] for row in live(table)] == [106, 107, 8]
    table.close()


@each(
    "statement, message",
    [
        ("INSERT INTO t VALUES ('a', 1)", "2 columns, and 4"),
        ("INSERT INTO t (id, nope) VALUES (1, 2)", "no such column.*, at line 1, column 20"),
        ("INSERT INTO t (id, id) VALUES (1, 2)", "given twice, at line 1, column 20"),
        ("INSERT INTO t (n) VALUES (1)", r"lack the primary key columns \['id', 'tenant'\]"),
        ("INSERT INTO t BY NAME SELECT 1 AS id, 'a' AS tenant, 2 AS nope", r"columns \['nope'\]"),
        ("INSERT INTO t (id, tenant, n) VALUES (1, 'a', 1.5)", "1.5"),
        ("INSERT INTO t (id, tenant, n) VALUES ('x', 'a', 1)", "'x'"),
        ("INSERT INTO t (id, tenant) VALUES (NULL, 'a')", "NULL in its key column 'id'"),
        ("INSERT INTO t VALUES ('a', NULL, 1, 'a')", "NULL in its key column 'id'"),
        ("INSERT INTO t", "a query here"),
        ("INSERT INTO t ON CONFLICT DO NOTHING", "a query here"),
        ("INSERT INTO t DEFAULT VALUES", "a query here"),
        ("INSERT INTO t VALUES ('a', 1, 1, 'x') ON CONFLICT (n) DO NOTHING", "by the primary key"),
        ("INSERT INTO t VALUES ('a', 1, 1, 'x') ON CONFLICT (id) DO NOTHING", "by the primary"),
        ("INSERT INTO t VALUES ('a', 1, 1, 'x') ON CONFLICT DO", "Expected: UPDATE"),
        ("INSERT INTO t VALUES ('a', 1, 1, 'x') ON CONFLICT DO NOTHING WHERE n = 1", "the end of"),
        ("INSERT INTO t VALUES ('a', 1, 1, 'x') ON CONFLICT DO UPDATE SET x = 1", "no such column"),
        ("INSERT INTO t VALUES ('a', 1, 1, 'x'), ('a', 1, 2, 'y') ON CONFLICT DO UPDATE SET n = 1",
         "more than once"),
        ("INSERT INTO t VALUES ('a', 1, 1, 'x') ON CONFLICT DO UPDATE SET n = unnest([1])",
         "one value"),
        ("REPLACE INTO t VALUES ('a', 1, 1, 'x') ON CONFLICT DO NOTHING", "leaves no rows"),
        ("INSERT OR IGNORE INTO t VALUES ('a', 1, 1, 'x')", "ON CONFLICT DO NOTHING"),
        ("INSERT IGNORE INTO t VALUES ('a', 1, 2, 'x')", "ON CONFLICT DO NOTHING.*'IGNORE'"),
        ("INSERT LOW_PRIORITY INTO t VALUES ('a', 1, 2, 'x')", "column 8: 'LOW_PRIORITY'"),
        ("REPLACE DELAYED INTO t VALUES ('a', 1, 2, 'x')", "column 9: 'DELAYED'"),
        ("INSERT INTO t VALUES ('a', 1, 2, 'x') RETURNING DISTINCT n", "found: n|DISTINCT"),
        ("INSERT INTO t VALUES ('a', 1, 1, 'x') RETURNING nope", "nope"),
        ("INSERT INTO t VALUES ('a', 1, 1, 'x') RETURNING new.*", "columns of 't'.*column 49"),
        ("INSERT OVERWRITE t VALUES ('a', 1, 1.5, 'x')", "1.5"),
    ],
)  # fmt: skip
def test_what_can_not_be_done_is_refused_and_nothing_written(
    table: mw.Table, ctx: datafusion.SessionContext, statement: str, message: str
) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 1, 1, NULL)")
    with pytest.raises((mw.InvalidCallError, mw.UnsupportedError), match=f"(?s){message}"):
        mw.sql(ctx, statement)
    assert live(table) == [{"tenant": "a", "id": 1, "n": 1, "Name": None}]
    table.close()


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
    mw.sql(ctx, "MERGE INTO t USING t AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET *")
    found = [getattr(v, "isoformat", v.__str__)() for v in table.to_arrow()["v"].to_pylist()]
    assert found == [expected, expected]
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
