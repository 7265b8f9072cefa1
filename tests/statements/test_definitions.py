"""CREATE, ALTER and DROP of tables and indexes by statements."""

from __future__ import annotations

from pathlib import Path

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw


@pytest.fixture
def place(uri: str) -> str:
    return uri


def rows(
    ctx: datafusion.SessionContext, query: str, **parameters: object
) -> list[dict[str, object]]:
    return list(mw.sql(ctx, query, **parameters).to_pylist())


def names(ctx: datafusion.SessionContext) -> set[str]:
    return {name for name in ctx.catalog().schema().names() if "$" not in name}


COLUMNS = """(
    id BIGINT, "City Name" VARCHAR NOT NULL, at TIMESTAMP WITH TIME ZONE, v FLOAT[2],
    tags TEXT[], pair STRUCT<x INT, y VARCHAR>, price DECIMAL(10, 2), CONSTRAINT k PRIMARY KEY (id)
)"""
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("City Name", pa.string(), nullable=False),
        ("at", pa.timestamp("ns", "UTC")),
        ("v", pa.list_(pa.float32(), 2)),
        ("tags", pa.list_(pa.string())),
        ("pair", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("price", pa.decimal128(10, 2)),
    ]
)


@pytest.mark.parametrize(
    "rest",
    [
        "USING memwal PARTITIONED BY (bucket(id, 3)) LOCATION '{}'",
        "LOCATION $place OPTIONS ('regions' 'bucket(id, 3)')",
        "LOCATION '{}' WITH (regions = 'bucket(id, 3)', 'consistency' = 'manifest')",
        "STORED AS memwal TBLPROPERTIES ('memwal.regions' = 'bucket(id, 3)') LOCATION '{}'",
    ],
)
def test_a_table_has_the_columns_key_and_regions_of_its_statement(
    ctx: datafusion.SessionContext, place: str, rest: str
) -> None:
    parameters = {"place": place} if "$place" in rest else {}
    mw.sql(ctx, f"CREATE TABLE t {COLUMNS} {rest.format(place)}", **parameters)
    table = mw.open_table(place)
    assert table.schema == SCHEMA
    assert table.primary_key == ("id",)
    (spec,) = table.info.region_specs
    assert [(f.transform, dict(f.parameters)) for f in spec.fields] == [
        (mw.bucket("id", 3).transform, dict(mw.bucket("id", 3).parameters))
    ]
    insert = """INSERT INTO t VALUES (1, 'Oslo', TIMESTAMP '2026-01-01T00:00:00Z', [1.0, 2.0],
        ['a'], named_struct('x', 1, 'y', 'z'), 1.5)"""
    assert rows(ctx, insert) == [{"count": 1}]
    assert rows(ctx, 'SELECT "City Name" AS c FROM t') in ([{"c": "Oslo"}], [])
    assert table.count_rows() == 1


def test_columns_have_names_in_quotes(ctx: datafusion.SessionContext, place: str) -> None:
    columns = '"Id" BIGINT, "a, b" TEXT NOT NULL, CITY VARCHAR, PRIMARY KEY ("Id")'
    mw.sql(ctx, f"CREATE TABLE \"My z\" ({columns}) LOCATION '{place}'")
    mw.sql(ctx, 'ALTER TABLE "My z" ADD COLUMN "n w" INT, ADD COLUMN "M" DECIMAL(5, 1)')
    mw.sql(ctx, 'ALTER TABLE "My z" RENAME COLUMN "n w" TO "N", DROP COLUMN CITY')
    assert mw.open_table(place).schema == pa.schema(
        [
            pa.field("Id", pa.int64(), nullable=False),
            pa.field("a, b", pa.string(), nullable=False),
            ("N", pa.int32()),
            ("M", pa.decimal128(5, 1)),
        ]
    )
    with pytest.raises(mw.InvalidCallError, match="line 1, column"):
        mw.sql(ctx, 'ALTER TABLE "My z" ADD COLUMN "n w" NOPE')
    with pytest.raises(mw.InvalidCallError, match="Expected: identifier"):
        mw.sql(ctx, 'ALTER TABLE "My z" ADD COLUMN 5 INT')


