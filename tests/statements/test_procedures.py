"""CALL, and a session whose `sql` is `mw.sql`."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

import memwal_sql as mw

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int32())])


@pytest.fixture
def ctx() -> mw.SessionContext:
    return mw.SessionContext()


@pytest.fixture
def table(uri: str, ctx: mw.SessionContext) -> Iterator[mw.Table]:
    table = mw.register(ctx, "t", mw.create_table(uri, SCHEMA, primary_key="id"))
    with table.writer() as writer:
        writer.upsert(pa.table([range(5), range(5)], schema=SCHEMA))
    yield table
    table.close()


def live(ctx: mw.SessionContext) -> dict[int, int]:
    return {row["id"]: row["n"] for row in ctx.sql("SELECT * FROM t").to_pylist()}


def test_jobs_are_called_by_statements(table: mw.Table, ctx: mw.SessionContext) -> None:
    ctx.sql("UPDATE t SET n = 7 WHERE id = 0")  # opens the session's writer
    assert ctx.sql("CALL memwal.flush('t')").to_pylist() == [{"regions": 0}]
    assert ctx.sql("CALL memwal.merge('t', regions => ['unsharded=0'])").to_pylist() == [
        {"generations": 1}
    ]
    assert ctx.sql("CALL memwal.build_indexes('public.t')").to_pylist() == [{"index": "id_idx"}]
    ctx.sql("DELETE FROM t WHERE id = 4")
    ctx.sql("CALL memwal.flush('t')")
    ctx.sql("CALL memwal.merge('t')")
    for options, count in (("deleted => 0.5", 0), ("dry_run => true", 1), ("", 1), ("", 0)):
        call = f"CALL memwal.compact('t'{options and ', ' + options})"
        assert ctx.sql(call).to_pylist() == [{"fragments": count}]
    assert ctx.sql("CALL memwal.snapshot_regions('t')").to_pylist() == [
        {"version": mw.open_table(table.uri).version}
    ]
    until = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
    ctx.sql("CALL memwal.checkpoint('t', 'one', expires => $until)", until=until)
    ctx.sql("CALL memwal.checkpoint('t', name => 'two', expires => INTERVAL '90 minutes')")
    rows = ctx.sql("CALL memwal.checkpoints('t')").to_pylist()
    assert [row["name"] for row in rows] == ["one", "two"]
    assert rows[0]["expires"] == until
    assert timedelta(minutes=80) < rows[1]["expires"] - datetime.now(UTC) < timedelta(minutes=91)
    ctx.sql("CALL memwal.drop_checkpoint('t', 'one')")
    call = "CALL memwal.collect_garbage('t', dry_run => true, older_than => INTERVAL '0 seconds')"
    found = ctx.sql(call)
    assert found.schema().names[0] == "kind"
    assert ctx.sql("CALL memwal.check('t')").to_pylist() == table.check().to_arrow().to_pylist()
    assert live(ctx) == {0: 7, 1: 1, 2: 2, 3: 3}


def test_states_are_named_and_restored_by_statements(
    table: mw.Table, ctx: mw.SessionContext
) -> None:
    ctx.sql("CALL memwal.flush('t')")
    [first] = ctx.sql("CALL memwal.create_tag('t', 'first')").to_pylist()
    assert ctx.sql(
        "CALL memwal.create_tag('t', name => 'same', version => $v)", v=first["version"]
    ).to_pylist() == [first]
    assert table.tags.list() == {"first": first["version"], "same": first["version"]}
    ctx.sql("CALL memwal.checkpoint('t', 'kept')")
    ctx.sql("UPDATE t SET n = -1")
    for argument, value, written in (
        ("$x", "first", 5),
        ("checkpoint => $x", "kept", 3),
        ("version => $x", first["version"], 3),
    ):
        ctx.sql("DELETE FROM t WHERE id > 1")
        rows = ctx.sql(f"CALL memwal.restore('t', {argument})", x=value)
        assert rows.to_pylist() == [{"rows": written}]
        assert live(ctx) == {n: n for n in range(5)}
    ctx.sql("CALL memwal.drop_tag('t', 'same')")
    assert list(table.tags) == ["first"]
    runs = ctx.sql("CALL memwal.run_all_jobs('t')").to_pylist()
    assert [run["job"] for run in runs] == ["flush", "merge", "index", "compact", "snapshot", "gc"]
    assert live(ctx) == {n: n for n in range(5)}


def test_a_flush_flushes_whatever_is_not_flushed(table: mw.Table, ctx: mw.SessionContext) -> None:
    flushed = "SELECT num_rows FROM \"t$generations\" WHERE state = 'flushed' ORDER BY generation"
    assert ctx.sql("CALL memwal.flush('t')").to_pylist() == [{"regions": 1}]  # a closed writer's
    assert ctx.sql(flushed).to_pylist() == [{"num_rows": 5}]
    ctx.sql("INSERT INTO t VALUES (0, 9)")
    with table.writer():  # which has claimed nothing
        assert ctx.sql("CALL memwal.flush('t')").to_pylist() == [{"regions": 0}]
    assert ctx.sql(flushed).to_pylist() == [{"num_rows": 5}, {"num_rows": 1}]
    assert ctx.sql("CALL memwal.flush('t')").to_pylist() == [{"regions": 0}]


def test_a_session_of_ours_leaves_other_statements_to_datafusion(ctx: mw.SessionContext) -> None:
    assert ctx.sql("SELECT $1 + $b AS c", param_values={"1": 1}, b=2).to_pylist() == [{"c": 3}]
    ctx.sql("CREATE VIEW v AS SELECT 1 AS a")
    assert ctx.sql("SHOW TABLES").to_pylist()
    assert ctx.sql("SELECT * FROM v").to_pylist() == [{"a": 1}]
