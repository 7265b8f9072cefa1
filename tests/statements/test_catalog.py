"""A folder of tables as a catalog of a session."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.catalog.folder import Folder
from memwal_sql.session.transaction_slot import TransactionSlot


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One table of each kind."""
    table = mw.create_table(tmp_path / "events.lance", pa.schema({"id": pa.int64()}), "id")
    with table.writer() as writer:
        writer.upsert({"id": [1, 2]})
        writer.flush()
        writer.upsert({"id": [3]})
    plain = pa.table({"id": [1, 2, 3], "val": ["a", None, "c"]})
    lance.write_dataset(plain, tmp_path / "plain.lance")
    (tmp_path / "other").mkdir()
    return tmp_path


@pytest.fixture
def ctx(folder: Path) -> datafusion.SessionContext:
    ctx = datafusion.SessionContext()
    mw.catalog(ctx, folder, "lake")
    return ctx


def rows(ctx: datafusion.SessionContext, query: str) -> list[dict[str, object]]:
    return list(mw.sql(ctx, query).to_pylist())


def tables(ctx: datafusion.SessionContext) -> list[str]:
    shown = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
    found = rows(ctx, f"{shown} AND table_catalog = 'lake' ORDER BY table_name")
    return [str(one["table_name"]) for one in found]


def test_tables_are_shown_with_their_columns(ctx: datafusion.SessionContext) -> None:
    assert tables(ctx) == ["events", "plain"]
    columns = rows(
        ctx,
        "SELECT table_name, column_name FROM information_schema.columns "
        "WHERE table_catalog = 'lake' AND table_schema = 'public' ORDER BY 1, 2",
    )
    assert [tuple(one.values()) for one in columns] == [
        ("events", "id"),
        ("plain", "id"),
        ("plain", "val"),
    ]
    shown = rows(ctx, "SHOW TABLES")
    assert {"events", "plain"} <= {one["table_name"] for one in shown}


def test_plain_tables_of_lance_are_read(ctx: datafusion.SessionContext) -> None:
    name = "lake.public.plain"
    assert rows(ctx, f"SELECT count(*) AS n FROM {name}") == [{"n": 3}]
    assert rows(ctx, f"SELECT val FROM {name} WHERE id > 1 ORDER BY id LIMIT 1") == [{"val": None}]
    assert rows(ctx, f"SELECT id FROM {name} WHERE upper(val) = 'C'") == [{"id": 3}]
    assert rows(ctx, f"SELECT id FROM {name} WHERE val IS NULL") == [{"id": 2}]
    assert "LanceScanExec" in str(ctx.sql(f"EXPLAIN SELECT id FROM {name}").to_pylist())
    with pytest.raises(mw.UnsupportedError, match="plain Lance table"), mw.memwal_errors():
        ctx.sql(f"INSERT INTO {name} VALUES (9, 'x')").collect()


