"""Statements of a session that sees columns which are no longer those of the table."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.soak import in_turns

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("a", pa.string()),
        pa.field("b", pa.string()),
    ]
)
STATEMENTS = [
    "INSERT INTO t VALUES (2, 'forA', 'forB')",
    "INSERT INTO t VALUES (2, 'forA', 'forB') RETURNING *",
    "INSERT INTO t SELECT 2, 'forA', 'forB'",
    "INSERT INTO t SELECT id + 1, 'forA', 'forB' FROM t",
    "INSERT INTO t (id, a, b) VALUES (2, 'forA', 'forB')",
    "INSERT INTO t (id, b) VALUES (1, 'forB')",
    "INSERT INTO t BY NAME SELECT 2 AS id, 'forB' AS b, 'forA' AS a",
    "INSERT INTO t VALUES (1, 'forA', 'forB') ON CONFLICT DO NOTHING",
    "INSERT INTO t VALUES (1, 'forA', 'forB') ON CONFLICT DO UPDATE SET b = excluded.b",
    "REPLACE INTO t VALUES (2, 'forA', 'forB')",
    "REPLACE INTO t (id, b) SELECT id, 'forB' FROM t",
    "INSERT OVERWRITE t VALUES (2, 'forA', 'forB')",
    "INSERT OVERWRITE t SELECT id, 'forA', 'forB' FROM t",
    "MERGE INTO t USING (VALUES (2, 'forA', 'forB')) AS s (i, x, y) ON t.id = s.i "
    "WHEN NOT MATCHED THEN INSERT VALUES (s.i, s.x, s.y)",
    "MERGE INTO t USING (VALUES (2, 'forA', 'forB')) AS s (i, x, y) ON t.id = s.i "
    "WHEN NOT MATCHED THEN INSERT (id, a, b) VALUES (s.i, s.x, s.y)",
    "MERGE INTO t USING (VALUES (1, 'forB')) AS s (i, y) ON t.id = s.i "
    "WHEN MATCHED THEN UPDATE SET b = s.y",
    "MERGE INTO t USING (VALUES (1)) AS s (i) ON t.id = s.i WHEN MATCHED THEN DELETE",
    "UPDATE t SET b = 'forB'",
    "UPDATE t SET id = id + 1",
    "DELETE FROM t WHERE b = 'b1'",
    "DELETE FROM t",
    "TRUNCATE t",
]
# Of another table, by what they read of this one.
READING = [
    "INSERT INTO u SELECT * FROM t",
    "INSERT INTO u SELECT x.* FROM t AS x JOIN t AS y ON x.id = y.id",
    "INSERT OVERWRITE u SELECT * FROM t",
    "MERGE INTO u USING t ON u.id = t.id WHEN NOT MATCHED THEN INSERT VALUES (0, t.a, 'x')",
    "DELETE FROM u USING t WHERE u.id = t.id",
    "UPDATE u SET a = (SELECT max(a) FROM t)",
    "INSERT INTO u SELECT * FROM v",
]
CHANGES = {
    "other order": ["DROP COLUMN a", "ADD COLUMN a TEXT"],
    "dropped": ["DROP COLUMN a"],
    "added": ["ADD COLUMN c TEXT"],
    "renamed": ["RENAME COLUMN a TO z"],
    "names exchanged": ["RENAME COLUMN a TO z", "RENAME COLUMN b TO a", "RENAME COLUMN z TO b"],
    "other type": ["DROP COLUMN b", "ADD COLUMN b BIGINT"],
}
# By the ids of columns, where they are at hand, else by their names.
TOLD = {
    "other order": ("'a' was dropped; 'a' string was added", "the order is ['id', 'b', 'a']"),
    "dropped": ("'a' was dropped",),
    "added": ("'c' string was added",),
    "renamed": ("'a' was renamed to 'z'", "'a' was dropped; 'z' string was added"),
    "names exchanged": (
        "'a' was renamed to 'b'; 'b' was renamed to 'a'",
        "the order is ['id', 'b', 'a']",
    ),
    "other type": ("'b' was dropped; 'b' int64 was added", "'b' is int64, and was string"),
}
# The table keeps the old columns, with their ids, names and types: statements that only read go on.
KEPT = {"added"}


@pytest.mark.parametrize(
    ("change", "has_own"), [*((one, True) for one in CHANGES), ("other order", False)]
)
def test_a_change_is_refused_each_time_until_the_table_is_registered_again(
    tmp_path: Path, uri: str, change: str, has_own: bool
) -> None:
    """By a handle of its own, or by the one that the other session has. Queries and statements
    that only read the table go on where it still has their columns."""
    table = mw.create_table(uri, SCHEMA, primary_key="id")
    other = mw.SessionContext()
    mw.register(other, "t", table)
    other.sql("INSERT INTO t VALUES (1, 'a1', 'b1')")
    second = mw.create_table(tmp_path / "u", SCHEMA, primary_key="id")
    mw.register(other, "u", second)
    other.sql("INSERT INTO u VALUES (1, 'ua', 'ub')")
    turn = [*CHANGES].index(change)
    for statement in in_turns([*STATEMENTS, *READING], turn, len(CHANGES)):
        # One for each, as the first of a session is what finds the change.
        ctx = mw.SessionContext()
        own = mw.register(ctx, "t", mw.open_table(uri) if has_own else table)
        mw.register(ctx, "u", second)
        ctx.sql("CREATE VIEW v AS SELECT * FROM t")
        for one in CHANGES[change]:
            other.sql(f"ALTER TABLE t {one}")
        before = table.to_arrow().to_pylist(), second.to_arrow().to_pylist()
        told = "|".join(map(re.escape, TOLD[change]))
        refused = pytest.raises(mw.ReopenError, match=rf"\(({told})\): register")
        for _ in range(3):
            if statement in READING and change in KEPT:
                ctx.sql(statement)
                break
            with refused:
                ctx.sql(statement)
            assert (table.to_arrow().to_pylist(), second.to_arrow().to_pylist()) == before
        if change in KEPT:
            assert ctx.sql("SELECT * FROM t").to_arrow_table().column_names == SCHEMA.names
        else:
            with refused:
                ctx.sql("SELECT * FROM t").to_pylist()
        own.close()
        _restore(other, table)
    second.close()
    table.close()


def _restore(other: mw.SessionContext, table: mw.Table) -> None:
    for name in table.schema.names[1:]:
        other.sql(f"ALTER TABLE t DROP COLUMN {name}")
    other.sql("ALTER TABLE t ADD COLUMN a TEXT, ADD COLUMN b TEXT")
    other.sql("INSERT OVERWRITE t VALUES (1, 'a1', 'b1')")


@pytest.mark.parametrize("change", CHANGES)
def test_a_session_that_registers_anew_or_changes_the_columns_itself_goes_on(
    uri: str, change: str
) -> None:
    """As one does that has the table in a catalog, which shows it as it is now."""
    table = mw.create_table(f"{uri}/t.lance", SCHEMA, primary_key="id")
    first, ctx, of_catalog = mw.SessionContext(), mw.SessionContext(), mw.SessionContext()
    mw.register(first, "t", table)
    mw.register(ctx, "t", f"{uri}/t.lance")
    mw.catalog(of_catalog, uri, "lake")
    of_catalog.sql("SELECT * FROM lake.public.t").to_pylist()
    for one in CHANGES[change]:
        first.sql(f"ALTER TABLE t {one}")
    mw.register(ctx, "t", f"{uri}/t.lance")
    names = table.schema.names
    for key, (session, name) in enumerate(
        [(first, "t"), (ctx, "t"), (of_catalog, "lake.public.t"), (first, "t")], 2
    ):
        given = [str(key), *(f"'{place}'" for place in range(1, len(names)))]
        row = {"id": key} | {name: place for place, name in enumerate(names[1:], 1)}
        found = session.sql(f"INSERT INTO {name} VALUES ({', '.join(given)}) RETURNING *")
        assert [{n: int(value) for n, value in one.items()} for one in found.to_pylist()] == [row]
        assert session.sql(f"UPDATE {name} SET b = b").to_pylist() == [{"count": key - 1}]
    table.close()
