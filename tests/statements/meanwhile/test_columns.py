"""Statements whose table gets other columns while they run, and queries that were made before."""

from pathlib import Path
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.statements import run
from memwal_sql.statements.changes.change import Change
from tests.soak import in_turns
from tests.statements.beside_duckdb import SCHEMA
from tests.statements.conftest import Meanwhile

# What column n has by id afterwards; it was 10 and 20 of 1 and 2.
STATEMENTS: dict[str, dict[int, int | None]] = {
    "UPDATE t SET n = n + 1 WHERE id = 1": {1: 11, 2: 20},
    "UPDATE t SET id = id + 5, n = 7 WHERE id = 1 RETURNING *": {2: 20, 6: 7},
    "DELETE FROM t WHERE id = 1": {2: 20},
    "DELETE FROM t USING t AS u WHERE u.id = t.id AND t.n = 10 RETURNING *": {2: 20},
    "MERGE INTO t USING (VALUES ('a', 1, 1), ('a', 3, 3)) AS s (k, i, m) "
    "ON t.tenant = s.k AND t.id = s.i WHEN MATCHED THEN UPDATE SET n = t.n + s.m "
    "WHEN NOT MATCHED THEN INSERT (tenant, id, n) VALUES (k, i, m)": {1: 11, 2: 20, 3: 3},
    "MERGE INTO t USING (VALUES (10)) AS s (m) ON t.n = s.m WHEN MATCHED THEN UPDATE SET n = 0 "
    "WHEN NOT MATCHED BY SOURCE THEN DELETE": {1: 0},
    "INSERT INTO t (tenant, id, n) VALUES ('a', 1, 5), ('a', 3, 3)": {1: 5, 2: 20, 3: 3},
    "INSERT INTO t (tenant, id, n) SELECT tenant, id, n + 1 FROM t RETURNING *": {1: 11, 2: 21},
    "INSERT INTO t (tenant, id, n) VALUES ('a', 1, 5), ('a', 3, 3) ON CONFLICT DO NOTHING": {
        1: 10,
        2: 20,
        3: 3,
    },
    "INSERT INTO t (tenant, id, n) VALUES ('a', 1, 5), ('a', 3, 3) "
    "ON CONFLICT DO UPDATE SET n = t.n + excluded.n": {1: 15, 2: 20, 3: 3},
    "REPLACE INTO t (tenant, id, n) SELECT tenant, id + 1, n FROM t": {1: 10, 2: 10, 3: 20},
    "INSERT OVERWRITE t (tenant, id, n) VALUES ('a', 3, 3)": {3: 3},
    "INSERT OVERWRITE t (tenant, id, n) SELECT tenant, id, n + 1 FROM t": {1: 11, 2: 21},
}
# Each of a column of its own, that no statement names; and by whom: another session, or the same.
CHANGES = [
    ("ADD COLUMN new{} INT", "other"),
    ("DROP COLUMN old{}", "other, with a handle of its own"),
    ("RENAME COLUMN old{} TO new{}", "other"),
    ("RENAME COLUMN old{} TO new{}", "same"),
]
OLD = [f"old{place}" for place in range(len(STATEMENTS))]