def test_a_link_to_a_table_is_one_and_hides_none(
    folder: Path, ctx: datafusion.SessionContext, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Links in a folder of databases are ordinary; what deletes goes by the table's own place."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (folder / "events.lance").rename(elsewhere / "events")
    (folder / "linked.lance").symlink_to(elsewhere / "events")
    (folder / "dangling.lance").symlink_to(elsewhere / "nothing")
    (folder / "file.lance").write_text("")
    (folder / "second.lance").symlink_to(elsewhere)
    assert tables(ctx) == ["linked", "plain"]
    assert rows(ctx, "SELECT count(*) AS n FROM lake.public.linked") == [{"n": 3}]
    before = sorted(elsewhere.rglob("*"))
    for drop in (
        lambda: mw.sql(ctx, "DROP TABLE lake.public.linked"),
        lambda: mw.drop_table(folder / "linked.lance"),
        lambda: mw.drop_table(f"{folder}/linked.lance/"),
        lambda: mw.drop_table(f"file://{folder}/linked.lance"),
        lambda: mw.drop_table(f"file:{folder}/linked.lance"),
    ):
        with pytest.raises(mw.InvalidCallError, match=f"symbolic link to {elsewhere}/events"):
            drop()
    assert sorted(elsewhere.rglob("*")) == before and (folder / "linked.lance").is_symlink()
    mw.sql(ctx, "CREATE TABLE lake.public.other (id BIGINT PRIMARY KEY)")
    mw.sql(ctx, "DROP TABLE lake.public.other")
    (folder / "linked.lance").unlink()
    mw.drop_table(elsewhere / "events")
    assert tables(ctx) == ["plain"]


def test_what_others_make_change_and_drop_is_seen(
    ctx: datafusion.SessionContext, folder: Path
) -> None:
    assert rows(ctx, "SELECT * FROM lake.public.events WHERE id = 3") == [{"id": 3}]
    lance.dataset(folder / "events.lance").add_columns(pa.field("more", pa.int8()))
    assert rows(ctx, "SELECT * FROM lake.public.events WHERE id = 3") == [{"id": 3, "more": None}]
    mw.drop_table(folder / "events.lance")
    assert tables(ctx) == ["plain"]
    with pytest.raises(mw.InvalidCallError, match="not found"):
        mw.sql(ctx, "SELECT * FROM lake.public.events")
    mw.create_table(folder / "events.lance", pa.schema({"key": pa.string()}), "key")
    assert ctx.table("lake.public.events").schema().names == ["key"]
    mw.drop_table(folder / "events.lance")  # and no query before the next one is there
    mw.create_table(folder / "events.lance", pa.schema({"id": pa.int8()}), "id")
    assert rows(ctx, "INSERT INTO lake.public.events VALUES (7) RETURNING *") == [{"id": 7}]


@pytest.mark.parametrize("limit", ["", "LIMIT 0", "LIMIT 1", "LIMIT 9", "LIMIT 1 OFFSET 1"])
@pytest.mark.parametrize(
    "where", ["true", "id > 1", "val IS NULL", "val = 'a'", "id < 3 AND upper(val) = 'A'"]
)
def test_rows_of_plain_tables_are_counted_as_those_of_other_ones(
    ctx: datafusion.SessionContext, folder: Path, where: str, limit: str
) -> None:
    ctx.from_arrow(lance.dataset(folder / "plain.lance").to_table(), "same")
    found = [
        rows(ctx, f"SELECT count(*) AS n FROM (SELECT 1 FROM {name} WHERE {where} {limit})")
        for name in ("lake.public.plain", "same")
    ]
    assert found[0] == found[1]


def test_datafusion_alone_makes_and_drops_nothing(
    ctx: datafusion.SessionContext, folder: Path
) -> None:
    with pytest.raises(mw.UnsupportedError, match=r"mw\.sql"), mw.memwal_errors():
        ctx.sql("CREATE TABLE lake.public.x AS SELECT 1 AS a")
    with pytest.raises(mw.UnsupportedError, match="alone"), mw.memwal_errors():
        ctx.sql("CREATE SCHEMA lake.more")
    with pytest.raises(Exception, match="doesn't exist"):
        ctx.sql("DROP TABLE lake.public.events")
    assert (folder / "events.lance").exists()


def test_a_table_that_opens_slowly_keeps_no_other_one_waiting(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mw.create_table(folder / "slow.lance", pa.schema({"id": pa.int64()}), "id")
    tables = Folder(folder, None, "strong", "error", TransactionSlot())
    begun, may_end, opened = Event(), Event(), []

    def opening(place: str, **options: Any) -> mw.Table:
        opened.append(place)
        if place.endswith("slow.lance"):
            begun.set()
            assert may_end.wait(60)
        return mw.open_table(place, **options)

    monkeypatch.setattr(sys.modules[Folder.__module__], "open_table", opening)
    with ThreadPoolExecutor(3) as threads:
        slow = [threads.submit(tables.registered, "slow") for _ in range(2)]
        try:
            assert begun.wait(60)
            assert threads.submit(tables.registered, "events").result(60) is not None
        finally:
            may_end.set()
        first, second = (one.result(60) for one in slow)
    assert first is not None
    assert second is not None
    assert first.table is second.table
    assert len(opened) == 2


@pytest.mark.parametrize("uri", ["memory://x", "s3://bucket", ""])
def test_a_place_that_can_not_be_listed_is_refused(uri: str) -> None:
    with pytest.raises(mw.InvalidCallError):
        mw.catalog(datafusion.SessionContext(), uri, "lake")


@pytest.mark.parametrize(("name", "schema"), [("", "public"), ("lake", ""), ("datafusion", "a")])
def test_names_that_a_catalog_can_not_have_are_refused(
    ctx: datafusion.SessionContext, tmp_path: Path, name: str, schema: str
) -> None:
    mw.sql(ctx, "CREATE TABLE plain AS SELECT 1 AS n")
    with pytest.raises(mw.InvalidCallError, match="name"):
        mw.catalog(ctx, str(tmp_path), name, schema=schema)
    assert mw.sql(ctx, "SELECT * FROM plain").to_pylist() == [{"n": 1}]
