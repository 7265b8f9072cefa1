"""ON of MERGE: rows found by their keys are those that a query over the whole table joins."""

from collections import Counter
from itertools import product
from random import Random

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.statements.changes import reading
from memwal_sql.statements.queries import query_frames
from tests.soak import SOAK
from tests.statements.beside_duckdb import live

SCHEMA = pa.schema(
    [pa.field("flag", pa.bool_(), False), pa.field("id", pa.int64(), False), ("n", pa.int64())]
)
ROWS = [(flag, key, key % 3) for flag, key in product((False, True), range(4))]
SOURCE = pa.table(
    {
        "r": range(6),
        "i": [0, 1, 2, 3, None, 9],
        "j": [0, 2, 2, None, 1, 3],
        "b": [True, False, None, True, False, True],
        "end": [0, 1, 2, 3, 4, 5],
    }
)
NUMBERS = (
    "s.i", "s.j", "(s.i)", "s.i + 1", "-s.i + 3", "abs(s.i)", "s.end", "2", 's."i" % 2', "s.i & 1",
    "s.i | 1", "s.i ^ 1", "CASE WHEN s.i = 1 AND s.b THEN s.i ELSE s.j END", "CAST(s.i AS INT)",
    "s.i::INT", "coalesce(s.i, s.j)", "t.n", "s.j * s.j", "-(s.i)",
)  # fmt: skip
TRUTHS = (
    "s.b", "true", "(s.b)", "not(s.b)", "s.i = s.j", "(s.i < 2)", "s.i < 2", "NOT (s.b)", "NOT s.b",
    "s.i IN (1, 2)", "s.i in(1, 2)", "s.i BETWEEN 1 AND 2", "s.i IS NULL", "s.b OR s.b",
    "s.b = s.b", "CAST(s.i AS VARCHAR) LIKE '1'", "t.n = 1", "s.i >= s.j", "s.b AND true",
)  # fmt: skip
TAILS = (
    "", "", "", " IS NULL", " IS NOT NULL", " IS TRUE", " IS NOT FALSE", " IN (s.b)", " IN (true)",
    " NOT IN (false)", " = true", " = (s.b)", " <> s.b", " < true", " IS DISTINCT FROM s.b",
    " OR s.j = 2", " OR (s.j = 2)", " BETWEEN false AND true", " AND s.j > 0", " AND NOT (s.b)",
    " IS NOT DISTINCT FROM (s.b)", " || 'x' = 'truex'", " IS UNKNOWN",
)  # fmt: skip


def condition(random: Random) -> str:
    """Of comparisons of both key columns, with operators around them."""

    def equal(column: str, texts: tuple[str, ...]) -> str:
        sides = [column, random.choice(texts)]
        if random.random() < 0.3:
            sides.reverse()
        text = " = ".join(sides) + random.choice(TAILS)
        if random.random() < 0.15:
            text = f"({text})"
        return f"NOT {text}" if random.random() < 0.1 else text

    parts = [equal("t.flag", TRUTHS), equal("t.id", NUMBERS)]
    random.shuffle(parts)
    text = random.choice((" AND ",) * 9 + (" OR ",)).join(parts)
    return f"({text})" if random.random() < 0.2 else text


def joined(ctx: datafusion.SessionContext, on: str) -> list[tuple[object, ...]] | None:
    """The keys of rows and the rows of the source that match; None where that is no condition."""
    query = f"SELECT t.flag, t.id, s.r FROM t JOIN s ON ({on})"
    try:
        found = datafusion.SessionContext.sql(ctx, query).to_pylist()
    except Exception:
        return None
    return [tuple(row.values()) for row in found]