@pytest.mark.parametrize("moment", [-1, 0, 1])
@pytest.mark.parametrize(("change", "by"), CHANGES)
def test_a_statement_is_done_once_or_says_what_is_to_be_done_first(
    uri: str,
    ctx: datafusion.SessionContext,
    meanwhile: Meanwhile,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    moment: int,
    by: str,
) -> None:
    """A session changes the columns when the statement has been read, or when one of its queries
    has been answered: it runs again in that session, and in others when they have registered the
    table again."""
    schema = pa.schema([*SCHEMA, *(pa.field(name, pa.string()) for name in OLD)])
    table = mw.create_table(uri, schema, primary_key=["tenant", "id"])
    mw.register(ctx, "t", table, "eventual")
    other = ctx if by == "same" else datafusion.SessionContext()
    mw.register(other, "t", mw.open_table(uri) if "own" in by else table, "eventual")
    change_of = run._change
    turn = 3 * CHANGES.index((change, by)) + moment
    for place, (statement, expected) in in_turns([*enumerate(STATEMENTS.items())], turn, 5):
        mw.sql(ctx, "TRUNCATE t")
        names = [name for name in OLD if name in table.schema.names]
        given = ", ".join(["tenant", "id", "n", *names])
        values = ", ".join(f"'{name}'" for name in names)
        mw.sql(
            ctx, f"INSERT INTO t ({given}) VALUES ('a', 1, 10, {values}), ('a', 2, 20, {values})"
        )

        def alter(text: str = change.format(place, place)) -> None:
            mw.sql(other, f"ALTER TABLE t {text}")

        def change_before(*given: Any) -> Change | None:
            monkeypatch.setattr(run, "_change", change_of)
            found = change_of(*given)
            alter()
            return found

        if moment < 0:
            monkeypatch.setattr(run, "_change", change_before)
        else:
            meanwhile(alter, moment)
        while not _is_done(ctx, table, statement, is_own=by == "same"):
            assert _column_n(table) == {1: 10, 2: 20}
        assert _column_n(table) == expected, statement
        meanwhile(lambda: None)  # where the statement has fewer queries
        mw.register(ctx, "t", table, "eventual")
        _check_others(table)
    table.close()


def _is_done(
    ctx: datafusion.SessionContext, table: mw.Table, statement: str, *, is_own: bool
) -> bool:
    """Whether it could run; what it needs for that is done afterwards."""
    try:
        mw.sql(ctx, statement)
    except mw.RetryError:
        assert is_own or "OVERWRITE" in statement  # which is told by who replaces the rows
        return False
    except mw.ReopenError:
        assert not is_own
        mw.register(ctx, "t", table, "eventual")
        return False
    return True


def _column_n(table: mw.Table) -> dict[int, int | None]:
    return {row["id"]: row["n"] for row in table.scan(["id", "n"]).read_all().to_pylist()}


def _check_others(table: mw.Table) -> None:
    """Every other column has its own values or null."""
    rows = table.to_arrow()
    for name in set(rows.column_names) - {"tenant", "id", "n"}:
        assert set(rows[name].to_pylist()) <= {name.replace("new", "old"), None}


JOIN = "SELECT a.id, b.n FROM {0} AS a JOIN {0} AS b ON a.id = b.id"
SOURCES = ["SELECT id, n FROM {}", "SELECT * FROM {}", JOIN]


@pytest.mark.parametrize("query", SOURCES)
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("ADD COLUMN more INT", None),
        ('DROP COLUMN "Name"', "'Name' was dropped"),
        ("RENAME n TO m", "'n' was (renamed to 'm'|dropped; 'm' int32 was added)"),
    ],
)
@pytest.mark.parametrize("name", ["lake.public.t", "t"])
def test_views_and_frames_keep_their_columns_or_say_which_are_gone(
    tmp_path: Path,
    ctx: datafusion.SessionContext,
    query: str,
    change: str,
    told: str | None,
    name: str,
) -> None:
    folder = tmp_path / "lake"
    table = mw.create_table(folder / "t.lance", SCHEMA, primary_key=["tenant", "id"])
    mw.catalog(ctx, folder, "lake")
    mw.register(ctx, "t", table)
    mw.sql(ctx, f"INSERT INTO {name} VALUES ('a', 1, 10, 'x')")
    text = query.format(name)
    mw.sql(ctx, f"CREATE VIEW v AS {text}")
    frame = mw.sql(ctx, text)
    before = mw.sql(ctx, text).to_pylist()
    mw.sql(ctx, f"ALTER TABLE {name} {change}")
    for old in (lambda: mw.sql(ctx, "SELECT * FROM v").to_pylist(), frame.to_pylist):
        if told is None:
            assert old() == before
        else:
            with pytest.raises(mw.ReopenError, match=rf"{told}.* again"):
                old()
    if "RENAME" not in change:
        mw.sql(ctx, f"CREATE OR REPLACE VIEW v AS {text}")
        assert mw.sql(ctx, "SELECT id, n FROM v").to_pylist() == [{"id": 1, "n": 10}]
    table.close()
