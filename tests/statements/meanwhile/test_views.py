"""Statements that read the table that they change by a view of when it had another consistency."""

from collections.abc import Callable, Mapping
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.session.provider import noted_scans
from tests.soak import in_turns, usual

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("body", pa.string())]
)
VIEWS = {
    "view": "CREATE VIEW shown AS SELECT id, n FROM {t}",
    "view of a view": "CREATE VIEW one AS SELECT * FROM {t};"
    "CREATE VIEW shown AS SELECT id, n FROM one",
    "alias": "CREATE VIEW shown AS SELECT id, n FROM (SELECT * FROM {t} AS a) AS b",
    "subquery": "CREATE VIEW shown AS SELECT id, (SELECT max(n) FROM {t} AS b WHERE b.id = o.id) "
    "AS n FROM (VALUES (1)) AS o (id)",
    "search": "CREATE VIEW shown AS SELECT id, n FROM full_text_search('{t}', 'body', 'word', 10)",
}
STATEMENTS = [
    "UPDATE {t} SET n = s.n + 1 FROM shown AS s WHERE s.id = {q}.id",
    "UPDATE {t} SET n = (SELECT max(n) + 1 FROM shown)",
    "DELETE FROM {t} WHERE n - 1000 IN (SELECT n - 10 FROM shown)",
    "MERGE INTO {t} USING shown AS s ON {q}.id = s.id WHEN MATCHED THEN UPDATE SET n = s.n + 1",
    "INSERT INTO {t} SELECT id, n + 1, 'word' FROM shown",
    "INSERT INTO {t} (id, n) SELECT id, n + 1 FROM shown",
    "INSERT OVERWRITE {t} SELECT id, n + 1, 'word' FROM shown",
]
Register = Callable[[datafusion.SessionContext, mw.Table, str], None]


def _again(ctx: datafusion.SessionContext, table: mw.Table, level: str) -> None:
    mw.register(ctx, "t", table, level)


def _elsewhere(ctx: datafusion.SessionContext, table: mw.Table, level: str) -> None:
    if level != "strong":
        mw.register(ctx, "t", table, level)
        mw.register(ctx, "u", table)
    else:
        mw.deregister(ctx, "t")


def _by_datafusion(ctx: datafusion.SessionContext, table: mw.Table, level: str) -> None:
    if level != "strong":
        mw.register(ctx, "t", table, level)
        return
    ctx.deregister_table("t")
    mw.register(ctx, "t", table)


def _catalog(ctx: datafusion.SessionContext, table: mw.Table, level: str) -> None:
    mw.catalog(ctx, str(Path(table.uri).parent), "lake", consistency=level)


# How a session gets a table; what it is called at first, and afterwards.
WAYS: Mapping[str, tuple[Register, str, str]] = {
    "again": (_again, "t", "t"),
    "elsewhere": (_elsewhere, "t", "u"),
    "by DataFusion": (_by_datafusion, "t", "t"),
    "catalog": (_catalog, "lake.public.table", "lake.public.table"),
}


@pytest.mark.parametrize("level", usual(["eventual", "manifest"], 1))
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_a_weaker_consistency_is_not_taken_for_a_strong_one(
    tmp_path: Path, ctx: datafusion.SessionContext, view: str, way: str, level: str
) -> None:
    register, before, after = WAYS[way]
    table = mw.create_table(tmp_path / "table.lance", SCHEMA, primary_key="id")
    register(ctx, table, level)
    for text in VIEWS[view].format(t=before).split(";"):
        ctx.sql(text).collect()
    register(ctx, table, "strong")
    for statement in in_turns(STATEMENTS, [*VIEWS].index(view) + [*WAYS].index(way), 3):
        with table.writer() as writer:
            writer.upsert([{"id": 1, "n": 10, "body": "word"}])
            writer.flush()
        ctx.sql("SELECT * FROM shown").collect()
        with mw.open_table(table.uri) as other, other.writer() as writer:
            writer.upsert([{"id": 1, "n": 1000, "body": "word"}])
            with pytest.raises(mw.UnsupportedError, match=f"at the consistency '{level}'"):
                mw.sql(ctx, statement.format(t=after, q=after.rpartition(".")[2]))
        assert table.get([1])["n"].to_pylist() == [1000], statement
    table.close()


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_the_strong_table_is_read_whatever_was_made_before_or_since(
    tmp_path: Path, ctx: datafusion.SessionContext, view: str
) -> None:
    table = mw.create_table(tmp_path / "table.lance", SCHEMA, primary_key="id")
    mw.register(ctx, "t", table, "eventual")
    ctx.sql("CREATE VIEW unread AS SELECT * FROM t").collect()
    mw.register(ctx, "t", table)
    for text in VIEWS[view].format(t="t").split(";"):
        ctx.sql(text).collect()
    mw.register(ctx, "t", table, "eventual")
    for statement in in_turns(STATEMENTS, [*VIEWS].index(view), 2):
        mw.sql(ctx, "INSERT INTO t VALUES (1, 10, 'word')")
        table.close()
        with mw.open_table(table.uri) as other, other.writer() as writer:
            writer.upsert([{"id": 1, "n": 1000, "body": "word"}])
        mw.sql(ctx, statement.format(t="t", q="t"))
        assert table.get([1])["n"].to_pylist() in ([1001], [1000]), statement
    table.close()


def test_every_scan_of_a_plan_is_noted(uri: str, ctx: datafusion.SessionContext) -> None:
    """Also if a DataFusion to come asks for them in other threads."""
    with mw.create_table(uri, SCHEMA, primary_key="id") as table:
        mw.register(ctx, "t", table)
        union = " UNION ALL ".join(["SELECT n FROM t"] * 20)
        frame = ctx.sql(f"SELECT n, (SELECT max(n) FROM t) FROM ({union})")
        with noted_scans() as found:
            frame.execution_plan()
        assert len(found) == 21
