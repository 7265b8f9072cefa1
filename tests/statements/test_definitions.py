"""CREATE, ALTER and DROP of tables and indexes by statements."""

from __future__ import annotations

import datetime
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw


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
        ("at", pa.timestamp("us", "UTC")),
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
    ctx: datafusion.SessionContext, uri: str, rest: str
) -> None:
    parameters = {"place": uri} if "$place" in rest else {}
    mw.sql(ctx, f"CREATE TABLE t {COLUMNS} {rest.format(uri)}", **parameters)
    table = mw.open_table(uri)
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


def test_timestamps_have_microseconds_unless_they_say_otherwise(
    ctx: datafusion.SessionContext, uri: str
) -> None:
    kinds = {
        "TIMESTAMP": pa.timestamp("us"),
        "TIMESTAMP WITHOUT TIME ZONE": pa.timestamp("us"),
        "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
        "TIMESTAMP[]": pa.list_(pa.timestamp("us")),
        "STRUCT<timestamp INT, at TIMESTAMP>": pa.struct(
            [("timestamp", pa.int32()), ("at", pa.timestamp("us"))]
        ),
        "TIMESTAMP(3)": pa.timestamp("ms"),
        "TIMESTAMP(6)": pa.timestamp("us"),
        "TIMESTAMP ( 9 )": pa.timestamp("ns"),
        "TIMESTAMP(9) WITH TIME ZONE": pa.timestamp("ns", "UTC"),
    }
    columns = ", ".join(f"c{place} {kind}" for place, kind in enumerate(kinds))
    mw.sql(ctx, f"CREATE TABLE t (id INT PRIMARY KEY, {columns}) LOCATION '{uri}'")
    assert mw.open_table(uri).schema.types[1:] == [*kinds.values()]
    mw.sql(ctx, "ALTER TABLE t ADD COLUMN at TIMESTAMP DEFAULT NULL")
    assert mw.open_table(uri).schema.field("at").type == pa.timestamp("us")
    mw.sql(ctx, "INSERT INTO t (id, at) VALUES (1, '9999-12-31 23:59:59')").collect()
    found = mw.sql(ctx, "SELECT at FROM t").to_pylist()
    assert found == [{"at": datetime.datetime(9999, 12, 31, 23, 59, 59)}]


def test_columns_have_names_in_quotes(ctx: datafusion.SessionContext, uri: str) -> None:
    columns = '"Id" BIGINT, "a, b" TEXT NOT NULL, CITY VARCHAR, PRIMARY KEY ("Id")'
    mw.sql(ctx, f"CREATE TABLE \"My z\" ({columns}) LOCATION '{uri}'")
    mw.sql(ctx, 'ALTER TABLE "My z" ADD COLUMN "n w" INT, ADD COLUMN "M" DECIMAL(5, 1)')
    mw.sql(ctx, 'ALTER TABLE "My z" RENAME COLUMN "n w" TO "N", DROP COLUMN CITY')
    assert mw.open_table(uri).schema == pa.schema(
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


def test_keys_of_several_columns_keep_their_order(ctx: datafusion.SessionContext, uri: str) -> None:
    mw.sql(
        ctx,
        "CREATE TABLE t (a INT NOT NULL, b TEXT, PRIMARY KEY (b, a)) PARTITIONED BY (b) "
        f"LOCATION '{uri}'",
    )
    table = mw.open_table(uri)
    assert table.primary_key == ("b", "a")
    assert table.info.region_specs[0].fields[0].transform == mw.identity("b").transform


@pytest.mark.parametrize("columns", ["PRIMARY KEY (n)", "n BIGINT PRIMARY KEY, s TEXT"])
def test_a_query_is_not_made_where_its_table_is_there(
    ctx: datafusion.SessionContext, uri: str, columns: str
) -> None:
    """As if another session or process had made it: the folder's table is opened."""
    calls: list[int] = []

    def seen(values: pa.Array) -> pa.Array:
        calls.extend(values.to_pylist())
        return values

    ctx.register_udf(datafusion.udf(seen, [pa.int64()], pa.int64(), "volatile", "seen"))
    create = f"CREATE TABLE {{}} ({columns}) PARTITIONED BY (bucket(n, 2)) LOCATION '{uri}' AS"
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
