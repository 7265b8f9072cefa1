"""Tables in sessions: by DataFusion's own calls, by their place, and what is left behind."""

from __future__ import annotations

from pathlib import Path

import datafusion
import lance
import pyarrow as pa
import pyarrow.dataset
import pytest

import memwal_sql as mw

ABOUT = {"files", "generations", "history", "indexes", "regions", "snapshots", "wal"}


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    table = mw.create_table(tmp_path / "t", pa.schema({"id": pa.int64(), "val": pa.string()}), "id")
    with table.writer() as writer:
        writer.upsert({"id": [1, 2, 3], "val": ["a", "b", "c"]})
        writer.flush()
        writer.delete([2])
    return table


@pytest.fixture
def ctx() -> datafusion.SessionContext:
    return datafusion.SessionContext()


def names(ctx: datafusion.SessionContext) -> set[str]:
    return set(ctx.catalog().schema().names())


def about(*tables: str) -> set[str]:
    return {f"{name}${one}" for name in tables for one in ABOUT} | set(tables)


def test_a_table_is_one_of_datafusion_s(ctx: datafusion.SessionContext, table: mw.Table) -> None:
    ctx.register_table("t", table)
    query = "SELECT id FROM t WHERE val >= 'a' ORDER BY id"
    assert ctx.sql(query).to_pylist() == [{"id": 1}, {"id": 3}]
    assert "BloomFilterGuardExec" in str(
        ctx.sql("EXPLAIN SELECT * FROM t WHERE id = 3").to_pylist()
    )
    assert ctx.sql("INSERT INTO t VALUES (2, 'again')").to_pylist() == [{"count": 1}]
    assert ctx.read_table(table).count() == 3
    joined = ctx.read_table(table).join(ctx.table("t"), on="id").count()
    assert joined == 3


def test_a_table_that_datafusion_registered_says_when_its_columns_have_changed(
    ctx: datafusion.SessionContext, table: mw.Table
) -> None:
    ctx.register_table("t", table)
    lance.dataset(table.uri).drop_columns(["val"])
    with pytest.raises(mw.ReopenError, match="register it again"), mw.memwal_errors():
        ctx.sql("SELECT * FROM t").collect()


@pytest.mark.parametrize("kind", [str, Path])
def test_a_place_is_opened_with_the_options_that_are_given(
    ctx: datafusion.SessionContext, table: mw.Table, kind: type
) -> None:
    opened = mw.register(ctx, "t", kind(table.uri))
    assert isinstance(opened, mw.Table)
    assert ctx.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 2}]
    assert ctx.sql("SELECT count(*) AS n FROM t$regions").to_pylist() == [{"n": 1}]
    table.checkpoint("before")
    opened.writer().upsert({"id": [9], "val": ["new"]})
    mw.register(ctx, "old", kind(table.uri), checkpoint="before")
    assert ctx.sql("SELECT count(*) AS n FROM old").to_pylist() == [{"n": 2}]
    assert ctx.sql("SELECT count(*) AS n FROM t").to_pylist() == [{"n": 3}]


def test_what_is_no_table_is_refused(ctx: datafusion.SessionContext, table: mw.Table) -> None:
    with pytest.raises(mw.InvalidCallError, match="create_table makes one"):
        mw.register(ctx, "t", f"{table.uri}-not")
    with pytest.raises(mw.InvalidCallError, match="5 is not a table"):
        mw.register(ctx, "t", 5)  # type: ignore[arg-type]
    with pytest.raises(mw.InvalidCallError, match=r"\['version'\] say how to open"):
        mw.register(ctx, "t", table, version=1)
    assert names(ctx) == set()


@pytest.mark.parametrize("drop", ["ctx.deregister_table", "DROP TABLE", "deregister"])
def test_nothing_of_a_table_that_is_taken_away_stays(
    ctx: datafusion.SessionContext, table: mw.Table, drop: str
) -> None:
    mw.register(ctx, "t", table)
    mw.register(ctx, "u", table)
    assert names(ctx) == about("t", "u")
    if drop == "deregister":
        mw.deregister(ctx, "t")
    elif drop == "DROP TABLE":
        ctx.sql("DROP TABLE t").collect()
    else:
        ctx.deregister_table("t")
    search = "SELECT * FROM full_text_search('{}', 'val', 'c')"
    assert ctx.sql(search.format("u")).count() == 1
    with pytest.raises(mw.InvalidCallError, match="'t' is not a table"), mw.memwal_errors():
        ctx.sql(search.format("t"))
    mw.register(ctx, "v", table)
    assert names(ctx) == about("u", "v")


def test_a_table_that_has_taken_the_name_stays(
    ctx: datafusion.SessionContext, table: mw.Table
) -> None:
    mw.register(ctx, "t", table)
    ctx.deregister_table("t")
    ctx.register_table("t", pyarrow.dataset.dataset(pa.table({"z": [1]})))
    with pytest.raises(Exception, match="'t' is not a table that can be searched"):
        ctx.sql("SELECT * FROM full_text_search('t', 'val', 'a')")
    mw.deregister(ctx, "t")
    assert ctx.sql("SELECT * FROM t").to_pylist() == [{"z": 1}]
    assert names(ctx) == {"t"}


def test_a_table_goes_on_in_plans_that_were_made_before(
    ctx: datafusion.SessionContext, table: mw.Table
) -> None:
    mw.register(ctx, "t", table)
    frame = ctx.sql("SELECT id FROM t ORDER BY id")
    mw.deregister(ctx, "t")
    assert frame.to_pylist() == [{"id": 1}, {"id": 3}]
    mw.register(ctx, "t", table)
    assert names(ctx) == about("t")
