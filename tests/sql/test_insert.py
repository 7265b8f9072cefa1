"""INSERT INTO through the mount: all or nothing, as upserts."""

from __future__ import annotations

import datafusion
import pyarrow as pa
import pytest

from exec_nodes.base.errors import InvalidCallError
from memwal_native import MountedTable
from memwal_sql.session.errors import memwal_errors
from tests.each import each
from tests.sql.fakes import FakeProvider

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])


@pytest.fixture
def provider() -> FakeProvider:
    return FakeProvider(pa.table({"id": [1, 2, 3], "text": ["a", "b", "c"]}, schema=SCHEMA))


@pytest.fixture
def ctx(provider: FakeProvider) -> datafusion.SessionContext:
    context = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(4))
    context.register_table("t", MountedTable(provider))
    source = pa.table({"id": range(10_000), "n": [i % 7 for i in range(10_000)]})
    batches = source.to_batches(max_chunksize=100)
    context.register_record_batches("many", [batches[n::4] for n in range(4)])
    return context


def count(context: datafusion.SessionContext, statement: str) -> int:
    return int(context.sql(statement).to_pylist()[0]["count"])


@pytest.mark.parametrize(
    ("statement", "written"),
    [
        ("INSERT INTO t VALUES (7, 'x'), (8, NULL)", [(7, "x"), (8, None)]),
        ("INSERT INTO t (text, id) VALUES ('x', 7)", [(7, "x")]),
        ("REPLACE INTO t VALUES (1, 'x')", [(1, "x")]),
        ("INSERT INTO t SELECT id + 10, text FROM t WHERE id > 1", [(12, "b"), (13, "c")]),
        ("INSERT INTO t SELECT * FROM t", [(1, "a"), (2, "b"), (3, "c")]),
        ("INSERT INTO t SELECT id, text FROM t WHERE id > 100", []),
    ],
)
def test_rows_arrive_as_one_stream(
    ctx: datafusion.SessionContext,
    provider: FakeProvider,
    statement: str,
    written: list[tuple[int, str | None]],
) -> None:
    assert count(ctx, statement) == len(written)
    (found,) = provider.inserted
    assert list(zip(*found.to_pydict().values(), strict=True)) == written
    assert provider.nulls == [[]]


@pytest.mark.parametrize(
    ("statement", "error"),
    [
        ("INSERT OVERWRITE t VALUES (1, 'x')", "INSERT INTO upserts"),
        ("DELETE FROM t WHERE id = 1", "not (implemented|supported)"),
        ("UPDATE t SET text = 'x' WHERE id = 1", "not (implemented|supported)"),
        (
            "INSERT INTO t SELECT id, CAST(1 / (9000 - id) AS TEXT) FROM many",
            "(?i)divide by zero",
        ),
    ],
)
def test_what_is_refused_or_fails_midway_writes_nothing(
    ctx: datafusion.SessionContext, provider: FakeProvider, statement: str, error: str
) -> None:
    with pytest.raises(Exception, match=error):
        ctx.sql(statement).collect()
    assert provider.inserted == []


@each(
    "query",
    [
        "VALUES (8)",
        "VALUES (8), (9)",
        "SELECT 8",
        "SELECT id FROM many",
        "SELECT id + 1 FROM many WHERE n = 3",
        "SELECT id FROM many ORDER BY id LIMIT 3",
        "SELECT DISTINCT n FROM many",
        "SELECT max(id) FROM many GROUP BY n",
        "SELECT 1 UNION ALL SELECT 2",
        "SELECT (SELECT max(id) FROM many)",
        "SELECT id FROM many WHERE id > (SELECT avg(id) FROM many)",
        "SELECT a.id FROM many a JOIN many b ON a.id = b.id",
        "WITH w AS (SELECT id FROM many) SELECT id FROM w",
        "SELECT id FROM t",
    ],
)
@each("statement", ["INSERT INTO", "REPLACE INTO"])
def test_the_provider_is_told_of_columns_that_are_left_out_before_anything_runs(
    ctx: datafusion.SessionContext, provider: FakeProvider, statement: str, query: str
) -> None:
    def refuse(nulls: list[str]) -> None:
        raise InvalidCallError(f"not {nulls}")

    provider.check_insert = refuse  # type: ignore[method-assign]
    with pytest.raises(InvalidCallError, match=r"not \['text'\]"), memwal_errors():
        ctx.sql(f"{statement} t (id) {query}").collect()
    assert provider.inserted == []


