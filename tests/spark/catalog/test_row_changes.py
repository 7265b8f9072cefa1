"""DELETE, UPDATE and MERGE of Spark, beside DuckDB and `mw.sql` over copies of the same table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import datafusion
import duckdb
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import memwal_sql as mw
from tests.soak import SOAK
from tests.spark.catalog.conftest import Sql
from tests.spark.catalog.random_changes import Changes
from tests.spark.conftest import needs_jar

pytestmark = needs_jar

SCHEMA = pa.schema(
    [
        pa.field("tenant", pa.string(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        pa.field("n", pa.int32()),
        pa.field("name", pa.string()),
    ]
)
TEXT = pa.string()
STATEMENTS = 15 if SOAK == 1 else 60 * SOAK
Row = tuple[Any, ...]


def random_rows(random: Random, many: int) -> pa.Table:
    keys = {(random.choice("ab"), random.randrange(10)) for _ in range(many)}
    values = [(random.choice([None, *range(9)]), random.choice([None, "b", "c"])) for _ in keys]
    rows = [
        dict(zip(SCHEMA.names, (*key, *value), strict=True))
        for key, value in zip(sorted(keys), values, strict=True)
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


class Copies:
    """The same rows in a table that Spark changes, in one that `mw.sql` does, and in DuckDB."""

    def __init__(self, spark: SparkSession, sql: Sql, tables: tuple[mw.Table, mw.Table]) -> None:
        self._spark, self._sql, self._tables = spark, sql, tables
        self._ctx = datafusion.SessionContext()
        mw.register(self._ctx, "t", tables[1])
        self._duckdb = duckdb.connect(config={"threads": 1})
        self._duckdb.execute("CREATE TABLE t (tenant text, id bigint, n int, name text)")

    def close(self) -> None:
        self._duckdb.close()

    def give(self, random: Random) -> None:
        """Other rows, some in memory, some in files, and another source."""
        given, source = random_rows(random, 8), random_rows(random, 6)
        flushes, merges = random.random() < 0.4, random.random() < 0.3
        for table in self._tables:
            with table.writer() as writer:
                writer.upsert(given)
                if flushes:
                    writer.flush()
            if merges:
                table.merge()
        self._duckdb.execute(
            "DELETE FROM t USING given g WHERE g.tenant = t.tenant AND g.id = t.id"
        )
        self._duckdb.execute("INSERT INTO t FROM given")
        self._duckdb.execute("CREATE OR REPLACE TABLE s AS FROM source")
        if self._ctx.table_exist("s"):
            self._ctx.deregister_table("s")
        self._ctx.register_batch("s", source.to_batches()[0])
        self._spark.createDataFrame(source).createOrReplaceTempView("s")

    def change(self, statement: str) -> str:
        """Run it in all three; what became of it."""
        wrong = self._changed_here(statement)
        for run in (
            lambda: self._sql(statement.replace(" t ", " x.t AS t ", 1)),
            lambda: mw.sql(self._ctx, statement),
        ):
            if wrong:
                with pytest.raises((PySparkException, mw.MemWalError)):
                    run()
            else:
                run()
        expected = self._rows()
        for table in self._tables:
            found = [tuple(row.values()) for row in table.to_arrow().to_pylist()]
            assert Counter(found) == Counter(expected), (statement, table.uri)
        return "refused" if wrong else statement.split(maxsplit=1)[0]

    def _changed_here(self, statement: str) -> bool:
        """Change DuckDB's rows, unless two would have one key."""
        self._duckdb.execute("BEGIN")
        self._duckdb.execute(statement)
        keys = Counter(row[:2] for row in self._rows())
        wrong = any(count > 1 for count in keys.values())
        self._duckdb.execute("ROLLBACK" if wrong else "COMMIT")
        return wrong

    def _rows(self) -> list[Row]:
        rows: list[Row] = self._duckdb.execute("SELECT * FROM t").fetchall()
        return rows


@pytest.fixture
def copies(spark: SparkSession, sql: Sql, tmp_path: Path) -> Iterator[Copies]:
    regions = [mw.bucket("id", 2)]
    with (
        mw.create_table(tmp_path / "t.lance", SCHEMA, ["tenant", "id"], regions) as table,
        mw.create_table(tmp_path / "u.lance", SCHEMA, ["tenant", "id"], regions) as other,
    ):
        made = Copies(spark, sql, (table, other))
        yield made
        made.close()


def test_random_statements_change_what_they_do_elsewhere(copies: Copies) -> None:
    random = Random(4)
    made, kinds = Changes(random), Counter[str]()
    for number in range(STATEMENTS):
        if number % 2 == 0:
            copies.give(random)
        kinds[copies.change(made.statement())] += 1
    assert kinds.keys() == {"DELETE", "UPDATE", "MERGE", "refused"}, kinds
    assert kinds["refused"] < STATEMENTS / 2, kinds


def test_other_columns_stay_as_they_are_whatever_their_type(sql: Sql, tmp_path: Path) -> None:
    """Spark has the next wider type for some, and a task casts them back."""
    at = datetime(2026, 1, 31, 12, 30, 0, 123456, UTC)
    columns = {
        "id": pa.array([0, 2**40], pa.uint64()),
        "key": pa.array([at, at + timedelta(days=1)], pa.timestamp("us", "UTC")),
        "n": pa.array([1, 2], pa.uint8()),
        "half": pa.array([1.5, None], pa.float16()),
        "day": pa.array([at.date(), None], pa.date32()),
        "price": pa.array([Decimal("1.50"), Decimal("-7.25")], pa.decimal128(9, 2)),
        "vector": pa.array([[1.0, 2.0], [float("nan"), -0.0]], pa.list_(pa.float32(), 2)),
        "words": pa.array([["a", None], []], pa.list_(TEXT)),
        "about": pa.array(
            [{"a": 1, "b": "x"}, None], pa.struct({"a": pa.int16(), "b": pa.string()})
        ),
        "raw": pa.array([b"\0\xff", None], pa.binary()),
        "text": pa.array(["q", ""], pa.large_string()),
    }
    given = pa.table(columns)
    with mw.create_table(tmp_path / "t.lance", given.schema, ["id", "key"]) as table:
        with table.writer() as writer:
            writer.upsert(given)
        sql("UPDATE x.t SET n = n + 1")
        sql("MERGE INTO x.t AS t USING x.t AS s ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = 9")
        found = table.to_arrow(given.schema.names).sort_by("id")
        expected = given.set_column(2, given.schema.field("n"), pa.array([9, 9], pa.uint8()))
        assert repr(found.to_pylist()) == repr(expected.to_pylist())
        sql("DELETE FROM x.t WHERE id + 0 > 0")
        assert table.to_arrow(["n"]).to_pylist() == [{"n": 9}]
