"""ON of MERGE: rows found by their keys are those that a query over the whole table joins."""

from collections import Counter
from itertools import product
from random import Random

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.soak import SOAK

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
        mw.sql(ctx, f"INSERT OVERWRITE t VALUES {', '.join(map(str, ROWS))}")
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