def test_keys_of_several_columns_keep_their_order(
    ctx: datafusion.SessionContext, place: str
) -> None:
    mw.sql(
        ctx,
        "CREATE TABLE t (a INT NOT NULL, b TEXT, PRIMARY KEY (b, a)) PARTITIONED BY (b) "
        f"LOCATION '{place}'",
    )
    table = mw.open_table(place)
    assert table.primary_key == ("b", "a")
    assert table.info.region_specs[0].fields[0].transform == mw.identity("b").transform


def test_a_table_of_a_query_has_its_rows_or_is_not_there(
    ctx: datafusion.SessionContext, place: str
) -> None:
    create = f"CREATE TABLE t (PRIMARY KEY (n)) PARTITIONED BY (bucket(n, 2)) LOCATION '{place}' AS"
    double = f"{create} SELECT value / 2 AS n FROM generate_series(1, 4)"
    with pytest.raises(mw.KeysExistError):
        mw.sql(ctx, double)
    assert names(ctx) == set()
    series = "generate_series(1, 9) WHERE value <= $top"
    query = f"SELECT value AS n, arrow_cast('x', 'Utf8View') AS s FROM {series}"
    assert rows(ctx, f"{create} {query}", top=4) == [{"count": 4}]
    assert rows(ctx, "SELECT sum(n) AS n, max(s) AS s FROM t") == [{"n": 10, "s": "x"}]
    assert mw.open_table(place).schema.field("s").type == pa.string()
    assert rows(ctx, "CREATE TABLE IF NOT EXISTS t USING memwal AS SELECT 1 AS n") == []


def test_columns_of_a_query_may_be_null_but_for_the_key(
    ctx: datafusion.SessionContext, place: str
) -> None:
    query = "SELECT 1 AS id, 'x' AS s, count(*) AS c, [1] AS l FROM (VALUES (1), (2))"
    mw.sql(ctx, f"CREATE TABLE t (PRIMARY KEY (id)) LOCATION '{place}' AS {query}")
    assert {field.name for field in mw.open_table(place).schema if not field.nullable} == {"id"}
    assert rows(ctx, "INSERT INTO t (id) VALUES (2)") == [{"count": 1}]
    assert rows(ctx, "SELECT s, c, l FROM t WHERE id = 2") == [{"s": None, "c": None, "l": None}]


@pytest.mark.parametrize("columns", ["PRIMARY KEY (n)", "n BIGINT PRIMARY KEY, s TEXT"])
def test_a_query_is_not_made_where_its_table_is_there(
    ctx: datafusion.SessionContext, place: str, columns: str
) -> None:
    """As if another session or process had made it: the folder's table is opened."""
    calls: list[int] = []

    def seen(values: pa.Array) -> pa.Array:
        calls.extend(values.to_pylist())
        return values

    ctx.register_udf(datafusion.udf(seen, [pa.int64()], pa.int64(), "volatile", "seen"))
    create = f"CREATE TABLE {{}} ({columns}) PARTITIONED BY (bucket(n, 2)) LOCATION '{place}' AS"
    query = "SELECT seen(value) AS n, 'x' AS s FROM generate_series(1, 3)"
    assert rows(ctx, f"{create.format('IF NOT EXISTS t')} {query}") == [{"count": 3}]
    rows(ctx, "DELETE FROM t WHERE n = 2")
    mw.sql(ctx, "ALTER TABLE t ALTER COLUMN s DROP NOT NULL")
    calls.clear()
    assert rows(ctx, f"{create.format('IF NOT EXISTS u')} {query}") == []
    assert rows(ctx, "SELECT n FROM u ORDER BY n") == [{"n": 1}, {"n": 3}]
    with pytest.raises(mw.InvalidCallError, match="is a table already: IF NOT EXISTS opens it"):
        mw.sql(ctx, f"{create.format('w')} {query}")
    for change in (("(n)", "(s)"), ("n BIGINT PRIMARY KEY", "n INT PRIMARY KEY"), ("n, 2", "n, 3")):
        other = create.format("IF NOT EXISTS w").replace(*change)
        if other != create.format("IF NOT EXISTS w"):
            with pytest.raises(mw.InvalidCallError, match="exists, and differs"):
                mw.sql(ctx, f"{other} {query}")
    assert calls == []
    assert names(ctx) == {"t", "u"}


