"""CREATE EXTERNAL TABLE ... STORED AS MEMWAL by `mw.sql`."""

from __future__ import annotations

from collections.abc import Iterator

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw

SCHEMA = pa.schema({"id": pa.int64(), "val": pa.string()})


@pytest.fixture
def table(uri: str) -> Iterator[mw.Table]:
    table = mw.create_table(uri, SCHEMA, "id", regions="bucket(id, 2)")
    with table.writer() as writer:
        writer.upsert({"id": [1, 2], "val": ["a", "b"]})
        writer.flush()
        writer.upsert({"id": [3], "val": ["c"]})
    yield table
    table.close()


@pytest.fixture
def ctx() -> datafusion.SessionContext:
    return datafusion.SessionContext()


def create(ctx: datafusion.SessionContext, name: str, uri: str, rest: str = "") -> None:
    mw.sql(ctx, f"CREATE EXTERNAL TABLE {name} STORED AS MEMWAL LOCATION '{uri}' {rest}")


@pytest.mark.parametrize("name", ["t", "datafusion.public.t", '"a""b"'])
def test_a_table_is_opened_under_any_name(
    ctx: datafusion.SessionContext, table: mw.Table, name: str
) -> None:
    create(ctx, name, table.uri)
    assert ctx.sql(f"INSERT INTO {name} VALUES (4, 'd')").to_pylist() == [{"count": 1}]
    found = ctx.sql(f"SELECT id FROM {name} ORDER BY id").to_pydict()
    assert found == {"id": [1, 2, 3, 4]}
    literal = name.replace("'", "''")
    search = f"SELECT id FROM full_text_search('{literal}', 'val', 'c', 3)"
    assert ctx.sql(search).to_pydict() == {"id": [3]}
    about = f'{name[:-1]}$regions"' if name.endswith('"') else f"{name}$regions"
    assert ctx.sql(f"SELECT count(*) AS n FROM {about}").to_pydict() == {"n": [2]}
    assert mw.sql(ctx, f"DELETE FROM {name} WHERE id > 2").to_pylist() == [{"count": 2}]


def test_options_say_how_a_table_is_read(ctx: datafusion.SessionContext, table: mw.Table) -> None:
    table.checkpoint("Now")
    create(ctx, "flushed", table.uri, "OPTIONS ('consistency' 'manifest')")
    create(ctx, "then", table.uri, "OPTIONS ('memwal.checkpoint' 'Now', missing 'null')")
    table.insert(pa.table({"id": [9], "val": ["z"]}), table.schema)
    for name, ids in (("flushed", [1, 2]), ("then", [1, 2, 3])):
        assert ctx.sql(f"SELECT id FROM {name} ORDER BY id").to_pydict() == {"id": ids}