@pytest.mark.parametrize("seed", range(SOAK))
def test_rows_found_by_keys_are_those_that_a_join_finds(
    uri: str, ctx: datafusion.SessionContext, seed: int
) -> None:
    random, outcomes = Random(seed), Counter[str]()
    table = mw.register(ctx, "t", mw.create_table(uri, SCHEMA, primary_key=["flag", "id"]))
    ctx.register_record_batches("s", [SOURCE.to_batches()])
    plain = datafusion.SessionContext()
    plain.register_record_batches("s", [SOURCE.to_batches()])
    rows = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in ROWS], SCHEMA)
    plain.register_record_batches("t", [rows.to_batches()])
    for _ in range(60):
        on = condition(random)
        mw.sql(ctx, "DELETE FROM t WHERE id >= 1000")
        mw.sql(ctx, f"INSERT INTO t VALUES {', '.join(map(str, ROWS))}")
        merge = (
            f"MERGE INTO t USING s ON {on} WHEN MATCHED THEN UPDATE SET n = 100 + s.r "
            "WHEN NOT MATCHED THEN INSERT (flag, id, n) VALUES (true, 1000 + s.r, NULL)"
        )
        pairs = joined(plain, on)
        times = Counter(pair[:2] for pair in pairs or [])
        if pairs is None or (times and max(times.values()) > 1):
            outcomes["refused" if pairs is None else "several"] += 1
            with pytest.raises(mw.MemWalError):
                mw.sql(ctx, merge)
            continue
        outcomes["joined"] += 1
        expected = {(flag, key): n for flag, key, n in ROWS}
        expected |= {(flag, key): 100 + r for flag, key, r in pairs}
        left = set(range(len(SOURCE))) - {r for _, _, r in pairs}
        expected |= {(True, 1000 + r): None for r in left}
        try:
            mw.sql(ctx, merge)
        except Exception as error:
            raise AssertionError(on) from error
        found = {(row["flag"], row["id"]): row["n"] for row in table.to_arrow().to_pylist()}
        assert found == expected, on
    assert min(outcomes[kind] for kind in ("refused", "several", "joined")) > 5, outcomes
    table.close()


def test_the_rows_of_a_source_are_looked_up_by_their_keys(
    table: mw.Table, ctx: datafusion.SessionContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    mw.sql(ctx, "INSERT INTO t VALUES ('a', 1, 1, NULL), ('a', 2, 2, NULL)")
    mw.sql(ctx, "CREATE TABLE s AS VALUES ('a', 1, 10), ('a', 7, 70)")
    queries: list[str] = []
    frame = query_frames.query_frame

    def read(ctx: object, query: str, *args: object, **named: object) -> object:
        queries.append(query)
        return frame(ctx, query, *args, **named)

    monkeypatch.setattr(reading, "query_frame", read)
    mw.sql(
        ctx,
        "MERGE INTO t USING s ON t.tenant = lower(s.column1) AND s.column2 = t.id "
        "WHEN MATCHED THEN DELETE",
    )
    assert not any("FROM t " in query for query in queries)
    assert [row["id"] for row in live(table)] == [2]


@pytest.mark.parametrize("condition", ["", "AND s.n > 0"])
@pytest.mark.parametrize(("unit", "finer"), [("us", "ns"), ("s", "ms")])
def test_a_key_that_no_row_of_the_source_equals_may_be_there_once_it_fits(
    uri: str, ctx: datafusion.SessionContext, unit: str, finer: str, condition: str
) -> None:
    """1.5 units do not equal 1, and are cut to 1 when they are inserted."""
    schema = pa.schema([pa.field("ts", pa.timestamp(unit), False), ("n", pa.int64())])
    with mw.register(ctx, "t", mw.create_table(uri, schema, "ts")) as table:
        with table.writer() as writer:
            writer.upsert(pa.table({"ts": pa.array([1], pa.timestamp(unit)), "n": [10]}))
        source = pa.table({"ts": pa.array([1500], pa.timestamp(finer)), "n": [99]})
        ctx.register_record_batches("s", [source.to_batches()])
        with pytest.raises(mw.KeysExistError):
            mw.sql(
                ctx,
                f"MERGE INTO t USING s ON t.ts = s.ts {condition} "
                "WHEN NOT MATCHED THEN INSERT (ts, n) VALUES (s.ts, s.n)",
            )
        assert table.to_arrow()["n"].to_pylist() == [10]