def test_given_columns_name_and_cast_those_of_the_query(
    ctx: datafusion.SessionContext, place: str
) -> None:
    create = f"CREATE TABLE t (id INT PRIMARY KEY, x TEXT) LOCATION '{place}' AS SELECT"
    assert rows(ctx, f"{create} 1, 'a' UNION ALL SELECT 2, NULL") == [{"count": 2}]
    assert mw.open_table(place).schema.field("id").type == pa.int32()
    with pytest.raises(mw.InvalidCallError, match="3 columns for 2"):
        mw.sql(ctx, f"{create.replace('TABLE t', 'TABLE u').replace(place, place + '2')} 1, 2, 3")


def test_a_table_is_opened_or_made_by_an_external_one(
    ctx: datafusion.SessionContext, place: str
) -> None:
    """The same statement again, in another session, opens it."""
    statement = (
        "CREATE EXTERNAL TABLE {} (id BIGINT, n INT, PRIMARY KEY (id)) STORED AS MEMWAL "
        f"LOCATION '{place}' OPTIONS ('regions' 'bucket(id, 2)')"
    )
    mw.sql(ctx, statement.format("t"))
    rows(ctx, "INSERT INTO t VALUES (1, 2)")
    other = datafusion.SessionContext()
    mw.sql(other, statement.format("t"))
    mw.sql(other, f"CREATE EXTERNAL TABLE u STORED AS MEMWAL LOCATION '{place}'")
    assert rows(other, "SELECT t.n + u.n AS n FROM t JOIN u USING (id)") == [{"n": 4}]
    for change in (("n INT", "n BIGINT"), ("(id)", "(id, n)"), ("id, 2", "id, 3")):
        with pytest.raises(mw.InvalidCallError, match="exists, and differs"):
            mw.sql(other, statement.format("w").replace(*change))
    with pytest.raises(mw.InvalidCallError, match="table already: IF NOT"):
        mw.sql(other, f"CREATE TABLE w (id BIGINT PRIMARY KEY) LOCATION '{place}'")


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE x AS SELECT 1 AS a",
        "CREATE TABLE x (a INT)",
        "CREATE TABLE IF NOT EXISTS x (a INT) AS VALUES (1)",
        "CREATE OR REPLACE TABLE x AS SELECT 1 AS a",
        "CREATE VIEW x AS SELECT 1 AS a",
    ],
)
def test_tables_in_memory_and_views_stay_datafusion_s(
    ctx: datafusion.SessionContext, statement: str
) -> None:
    mw.sql(ctx, statement)
    assert names(ctx) == {"x"}
    kind = "VIEW" if "VIEW" in statement else "TABLE"
    mw.sql(ctx, f"DROP {kind} x")
    assert names(ctx) == set()


def test_alter_if_exists_sees_a_table_that_has_quotes(ctx: datafusion.SessionContext) -> None:
    mw.sql(ctx, 'CREATE TABLE "My" AS SELECT 1 AS a')
    with pytest.raises(mw.InvalidCallError, match="not a MemWAL table"):
        mw.sql(ctx, 'ALTER TABLE IF EXISTS "My" ADD COLUMN b INT')


