"""Statements that give rows other keys, against a dict."""

from random import Random

import datafusion
import pytest

import memwal_sql as mw
from tests.soak import SOAK
from tests.statements.beside_duckdb import SCHEMA

KEYS = range(7)
STATEMENTS = [
    "UPDATE t SET id = s.new FROM (VALUES {pairs}) AS s(old, new) WHERE t.id = s.old",
    "MERGE INTO t USING (VALUES {pairs}) AS s(old, new) ON t.tenant = 'a' AND t.id = s.old "
    "WHEN MATCHED AND s.new < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET id = s.new",
    "MERGE INTO t USING (VALUES {pairs}) AS s(old, new) ON t.id = s.old + 0 "
    "WHEN MATCHED AND s.new < 0 THEN DELETE WHEN MATCHED THEN UPDATE SET id = s.new",
]


@pytest.mark.parametrize("seed", range(SOAK))
@pytest.mark.parametrize("statement", STATEMENTS)
def test_rows_take_keys_that_others_leave_and_no_others(
    uri: str, ctx: datafusion.SessionContext, statement: str, seed: int
) -> None:
    table = mw.register(ctx, "t", mw.create_table(uri, SCHEMA, primary_key=["tenant", "id"]))
    random, refused = Random(seed), 0
    expected = {key: key * 10 for key in KEYS[:4]}
    rows = ", ".join(f"('a', {key}, {n}, NULL)" for key, n in expected.items())
    mw.sql(ctx, f"INSERT INTO t VALUES {rows}")
    for _ in range(12):
        old = random.sample(sorted(expected), random.randint(1, len(expected)))
        places = [*KEYS, -1] if "DELETE" in statement and len(expected) > 2 else list(KEYS)
        new = dict(zip(old, random.sample(places, len(old)), strict=True))
        left = {key: n for key, n in expected.items() if key not in new}
        text = statement.format(pairs=", ".join(map(str, new.items())))
        if left.keys() & set(new.values()):
            refused += 1
            with pytest.raises(mw.KeysExistError, match="other rows have"):
                mw.sql(ctx, text)
        else:
            assert mw.sql(ctx, text).to_pylist()[0]["count"] == len(new)
            expected = left | {to: expected[key] for key, to in new.items() if to >= 0}
        if random.random() < 0.3:
            table.flush()
        assert {row["id"]: row["n"] for row in table.to_arrow().to_pylist()} == expected
    assert refused < 12
    table.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE t SET id = 7, tenant = 'a'",
        "MERGE INTO t USING (VALUES ('a', 7), ('a', 7)) AS s (k, i) "
        "ON t.tenant = s.k AND t.id = s.i "
        "WHEN NOT MATCHED THEN INSERT (tenant, id) VALUES (s.k, s.i)",
        "INSERT INTO t (tenant, id) VALUES ('a', 7), ('a', 7) ON CONFLICT DO UPDATE SET n = 1",
    ],
)
def test_a_key_that_several_rows_would_get_is_told_so(
    table: mw.Table, ctx: datafusion.SessionContext, statement: str
) -> None:
    mw.sql(ctx, "INSERT INTO t (tenant, id) VALUES ('a', 1), ('a', 3)")
    with pytest.raises(mw.InvalidCallError, match=r"several rows would get the same key.*7"):
        mw.sql(ctx, statement)
