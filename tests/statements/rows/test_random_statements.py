"""Random statements whose subqueries read the changed table change what they change in DuckDB."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import datafusion
import duckdb
import pyarrow as pa

import memwal_sql as mw
from tests.soak import SOAK

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
ROWS = pa.table({"id": [1, 2, 3, 4, 6], "v": [10, 2, None, 4, 2]}, schema=SCHEMA)
OTHERS = pa.table({"id": [2, 4, 4, 5], "v": [2, None, 4, 50]})
MANY = 100
# A refusal says one of these; at most a twentieth of all statements is refused.
REFUSALS = re.compile(
    "would ignore NULLs|EXCEPT ALL and INTERSECT ALL|column of USING|ANY and ALL wrongly"
    "|can't run a subquery here|confuses columns|not implemented|not supported"
)
# What both engines say of a statement that they can't run; others are faults.
OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


class Statements:
    """Statements over `t`, which is `id` and `v`, and `u`."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def _one_of(self, *choices: str) -> str:
        return self._random.choice(choices)

    def _column(self, name: str) -> str:
        return self._one_of("id", "v", f"{name}.v", f"{name}.id")

    def _from(self) -> tuple[str, str]:
        """A FROM, and the name of its columns."""
        return self._random.choice(
            [("t", "t"), ("u", "u"), ("t AS a", "a"), ("u AS b", "b"), ("w", "w"), ("c", "c")]
        )

    def _query(self, outer: str, depth: int) -> str:
        """A query of one column."""
        kind = self._random.random()
        if kind < 0.1:
            operation = self._one_of("UNION", "EXCEPT", "INTERSECT", "UNION ALL")
            if self._random.random() < 0.1:
                operation = "EXCEPT ALL"
            made = f"{self._plain(outer, depth)} {operation} {self._plain(outer, depth)}"
            return f"SELECT q.x FROM ({made}) AS q(x)"
        if kind < 0.25:
            join = self._one_of("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
            on = self._one_of("ON a.id = b.id", "ON a.v = b.v", "USING (id)")
            column = self._one_of("a.id", "b.id", "a.v", "b.v", "coalesce(a.id, b.id)")
            return f"SELECT {column} FROM {self._one_of('t', 'w')} AS a {join} u AS b {on}"
        return self._plain(outer, depth)

    def _plain(self, outer: str, depth: int) -> str:
        table, name = self._from()
        column = self._column(name)
        where = self._condition(name, depth - 1) if self._random.random() < 0.7 else "true"
        return f"SELECT {self._one_of('', 'DISTINCT ')}{column} FROM {table} WHERE {where}"

    def _condition(self, name: str, depth: int) -> str:
        kind = self._random.random() if depth > 0 else 1.0
        column = self._column(name)
        if kind < 0.35:
            word = self._one_of("ANY", "SOME", "ALL")
            operator = self._random.choice(OPERATORS)
            return f"{column} {operator} {word} ({self._query(name, depth)})"
        if kind < 0.5:
            return f"{column} IN ({self._query(name, depth)})"
        if kind < 0.55:
            table, inner = self._from()
            return f"EXISTS (SELECT 1 FROM {table} WHERE {self._condition(inner, depth - 1)})"
        if kind < 0.6:
            table, inner = self._from()
            operator = self._random.choice(OPERATORS)
            return f"{column} {operator} (SELECT max({inner}.v) FROM {table})"
        if kind < 0.75:
            word = self._one_of("AND", "OR")
            left, right = self._condition(name, depth - 1), self._condition(name, depth - 1)
            return f"({left}) {word} ({right})"
        number = self._random.randrange(6)
        return self._one_of(
            f"{column} {self._random.choice(OPERATORS)} {number}",
            f"{column} IS NULL",
            f"{column} IN ({number}, {number + 2})",
        )

    def make(self) -> str:
        """A statement."""
        name = self._one_of("t", "t", "m")
        alias = "" if name == "t" else " AS m"
        condition = self._condition(name, 3)
        table, inner = self._random.choice([("u", "u"), ("t AS a", "a"), ("w", "w")])
        rows = f"SELECT DISTINCT {inner}.id FROM {table} WHERE {self._condition(inner, 3)}"
        one = "SELECT max(v) FROM " + self._one_of("t", "u", "w")
        statement = self._one_of(
            f"DELETE FROM t{alias} WHERE {condition}",
            f"UPDATE t{alias} SET v = 7 WHERE {condition}",
            f"UPDATE t{alias} SET v = ({one}) WHERE {condition}",
            f"UPDATE t{alias} SET v = 8 FROM ({rows}) AS s WHERE s.id = {name}.id",
            f"DELETE FROM t{alias} USING ({rows}) AS s WHERE s.id = {name}.id",
            f"INSERT INTO t SELECT s.id + 10 AS id, 1 AS v FROM ({rows}) AS s WHERE s.id < 9",
            f"INSERT INTO t SELECT s.id, 9 AS v FROM ({rows}) AS s WHERE s.id IS NOT NULL "
            f"ON CONFLICT (id) DO UPDATE SET v = excluded.v",
            f"MERGE INTO t{alias} USING ({rows}) AS s ON {name}.id = s.id "
            f"WHEN MATCHED THEN UPDATE SET v = 5 WHEN NOT MATCHED THEN INSERT (id, v) "
            f"VALUES (s.id, 6)",
            f"MERGE INTO t{alias} USING ({rows}) AS s ON {name}.id = s.id "
            f"WHEN NOT MATCHED BY SOURCE THEN DELETE",
        )
        uses_query = " c WHERE" in statement or "c.id" in statement or "c.v" in statement
        return f"WITH c AS (SELECT id, v FROM t) {statement}" if uses_query else statement


def test_random_statements_change_what_duckdb_changes(tmp_path: Path) -> None:
    ctx = datafusion.SessionContext()
    with (
        mw.create_table(tmp_path / "t", SCHEMA, primary_key="id") as table,
        duckdb.connect() as other,
    ):
        mw.register(ctx, "t", table)
        ctx.from_arrow(OTHERS, name="u")
        with table.writer() as writer:
            writer.upsert(ROWS)
        mw.sql(ctx, "CREATE VIEW w AS SELECT id, v FROM t WHERE id > 1")
        other.execute("CREATE TABLE t (id bigint PRIMARY KEY, v bigint)")
        other.execute("INSERT INTO t FROM ROWS")
        other.execute("CREATE TABLE u AS FROM OTHERS")
        other.execute("CREATE VIEW w AS SELECT id, v FROM t WHERE id > 1")
        refused = 0
        for seed in range(MANY * SOAK):
            text = Statements(seed).make()
            other.execute("BEGIN")
            mw.sql(ctx, "BEGIN")
            try:
                try:
                    other.execute(text)
                except duckdb.Error:
                    continue  # a key that is there twice, for example
                expected = other.execute("SELECT id, v FROM t ORDER BY id").fetchall()
                try:
                    mw.sql(ctx, text)
                except mw.UnsupportedError as error:
                    assert REFUSALS.search(str(error)), (seed, text, error)
                    refused += 1
                    continue
                found = mw.sql(ctx, "SELECT id, v FROM t ORDER BY id").to_pylist()
                assert [(row["id"], row["v"]) for row in found] == expected, (seed, text)
            finally:
                other.execute("ROLLBACK")
                mw.sql(ctx, "ROLLBACK")
        assert refused <= MANY * SOAK / 20, refused
