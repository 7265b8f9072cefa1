"""The same TPC-H tables in DuckDB and in tables of ours."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import datafusion
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import memwal_sql as mw

KEYS = {
    "region": ["r_regionkey"],
    "nation": ["n_nationkey"],
    "supplier": ["s_suppkey"],
    "part": ["p_partkey"],
    "partsupp": ["ps_partkey", "ps_suppkey"],
    "customer": ["c_custkey"],
    "orders": ["o_orderkey"],
    "lineitem": ["l_orderkey", "l_linenumber"],
}
_LARGE = ("orders", "lineitem", "partsupp")
_REGIONS = 3


class Database:
    """The tables of a scale factor, filled. `ctx` has ours, `duckdb` the others.

    A part of the rows of ours is in base tables, generations and memory each, and some replace
    older ones.
    """

    def __init__(self, folder: Path, scale: float, seed: int) -> None:
        self.ctx = datafusion.SessionContext()
        self.duckdb: Any = duckdb.connect()
        self.tables: dict[str, mw.Table] = {}
        self._rng = Random(seed)
        for name, rows in _generated(folder, scale).items():
            self.duckdb.execute(f"CREATE TABLE {name} AS FROM rows")
            self._make(folder / "ours" / name, name, rows)

    def upsert(self, name: str, rows: pa.Table) -> None:
        """Write new rows, or newer ones of a key, into both."""
        same = " AND ".join(f"{name}.{key} = rows.{key}" for key in KEYS[name])
        self.duckdb.execute(f"DELETE FROM {name} USING rows WHERE {same}")
        self.duckdb.execute(f"INSERT INTO {name} FROM rows")
        with self.tables[name].writer() as writer:
            writer.upsert(rows)

    def put(self, name: str, rows: pa.Table) -> None:
        """Have a table in memory in both."""
        self.duckdb.execute(f"CREATE OR REPLACE TABLE {name} AS FROM rows")
        if self.ctx.table_exist(name):
            self.ctx.deregister_table(name)
        self.ctx.register_record_batches(name, [rows.to_batches()])

    def run(self, statement: str) -> None:
        """Run a statement that writes in both."""
        expected = self.duckdb.execute(statement).fetchone()[0]
        count = mw.sql(self.ctx, statement).to_pylist()[0]["count"]
        assert count == expected, statement

    def move(self) -> None:
        """Let rows go on, from memory to generations and from there to base tables, at times."""
        for table in self.tables.values():
            if self._rng.random() < 0.5:
                with table.writer() as writer:
                    writer.flush()
            if self._rng.random() < 0.5:
                table.merge()

    def check(self, queries: Sequence[str]) -> None:
        """Compare tables and answers."""
        for name, keys in KEYS.items():
            order = f"ORDER BY {', '.join(keys)}"
            theirs = self.duckdb.sql(f"FROM {name} {order}").to_arrow_table()
            ours = mw.sql(self.ctx, f"SELECT * FROM {name} {order}").to_arrow_table()
            assert ours.cast(theirs.schema).equals(theirs), name
        for query in queries:
            theirs = _rows(self.duckdb.sql(query).to_arrow_table(), float)
            ours = _rows(mw.sql(self.ctx, query).to_arrow_table(), _near)
            assert ours == theirs, query

    def close(self) -> None:
        """Close the tables."""
        for table in self.tables.values():
            table.close()

    def _make(self, uri: Path, name: str, rows: pa.Table) -> None:
        keys = KEYS[name]
        schema = pa.schema([one.with_nullable(one.name not in keys) for one in rows.schema])
        regions = {"regions": [mw.bucket(keys[0], _REGIONS)]} if name in _LARGE else {}
        table = self.tables[name] = mw.create_table(str(uri), schema, primary_key=keys, **regions)
        mw.register(self.ctx, name, table)
        count = len(rows)
        with table.writer() as writer:
            writer.upsert(rows.slice(0, count * 3 // 4))
            writer.flush()
            table.merge()
            wrong = rows.slice(count // 2)
            columns = [one.name for one in schema if one.name not in keys]
            for column in columns:  # of a row to come
                other = wrong[column].take(pa.array(range(len(wrong) - 1, -1, -1)))
                wrong = wrong.set_column(schema.get_field_index(column), column, other)
            writer.upsert(wrong)
            writer.flush()
            writer.upsert(rows.slice(count // 2))


def _generated(folder: Path, scale: float) -> dict[str, pa.Table]:
    command = Path(sys.executable).with_name("tpchgen-cli")
    arguments = ["parquet", "-s", str(scale), "--output-dir", str(folder)]
    subprocess.run([command, *arguments], check=True, capture_output=True)
    return {name: _plain(pq.read_table(folder / f"{name}.parquet")) for name in KEYS}


def _plain(rows: pa.Table) -> pa.Table:
    """Texts as plain strings."""
    views = {pa.string_view(): pa.string()}
    fields = [pa.field(one.name, views.get(one.type, one.type)) for one in rows.schema]
    return rows.cast(pa.schema(fields)).combine_chunks()


def _rows(table: pa.Table, number: Callable[[Any], Any]) -> list[tuple[Any, ...]]:
    columns = [
        [number(one) if isinstance(one, int | float | Decimal) else one for one in column]
        for column in table.to_pydict().values()
    ]
    return list(zip(*columns, strict=True))


def _near(value: Any) -> Any:
    """DuckDB's averages of decimals are floats, DataFusion's decimals of six digits."""
    return pytest.approx(float(value), rel=1e-12, abs=2e-6)