def test_files_of_others_stay_datafusion_s(ctx: datafusion.SessionContext, tmp_path: Path) -> None:
    file = tmp_path / "x.csv"
    file.write_text("a\n1\n")
    for clauses in (
        f"x STORED AS CSV LOCATION '{file}' OPTIONS (has_header true)",
        f"x OPTIONS (has_header true) STORED AS CSV LOCATION '{file}'",
        f"x (a BIGINT,) STORED AS CSV OPTIONS (has_header true,) LOCATION '{file}'",
    ):
        mw.sql(ctx, f"CREATE EXTERNAL TABLE {clauses}")
        assert rows(ctx, "SELECT * FROM x") == [{"a": 1}]
        mw.sql(ctx, "DROP TABLE x")


def test_a_session_lets_go_of_a_table_and_its_files_stay(
    ctx: datafusion.SessionContext, place: str
) -> None:
    mw.sql(ctx, f"CREATE TABLE t (id BIGINT PRIMARY KEY) LOCATION '{place}'")
    rows(ctx, "INSERT INTO t VALUES (1)")
    mw.sql(ctx, "DROP TABLE t")
    assert ctx.catalog().schema().names() == set()
    assert mw.open_table(place).count_rows() == 1
    mw.sql(ctx, "DROP TABLE IF EXISTS t")
    with pytest.raises(mw.InvalidCallError):
        mw.sql(ctx, "DROP TABLE t")


def test_columns_are_changed_where_they_stand(ctx: datafusion.SessionContext, place: str) -> None:
    mw.sql(ctx, f"CREATE TABLE t (id BIGINT PRIMARY KEY, a INT NOT NULL) LOCATION '{place}'")
    rows(ctx, "INSERT INTO t VALUES (1, 2)")
    for statement in (
        "ALTER TABLE t ADD COLUMN b TEXT, ADD COLUMN IF NOT EXISTS a INT",
        "ALTER TABLE t ADD COLUMNS (c INT, d DOUBLE[])",
        'ALTER TABLE public.t RENAME COLUMN b TO "B b"',
        "ALTER TABLE t ALTER COLUMN a DROP NOT NULL",
        "ALTER TABLE t DROP COLUMN c, DROP COLUMN IF EXISTS nothing",
        "ALTER TABLE IF EXISTS nothing DROP COLUMN c",
    ):
        assert rows(ctx, statement) == []
    rows(ctx, "INSERT INTO t VALUES (2, NULL, 'x', [1.5])")
    found = rows(ctx, "SELECT * FROM t ORDER BY id")
    assert found == [
        {"id": 1, "a": 2, "B b": None, "d": None},
        {"id": 2, "a": None, "B b": "x", "d": [1.5]},
    ]
    assert rows(ctx, "SELECT count(*) AS n FROM t$regions") == [{"n": 1}]


def test_nothing_is_changed_where_one_of_several_changes_can_not_be(
    ctx: datafusion.SessionContext, place: str
) -> None:
    mw.sql(ctx, f"CREATE TABLE t (id BIGINT PRIMARY KEY) LOCATION '{place}'")
    rows(ctx, "INSERT INTO t VALUES (1)")
    rows(ctx, "ALTER TABLE t ADD COLUMN c INT, RENAME c TO a, DROP COLUMN IF EXISTS c")
    for wrong in (
        "DROP COLUMN nothing",
        "DROP COLUMN id",
        "DROP CONSTRAINT a",
        "RENAME COLUMN nothing TO x",
        "RENAME COLUMN b TO a",
        "ADD COLUMN a INT",
        "ADD COLUMN x INT NOT NULL",
        "ADD COLUMN x NOPE",
        "ALTER COLUMN nothing DROP NOT NULL",
        "ALTER COLUMN a SET NOT NULL",
        "DROP a, DROP a",
        "SET TBLPROPERTIES ('a' = 'b')",
    ):
        with pytest.raises(mw.InvalidCallError):
            rows(ctx, f"ALTER TABLE t ADD COLUMN b INT, DROP COLUMN b, ADD COLUMN b INT, {wrong}")
        assert rows(ctx, "SELECT * FROM t") == [{"id": 1, "a": None}]
    assert rows(ctx, "UPDATE t SET a = 5") == [{"count": 1}]


