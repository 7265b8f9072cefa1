"""A table beside DuckDB's: statements run in both, and answers and rows are compared.

Between statements other rows are written, flushed and merged, so that they lie in the base table,
in generations and in memory.
"""

from __future__ import annotations

from random import Random

import datafusion
import duckdb
import pyarrow as pa

import memwal_sql as mw

SCHEMA = pa.schema(
    [
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("n", pa.int32()),
        pa.field("Name", pa.string()),
    ]
)
DUE = pa.table({"id": [1, 2, 2, 3, 5], "n": pa.array([1, 2, 3, 3, None], pa.int32())})


def live(table: mw.Table) -> list[dict[str, object]]:
    return sorted(table.to_arrow().to_pylist(), key=lambda row: (row["tenant"], row["id"]))


def rows(random: Random, many: int) -> pa.Table:
    made = {
        (random.choice("ab"), random.randrange(10)): {
            "n": random.choice([None, *range(9)]),
            "Name": random.choice([None, "b", "c"]),
        }
        for _ in range(many)
    }
    return pa.Table.from_pylist(
        [{"tenant": tenant, "id": key, **row} for (tenant, key), row in made.items()], SCHEMA
    )


class BesideDuckDB:
    """The tables `t`, `due`, and `new`, with rows that are others before each statement."""

    def __init__(self, table: mw.Table, ctx: datafusion.SessionContext, seed: int) -> None:
        self.random = Random(seed)
        self._table = table
        self._ctx = ctx
        self._duckdb = duckdb.connect()
        ctx.register_batch("due", DUE.to_batches()[0])
        self._duckdb.execute("CREATE TABLE due AS FROM DUE")
        self._duckdb.execute(
            'CREATE TABLE t (tenant text, id bigint, n int, "Name" text, PRIMARY KEY (tenant, id))'
        )

    def check(self, statement: str, theirs: str) -> None:
        """Run it in both, as `theirs` in DuckDB."""
        random, table = self.random, self._table
        with table.writer() as writer:
            given = rows(random, 6)
            writer.upsert(given)
            self._duckdb.execute("INSERT OR REPLACE INTO t FROM given")
            if random.random() < 0.5:
                writer.flush()
        if random.random() < 0.3:
            table.merge()
        source = rows(random, 5)
        if self._ctx.table_exist("new"):
            self._ctx.deregister_table("new")
        self._ctx.register_batch("new", source.to_batches()[0])
        self._duckdb.execute("CREATE OR REPLACE TABLE new AS FROM source")
        expected = self._duckdb.execute(theirs).fetchall()
        found = mw.sql(self._ctx, statement).to_arrow_table()
        if "RETURNING" not in statement:
            found = found.select(["count"])
        answers = [tuple(row.values()) for row in found.to_pylist()]
        assert sorted(answers, key=repr) == sorted(expected, key=repr), statement
        columns = SCHEMA.names
        there = self._duckdb.execute("SELECT * FROM t ORDER BY tenant, id").fetchall()
        assert [tuple(row[name] for name in columns) for row in live(table)] == there, statement
