"""AS OF in statements, against a list of the states that the table went through."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.storage.base.versions import read_base_version
from memwal_sql.storage.objects.open import open_store
from tests.each import each

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())])
State = dict[int, int]


@pytest.fixture
def table(uri: str, ctx: datafusion.SessionContext) -> Iterator[mw.Table]:
    table = mw.create_table(uri, SCHEMA, primary_key="id", regions="bucket(id, 2)")
    yield mw.register(ctx, "t", table)
    table.close()


def grown(table: mw.Table, seed: int) -> dict[int, State]:
    """What the table had at each recorded version."""
    random, state, states = Random(seed), State(), dict[int, State]()
    for step in range(4):
        with table.writer() as writer:
            new = {random.randrange(9): step for _ in range(4)}
            writer.upsert(pa.table({"id": list(new), "n": list(new.values())}, SCHEMA))
            state = state | new
            writer.flush()
        if step % 2:
            table.merge()
        states[table.snapshot_regions()] = state
    return states


def found(ctx: datafusion.SessionContext, query: str, **parameters: object) -> State:
    used = {name: value for name, value in parameters.items() if f"${name}" in query}
    return {row["id"]: row["n"] for row in mw.sql(ctx, query, **used).to_pylist()}


@pytest.mark.parametrize(
    "clause",
    [
        "VERSION AS OF {}",
        "FOR VERSION AS OF {}",
        "for system_version as of ({} + 0)",
        "VERSION AS OF $v",
        "/* 'then' */ VERSION -- AS OF\n AS OF {} /* ; */",
    ],
)
def test_a_version_is_read_as_it_was(
    table: mw.Table, ctx: datafusion.SessionContext, clause: str
) -> None:
    for version, state in grown(table, 1).items():
        as_of = clause.format(version)
        assert found(ctx, f"SELECT * FROM t {as_of}", v=version) == state
        assert (
            found(ctx, f"SELECT z.id, n FROM public.T {as_of} AS z WHERE z.n >= 0", v=version)
            == state
        )
        assert (
            found(ctx, f"WITH w AS (SELECT * FROM t {as_of}) (SELECT * FROM w)", v=version) == state
        )


def test_times_are_read_by_the_newest_version_of_then(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    states = grown(table, 2)
    store = open_store(table.uri)
    for version, state in states.items():
        base = read_base_version(store, version)
        assert base is not None
        at = datetime.fromtimestamp(base.timestamp, UTC) + timedelta(microseconds=1)
        for text in (f"'{at.isoformat()}'", f"TIMESTAMP '{at.isoformat()}'", "$at"):
            for words in ("TIMESTAMP", "FOR SYSTEM_TIME", "FOR TIMESTAMP", "SYSTEM_TIME"):
                assert found(ctx, f"SELECT * FROM t {words} AS OF {text}", at=at) == state
    assert found(ctx, "SELECT * FROM t TIMESTAMP AS OF (now())") == list(states.values())[-1]
    with pytest.raises(mw.InvalidCallError, match="in the future"):
        mw.sql(ctx, "SELECT * FROM t TIMESTAMP AS OF (now() + INTERVAL '1 day')")


@pytest.mark.parametrize("name", ["tuesday", "", "3", "a/b", "../then", "monday "])
def test_a_name_that_is_none_is_told_with_tags_and_checkpoints(
    table: mw.Table, ctx: datafusion.SessionContext, name: str
) -> None:
    table.checkpoint("monday")
    table.tags.create("release", table.snapshot_regions())
    said = rf"no tag {re.escape(repr(name))}; it has \['release'\]; .*checkpoint"
    for call in (
        lambda: mw.sql(ctx, f"SELECT * FROM t VERSION AS OF '{name}'"),
        lambda: table.as_of(name),
        lambda: mw.open_table(table.uri, version=name),
    ):
        with pytest.raises(mw.InvalidCallError, match=said):
            call()
    with pytest.raises(mw.InvalidCallError, match=r"has no checkpoint 'x'; it has \['monday'\]$"):
        mw.open_table(table.uri, checkpoint="x")


@each("words", ["VERSION", "TIMESTAMP"])
@each(
    "value",
    [
        *([1], {"a": 1}, b"ab", True, 2**63, 2**64 - 1),
        *(
            pa.scalar(sign * 2**62, pa.timestamp(u, z))
            for sign in (1, -1)
            for u in ("s", "ms", "us")
            for z in (None, "UTC")
        ),
        pa.scalar(1, pa.timestamp("us", "Nowhere/At_all")),
        pa.scalar(1, pa.duration("s")),
    ],
)
def test_a_value_that_is_no_moment_is_refused(
    table: mw.Table, ctx: datafusion.SessionContext, words: str, value: object
) -> None:
    with pytest.raises(mw.InvalidCallError):
        mw.sql(ctx, f"SELECT * FROM t {words} AS OF $v", v=value)


def test_statements_compare_a_table_with_its_past(
    table: mw.Table, ctx: datafusion.SessionContext
) -> None:
    states = grown(table, 3)
    (first, then), (second, later) = list(states.items())[:2]
    now = list(states.values())[-1]
    changed = f"""
        SELECT now.id, now.n FROM t AS now JOIN t VERSION AS OF {first} old ON old.id = now.id
        WHERE now.n <> old.n AND now.id IN (SELECT id FROM t VERSION AS OF {second})
    """
    expected = {k: n for k, n in now.items() if k in then and then[k] != n and k in later}
    assert found(ctx, changed) == expected
    mw.sql(ctx, f"UPDATE t SET n = o.n FROM t VERSION AS OF {first} AS o WHERE o.id = t.id")
    mw.sql(ctx, "DELETE FROM t WHERE id NOT IN (SELECT id FROM t VERSION AS OF $v)", v=first)
    assert found(ctx, "SELECT * FROM t") == then
