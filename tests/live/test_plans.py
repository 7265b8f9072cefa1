"""Queries over live rows: what EXPLAIN shows, and the answers of the general path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.read.live.settings import Live
from tests.plans.golden import check_plan, normalise, physical_plan, read_cases

SCHEMA = pa.schema(
    [
        *(pa.field("id", pa.int64(), nullable=False), pa.field("val", pa.float64())),
        *(pa.field("kind", pa.string()), pa.field("vector", pa.list_(pa.float32(), 2))),
    ]
)
LIVE = "LiveRowsExec"
GOLDEN = Path(__file__).parent / "verbose.plan"


def rows(ids: range, shift: int = 0) -> pa.Table:
    columns: dict[str, list[object]] = {
        "id": list(ids),
        "val": [None if one % 7 == 0 else one + shift for one in ids],
        "kind": [f"kind {(one + shift) % 5}" for one in ids],
        "vector": [[one, 1.0] for one in ids],
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(uri: str) -> mw.Table:
    """A base table, generations, and rows in memory."""
    table = mw.create_table(uri, SCHEMA, "id", regions=[mw.bucket("id", 2)])
    with table.writer() as writer:
        writer.upsert(rows(range(60)))
        writer.flush()
        table.merge()
        writer.upsert(rows(range(30, 40), shift=100))
        writer.flush()
        writer.upsert(rows(range(55, 65), shift=200))
        writer.delete([3, 57])
    return table


@pytest.fixture
def ctx(table: mw.Table) -> Iterator[datafusion.SessionContext]:
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    return context


def answer(ctx: datafusion.SessionContext, query: str) -> list[str]:
    return sorted(map(repr, ctx.sql(query).to_arrow_table().to_pylist()))


def explained(ctx: datafusion.SessionContext, query: str) -> str:
    return str(ctx.sql(f"EXPLAIN {query}").to_pydict()["plan"])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, val, kind FROM t",
        "SELECT count(*), avg(val) FROM t WHERE kind = 'kind 2'",
        "SELECT kind, sum(val) FROM t GROUP BY kind",
        "SELECT * FROM (SELECT id, kind FROM t WHERE val > 40) WHERE kind <> 'kind 1'",
        "SELECT id, kind FROM t WHERE id = 57 OR id = 58",
        "SELECT kind FROM t WHERE id IN (3, 4, 33, 64, 99) AND val IS NOT NULL",
        "SELECT id FROM t WHERE id BETWEEN 28 AND 31 AND upper(kind) LIKE '%1'",
        "SELECT count(*) FROM (SELECT id FROM t LIMIT 7)",
        "SELECT count(*) FROM (SELECT id FROM t WHERE val > 20 LIMIT 7)",
        "SELECT a.id FROM t a JOIN t b ON a.id = b.id + 1 WHERE b.kind = 'kind 0'",
    ],
)
def test_live_rows_answer_as_the_general_path(ctx: datafusion.SessionContext, query: str) -> None:
    expected = answer(ctx, query)
    assert LIVE not in explained(ctx, query)
    with Live.set(enabled=1, least_rows=0, waited=1):
        answer(ctx, query)  # has them made
        plan = explained(ctx, query)
        assert LIVE in plan or "PlaceholderRowExec" in plan  # the number of rows is known
        assert "DeduplicateExec" not in plan
        assert "ScanExec: region" not in plan
        assert answer(ctx, query) == expected


def test_what_live_rows_lack_is_read_by_the_general_path(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    with Live.set(enabled=1, least_rows=0, waited=1):
        assert table.count_rows() == 63
        assert ctx.sql("SELECT count(*) FROM t").to_pydict() == {"count(*)": [63]}
        assert LIVE in explained(ctx, "SELECT id FROM t")
        assert LIVE not in explained(ctx, "SELECT vector FROM t")
        nearest = table.vector_search("vector", [33.0, 1.0], k=1)
        assert nearest["id"].to_pylist() == [33]
        with Live.set(enabled=0):
            assert LIVE not in explained(ctx, "SELECT id FROM t")


def test_explain_verbose_shows_what_reads_the_files_of_the_same_snapshot(table: mw.Table) -> None:
    ctx = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    mw.register(ctx, "t", table)
    for number, case in enumerate(read_cases(GOLDEN)):
        query = case.sql.removeprefix("EXPLAIN VERBOSE ")
        expected = answer(ctx, query)
        with Live.set(enabled=0):
            of_files = physical_plan(ctx, query)
        with Live.set(enabled=1, least_rows=0, waited=1):
            for _ in range(2):
                assert answer(ctx, query) == expected
            shown = mw.sql(ctx, case.sql).to_pylist()
            plans = [
                (row["plan_type"].replace(table.uri, "<uri>"), normalise(row["plan"]))
                for row in shown
                if row["plan_type"] == "physical_plan" or "live rows" in row["plan_type"]
            ]
        assert plans[0][1].count(LIVE) == len(plans) - 1
        lines = {line.strip() for line in of_files.splitlines()}
        for _, text in plans[1:]:
            assert lines.issuperset(line.strip() for line in text.splitlines())
        check_plan(GOLDEN, number, "\n".join(f"{kind}\n{text}" for kind, text in plans))


def test_small_tables_have_no_live_rows(ctx: datafusion.SessionContext) -> None:
    with Live.set(enabled=1, waited=1):
        answer(ctx, "SELECT id FROM t")
        assert LIVE not in explained(ctx, "SELECT id FROM t")


def test_other_columns_and_other_rows_of_the_base_table_drop_live_rows(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    with Live.set(enabled=1, least_rows=0, waited=1, checked=1):
        assert table.count_rows() == 63
        table.merge()
        assert LIVE in explained(ctx, "SELECT id FROM t")
        table.restore(table.version)
        restored = table.to_arrow().sort_by("id")
        with Live.set(enabled=0):
            assert table.to_arrow().sort_by("id") == restored
        mw.sql(ctx, "ALTER TABLE t ADD COLUMN more BIGINT")
        assert table.to_arrow().column_names == [*SCHEMA.names, "more"]


def test_a_wrong_row_is_found_whatever_a_query_asks(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    with Live.set(enabled=1, least_rows=0, waited=1, checked=1):
        table.to_arrow()
        image = table._image
        assert image is not None and image._image is not None and image._image.live is not None
        live, schema = image._image.live, table.schema
        columns = [pa.array([10_000], schema.field("id").type)]
        columns += [pa.nulls(1, field.type) for field in list(schema)[1:]]
        rows = pa.record_batch(columns, schema=schema)
        live.apply([(rows, rows.column(0), None)], live.state)
        for query in ("SELECT count(*) FROM t", "SELECT sum(id) FROM t", "SELECT id FROM t"):
            with pytest.raises(mw.RepairError, match="live rows"), mw.memwal_errors():
                ctx.sql(query).collect()