@pytest.mark.parametrize(
    "query",
    [
        "VALUES (8, NULL)",
        "VALUES (8, NULL), (9, NULL)",
        "(id, text) VALUES (8, CAST(NULL AS VARCHAR))",
        "SELECT * FROM (VALUES (8, NULL), (9, NULL))",
        "SELECT id, CASE WHEN n = 1 THEN 'x' END FROM many",
        "SELECT id, nullif('x', CAST(n AS VARCHAR)) FROM many",
        "SELECT id, CAST(max(n) AS VARCHAR) FROM many GROUP BY id",
        "SELECT id, NULL FROM many ORDER BY id LIMIT 3",
        "SELECT 1, NULL UNION ALL SELECT 2, NULL",
        'SELECT id, "NULL" FROM odd',
        "SELECT id, (SELECT CAST(max(n) AS VARCHAR) FROM many) FROM many",
        "(text, id) SELECT 'x', id FROM many",
        "SELECT * FROM t",
    ],
)
def test_nulls_that_are_given_are_not_taken_for_columns_that_are_left_out(
    ctx: datafusion.SessionContext, provider: FakeProvider, query: str
) -> None:
    ctx.register_record_batches("odd", [pa.table({"id": [5], "NULL": ["x"]}).to_batches()])
    ctx.sql(f"INSERT INTO t {query}").collect()
    assert provider.nulls == [[]]
    assert len(provider.inserted) == 1


def test_nulls_in_a_select_come_as_columns_that_are_left_out_do(
    ctx: datafusion.SessionContext, provider: FakeProvider
) -> None:
    """One plan is all that a table sees of both: where they differ some day, so may we."""
    ctx.sql("INSERT INTO t SELECT id, NULL FROM many").collect()
    ctx.sql("INSERT INTO t (id) SELECT id FROM many").collect()
    assert provider.nulls == [["text"], ["text"]]


def test_every_partition_of_a_query_is_written_once(
    ctx: datafusion.SessionContext, provider: FakeProvider
) -> None:
    assert count(ctx, "INSERT INTO t SELECT id, CAST(n AS TEXT) FROM many WHERE id % 2 = 0") == 5000
    assert len(provider.inserted) == 1
    assert sorted(provider.inserted[0]["id"].to_pylist()) == list(range(0, 10_000, 2))


def test_the_order_of_a_query_is_kept_so_that_the_last_of_equal_keys_wins(
    ctx: datafusion.SessionContext, provider: FakeProvider
) -> None:
    source = pa.table({"id": range(100_000), "n": [i % 7 for i in range(100_000)]})
    batches = source.to_batches(max_chunksize=1000)
    ctx.register_record_batches("events", [batches[n::4] for n in range(4)])
    query = "SELECT n, CAST(id AS TEXT) AS text FROM events ORDER BY id"
    assert count(ctx, f"INSERT INTO t {query}") == 100_000
    assert provider.inserted[0]["text"].to_pylist() == list(map(str, range(100_000)))


def test_explain_writes_nothing(ctx: datafusion.SessionContext, provider: FakeProvider) -> None:
    plan = str(ctx.sql("EXPLAIN INSERT INTO t SELECT id, text FROM t").to_pylist()[-1]["plan"])
    assert "UpsertExec" in plan
    assert provider.inserted == []


def test_the_writers_error_comes_back_as_the_original(
    ctx: datafusion.SessionContext, provider: FakeProvider
) -> None:
    def refuse(_: object) -> int:
        raise InvalidCallError("row 0 has a null in the key column 'id'")

    provider.insert = refuse  # type: ignore[method-assign]
    with pytest.raises(InvalidCallError, match="null in the key"), memwal_errors():
        ctx.sql("INSERT INTO t VALUES (1, 'x')").collect()


def test_explain_analyze_says_what_was_written_and_how_long_it_took(
    ctx: datafusion.SessionContext,
) -> None:
    plan = ctx.sql("EXPLAIN ANALYZE INSERT INTO t SELECT id, 'x' FROM many").to_pylist()
    line = next(line for line in plan[0]["plan"].splitlines() if "UpsertExec" in line)
    for metric in ("rows_written=10.00 K", "input_time=", "write_time="):
        assert metric in line or metric.replace("10.00 K", "10000") in line
