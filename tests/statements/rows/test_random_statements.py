"""Random statements answer, and change, what they do in DuckDB and SQLite."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.session.session import session_of
from tests.soak import IS_SOAK, SOAK
from tests.statements.rows.random_statements import Statements

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
ROWS = [(1, 10), (2, 2), (3, None), (4, 4), (6, 2)]
OTHERS = [(2, 2), (4, None), (5, 5), (7, 3)]
PLAIN = [(2, 2), (4, 4), (4, None), (None, 1)]
VIEW = "CREATE VIEW w AS SELECT id, v FROM t WHERE id > 1"
# A change costs 30 ms of processor time, and a query 10.
MANY, CHANGE_OF = (5000 * SOAK, 2) if IS_SOAK else (3000, 20)
# Kinds of refusals by their messages, and the share of all statements that each may have.
REFUSALS = {
    "would ignore NULLs": 0.03,
    "EXCEPT ALL and INTERSECT ALL": 0.01,
    "column of USING": 0.02,
    "ignores OFFSET": 0.02,
    "ANY and ALL wrongly": 0.01,
    "after ANY or ALL, DataFusion confuses": 0.01,
    "can't run this subquery": 0.02,
    "No field named": 0.002,  # a UNION with a part that is always false
}
# The same for DuckDB: a key twice, and NULL as a key.
DUCKDB_REFUSALS = {"Constraint Error": 0.02, "Invalid Input Error|Binder Error": 0.01}


class Engines:
    """The same tables here, in DuckDB and in SQLite."""

    def __init__(self, ctx: datafusion.SessionContext, table: mw.Table) -> None:
        self._ctx, self._table = ctx, table
        self._duckdb = duckdb.connect(config={"threads": 1})
        self._sqlite = sqlite3.connect(":memory:", isolation_level=None)
        both: tuple[Any, Any] = (self._duckdb, self._sqlite)
        for other in both:
            for name, rows in (("t", ROWS), ("u", OTHERS), ("p", PLAIN)):
                key = " PRIMARY KEY" if name == "t" else ""
                other.execute(f"CREATE TABLE {name} (id bigint{key}, v bigint)")
                other.executemany(f"INSERT INTO {name} VALUES (?, ?)", rows)
            other.execute(VIEW)

    def close(self) -> None:
        self._duckdb.close()
        self._sqlite.close()

    def query(self, text: str) -> list[Any]:
        return [next(iter(row.values())) for row in mw.sql(self._ctx, text).to_pylist()]

    def change(self, text: str) -> list[Any]:
        mw.sql(self._ctx, "BEGIN")
        try:
            mw.sql(self._ctx, text)
            rows = session_of(self._ctx).slot.inside(self._table).to_arrow().to_pylist()
            return [(row["id"], row["v"]) for row in rows]
        finally:
            mw.sql(self._ctx, "ROLLBACK")

    def others(self, text: str, *, changes: bool) -> list[list[Any]]:
        """What DuckDB says, and SQLite if it has the form."""
        answers = [_run(self._duckdb, text, changes=changes)]
        with contextlib.suppress(sqlite3.Error):
            answers.append(_run(self._sqlite, text, changes=changes))
        return answers


def _run(other: Any, text: str, *, changes: bool) -> list[Any]:
    if not changes:
        return [row[0] for row in other.execute(text).fetchall()]
    other.execute("BEGIN")
    try:
        other.execute(text)
        rows: list[Any] = other.execute("SELECT id, v FROM t").fetchall()
        return rows
    finally:
        other.execute("ROLLBACK")


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    ctx = datafusion.SessionContext(datafusion.SessionConfig().with_target_partitions(1))
    with (
        mw.create_table(tmp_path / "t", SCHEMA, primary_key="id") as table,
        mw.create_table(tmp_path / "u", SCHEMA, primary_key="id") as other,
    ):
        for name, one, rows in (("t", table, ROWS), ("u", other, OTHERS)):
            mw.register(ctx, name, one)
            with one.writer() as writer:
                writer.upsert([{"id": id_, "v": v} for id_, v in rows])
        plain = pa.table({"id": [id_ for id_, _ in PLAIN], "v": [v for _, v in PLAIN]})
        ctx.from_arrow(plain, name="p")
        mw.sql(ctx, VIEW)
        made = Engines(ctx, table)
        yield made
        made.close()


def _kind(kinds: dict[str, float], error: Exception) -> str:
    return next((kind for kind in kinds if re.search(kind, str(error))), f"other: {error}")


def test_random_statements_do_what_they_do_elsewhere(engines: Engines) -> None:
    refused, refused_by_duckdb, judges = Counter[str](), Counter[str](), Counter[int]()
    sees_its_changes = 0
    for seed in range(MANY):
        changes = seed % CHANGE_OF == 0
        made = Statements(seed)
        text = made.change() if changes else made.select()
        try:
            expected = engines.others(text, changes=changes)
        except duckdb.Error as error:
            refused_by_duckdb[_kind(DUCKDB_REFUSALS, error)] += 1
            continue
        try:
            found = engines.change(text) if changes else engines.query(text)
        except mw.MemWalError as error:
            refused[_kind(REFUSALS, error)] += 1
            assert _kind(REFUSALS, error) in REFUSALS, (seed, text, error)
            continue
        assert Counter(found) == Counter(expected[0]), (seed, text)
        if len(expected) == 2 and Counter(found) != Counter(expected[1]):
            # SQLite 3.40 changes a row before the subqueries of the next one read the table.
            assert changes, (seed, text)
            sees_its_changes += 1
            continue
        judges[len(expected)] += 1
    for counts, most in ((refused, REFUSALS), (refused_by_duckdb, DUCKDB_REFUSALS)):
        for kind, count in counts.items():
            assert count <= MANY * most.get(kind, 0), (kind, count)
    assert refused.total() <= MANY / 20, refused
    assert judges[2] >= MANY / 4, judges
    assert sees_its_changes <= MANY / 1000
