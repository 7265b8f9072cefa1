"""Another statement comes while one runs, at each moment at which it has read something: no update
is lost, and the answer is what was written."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, product
from typing import Any

import datafusion
import pytest

import memwal_sql as mw
from memwal_sql.statements.changes.reading import _MOST_NEAR
from tests.soak import usual
from tests.statements.beside_duckdb import live
from tests.statements.conftest import Meanwhile

# By id.
Rows = dict[int, tuple[int | None, str | None]]
START = "VALUES ('a', 1, 1, 'x'), ('a', 2, 2, NULL)"
NEW = "INSERT INTO t VALUES ('a', 1, 100, 'y'), ('a', 7, 7, 'z')"
ON_KEY = "t.tenant = s.k AND t.id = s.i"
FEW, MORE = "('a', 1, 10), ('a', 7, 70)", "('a', 1, 10), ('a', 2, 20), ('a', 7, 70), ('a', 8, 80)"
MERGE = (
    "MERGE INTO t USING (VALUES {}) AS s (k, i, m) ON {} WHEN MATCHED THEN "
    "UPDATE SET n = t.n + s.m WHEN NOT MATCHED THEN INSERT VALUES (s.k, s.i, s.m, NULL)"
)
# A statement, the other one, and the rows afterwards.
CASES: list[tuple[str, str, Rows]] = [
    (
        "UPDATE t SET n = n + 100 RETURNING id, n",
        "UPDATE t SET n = n + 10 WHERE id = 1",
        {1: (111, "x"), 2: (102, None)},
    ),
    (
        "INSERT INTO t (tenant, id, n) VALUES ('a', 1, 5), ('a', 7, 6)",
        NEW,
        {1: (5, "y"), 2: (2, None), 7: (6, "z")},
    ),
    (
        "INSERT INTO t VALUES ('a', 1, 5, 'q'), ('a', 7, 6, 'q') ON CONFLICT DO NOTHING",
        NEW,
        {1: (100, "y"), 2: (2, None), 7: (7, "z")},
    ),
    (
        "INSERT INTO t VALUES ('a', 1, 5, 'q'), ('a', 7, 6, 'q') ON CONFLICT DO UPDATE "
        "SET n = t.n + excluded.n",
        NEW,
        {1: (105, "y"), 2: (2, None), 7: (13, "z")},
    ),
    *(
        (query, "UPDATE t SET n = n + 100 WHERE id = 1", {1: (106, name), 2: (7, None)})
        for query, name in (
            ('INSERT INTO t SELECT tenant, id, n + 5, "Name" FROM t RETURNING id, n', "x"),
            ('INSERT INTO t SELECT tenant, id, n + 5, "Name" FROM shown', "x"),
            (
                "WITH w AS (SELECT * FROM t) REPLACE INTO t (tenant, id, n) "
                "SELECT w.tenant, id, n + 5 FROM w",
                None,
            ),
        )
    ),
    (MERGE.format(FEW, ON_KEY), NEW, {1: (110, "y"), 2: (2, None), 7: (77, "z")}),
    *(
        (
            f"{MERGE.format(MORE, on)} RETURNING id, n",
            "INSERT INTO t VALUES ('a', 1, 100, NULL)",
            {1: (110, None), 2: (22, None), 7: (70, None), 8: (80, None)},
        )
        for on in (ON_KEY, "t.id = s.i")
    ),
    (  # the row that it matched does not match any more: it is inserted under another key
        "MERGE INTO t USING (VALUES (1, 50)) AS s (m, i) ON t.n = s.m WHEN MATCHED THEN "
        "UPDATE SET \"Name\" = 'met' WHEN NOT MATCHED THEN INSERT (tenant, id) VALUES ('a', s.i)",
        "UPDATE t SET n = 11 WHERE id = 1",
        {1: (11, "x"), 2: (2, None), 50: (None, None)},
    ),
]


@pytest.fixture
def table(table: mw.Table, ctx: datafusion.SessionContext) -> mw.Table:
    mw.register(ctx, "t", table)  # as views read it
    mw.sql(ctx, "CREATE VIEW shown AS SELECT * FROM t")
    return table


def answers(
    ctx: datafusion.SessionContext, meanwhile: Meanwhile, start: str, other: str, statement: str
) -> Iterator[list[dict[str, Any]]]:
    """What the statement answers when the other one comes at its first moment, its second one and
    so on."""
    for moment in count():
        mw.sql(ctx, "DELETE FROM t")
        mw.sql(ctx, f"INSERT INTO t {start}")
        came: list[object] = []
        meanwhile(lambda came=came: came.append(mw.sql(ctx, other)), moment)
        answer = mw.sql(ctx, statement).to_pylist()
        if not came:
            assert moment > 0
            return
        yield answer


def test_no_update_is_lost_to_one_that_came_meanwhile(
    table: mw.Table, ctx: datafusion.SessionContext, meanwhile: Meanwhile
) -> None:
    for place, (statement, other, expected) in enumerate(CASES):
        mw.sql(ctx, f"SET memwal.isolation = '{('snapshot', 'serializable')[place % 2]}'")
        for answer in answers(ctx, meanwhile, START, other, statement):
            rows = {row["id"]: (row["n"], row["Name"]) for row in live(table)}
            assert rows == expected, statement
            if "RETURNING" in statement:
                answered = sorted((row["id"], row["n"]) for row in answer)
                assert answered == [(key, n) for key, (n, _) in rows.items()], statement


def test_neither_few_lost_keys_nor_many_are_updated_twice(
    table: mw.Table, ctx: datafusion.SessionContext, meanwhile: Meanwhile
) -> None:
    """A list of few is planned for, many are compared with what the query finds."""
    for lost in (1, _MOST_NEAR, _MOST_NEAR + 1, 300):
        mw.sql(ctx, "INSERT INTO t SELECT 'a', value, 0, 'x' FROM range(300)")
        meanwhile(f"UPDATE t SET n = 10 WHERE id < {lost}")
        answer = mw.sql(ctx, "UPDATE t SET n = n + 1 WHERE n < 20 RETURNING id, n").to_pylist()
        expected = [(key, 11 if key < lost else 1) for key in range(300)]
        assert sorted((row["id"], row["n"]) for row in answer) == expected
        assert sorted((row["id"], row["n"]) for row in live(table)) == expected


MOST = "(SELECT max(n) FROM t)"
WITHIN = [
    f"USING (SELECT id, {MOST} AS m FROM g) AS s ON {{on}} WHEN MATCHED AND t.n < s.m "
    "THEN UPDATE SET n = s.m",
    f"USING g AS s ON {{on}} WHEN MATCHED AND t.n < {MOST} THEN UPDATE SET n = {MOST}",
    f"USING g AS s ON {{on}} AND t.n < {MOST} WHEN MATCHED THEN UPDATE SET n = {MOST}",
]


def test_keys_are_looked_up_in_the_snapshot_of_its_queries(
    table: mw.Table, ctx: datafusion.SessionContext, meanwhile: Meanwhile
) -> None:
    """As if the other statement had come before or after it, and not in between."""
    start = "VALUES ('a', 1, 5, NULL), ('a', 2, 10, NULL), ('a', 3, 1, NULL)"
    mw.sql(ctx, "CREATE TABLE g AS SELECT * FROM (VALUES (1), (3)) AS v(id)")
    keys = ("t.tenant = 'a' AND t.id = s.id", "t.tenant IN ('a') AND t.id = s.id")
    changes = (20, -8)  # too many rows would be written, or too few
    for merge, on, change in product(WITHIN, usual(keys, 1), changes):
        statement, other = f"MERGE INTO t {merge.format(on=on)}", f"UPDATE t SET n = n + {change}"
        for _ in answers(ctx, meanwhile, start, other, statement):
            assert [row["n"] for row in live(table)] == [10 + change] * 3, statement