def test_indexes_are_made_and_dropped(ctx: datafusion.SessionContext, place: str) -> None:
    mw.sql(ctx, f"CREATE TABLE t (id BIGINT PRIMARY KEY, body TEXT, v FLOAT[2]) LOCATION '{place}'")
    rows(ctx, "INSERT INTO t VALUES (1, 'running dogs', [1.0, 0.0]), (2, 'a cat', [0.0, 1.0])")
    mw.sql(ctx, "CALL memwal.flush('t')")
    mw.sql(ctx, "CALL memwal.merge('t')")
    fts = "CREATE INDEX words ON t USING fts (body) WITH (stem = $stem, language = 'English')"
    mw.sql(ctx, fts, stem=True)
    mw.sql(ctx, "CREATE INDEX IF NOT EXISTS words ON t USING fts (body)")
    mw.sql(ctx, "CREATE OR REPLACE INDEX words ON t USING fts (body) WITH (stem = true)")
    mw.sql(ctx, "CREATE INDEX ON t USING ivf_flat (v) WITH (num_partitions = 1, metric = 'cosine')")
    mw.sql(ctx, "CREATE INDEX bodies ON t (body)")
    found = rows(ctx, "SELECT name FROM t$indexes WHERE name <> 'id_idx' ORDER BY name")
    assert [row["name"] for row in found] == ["bodies", "v_idx", "words"]
    assert rows(ctx, "SELECT id FROM full_text_search('t', 'body', 'run', 3)") == [{"id": 1}]
    mw.sql(ctx, "DROP INDEX words ON t")
    mw.sql(ctx, "DROP INDEX IF EXISTS words ON t")
    mw.sql(ctx, "DROP INDEX IF EXISTS bodies ON t")
    found = rows(ctx, "SELECT name FROM t$indexes WHERE name <> 'id_idx'")
    assert found == [{"name": "v_idx"}]


def test_a_dropped_table_is_gone_and_its_writers_stop(uri: str) -> None:
    table = mw.create_table(uri, pa.schema({"id": pa.int64()}), "id")
    with pytest.raises(mw.TableReplacedError, match="dropped"), table.writer() as writer:
        writer.upsert({"id": [1]})
        mw.drop_table(uri)
        writer.upsert({"id": [2]})
    with pytest.raises(mw.InvalidCallError, match="nothing"):
        mw.drop_table(uri)
    again = mw.create_table(uri, pa.schema({"id": pa.int64()}), "id")
    assert again.count_rows() == 0


def test_a_folder_that_is_no_table_is_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("dear")
    with pytest.raises(mw.InvalidCallError, match="nothing was deleted"):
        mw.drop_table(tmp_path)
    assert (tmp_path / "file").read_text() == "dear"


def test_a_table_in_memory_is_dropped() -> None:
    table = mw.create_table("memory://dropped", pa.schema({"id": pa.int64()}), "id")
    with table.writer() as writer:
        writer.upsert({"id": [1]})
    mw.drop_table("memory://dropped")
    again = mw.create_table("memory://dropped", pa.schema({"id": pa.int64()}), "id")
    assert again.count_rows() == 0


def test_a_table_with_a_commit_log_is_not_dropped(tmp_path: Path) -> None:
    """Its entries would be those of a new table at the place."""
    options = {"memwal_commit_log": str(tmp_path / "log.sqlite")}
    uri = str(tmp_path / "table")
    mw.create_table(uri, pa.schema({"id": pa.int64()}), "id", storage_options=options)
    with pytest.raises(mw.UnsupportedError, match="has a commit log"):
        mw.drop_table(uri, options)
    with pytest.raises(mw.InvalidCallError, match="made with a commit log"):
        mw.drop_table(uri)
    assert mw.open_table(uri, storage_options=options).count_rows() == 0
