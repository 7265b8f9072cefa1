"""Conditions above outer joins mean what they mean over DataFusion's own tables: DataFusion hands
them to the scans below and then makes others of them, by what can't be NULL there.

`MEMWAL_SOAK=10` asks ten times as many queries; `MEMWAL_SEED=...` changes all. A failure prints the
query.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.soak import SOAK

QUERIES = 20 * SOAK
SEED = os.environ.get("MEMWAL_SEED", "1")
SCHEMA = pa.schema([pa.field("a", pa.int64(), False), ("n", pa.int64()), ("s", pa.string())])
ROWS = pa.Table.from_pylist(
    [{"a": a, "n": [None, 0, 1, 2][a % 4], "s": ["x", None, "y"][a % 3]} for a in range(12)], SCHEMA
)
_SIMPLIFIED = (
    "x.a IS NULL",
    "NOT (x.a IS NOT NULL)",
    "coalesce(NULL, x.a) IS NULL",
    "(x.a IS NULL OR x.n = {k})",
    "(x.a IS NOT NULL OR x.n = {k})",
    "(x.a IS NULL AND x.n = {k}) IS NOT TRUE",
    "CASE WHEN x.a IS NULL THEN TRUE ELSE x.n = {k} END",
)
_LEAVES = (
    *_SIMPLIFIED,
    "x.{c} IS NULL",
    "x.{c} IS NOT NULL",
    "x.n > {k}",
    "x.a < {k}",
    "x.a IN ({k}, 5)",
    "x.s LIKE 'x%'",
    "x.s = 'y'",
    "(x.n > {k}) IS NOT TRUE",
    "(x.a = {k}) IS UNKNOWN",
    "coalesce(x.{c}, NULL) IS NULL",
    "CASE WHEN x.a IS NULL THEN 1 ELSE x.n END = {k}",
    "(x.{c} IS NULL) = (x.n > {k})",
    "x.a = x.a",
)
_ON = ("x.a = y.a", "x.a = y.n", "x.a < y.n")


def _condition(random: Random, depth: int = 2) -> str:
    if depth == 0 or random.random() < 0.3:
        leaf = random.choice(_LEAVES)
        return leaf.format(c=random.choice(SCHEMA.names), k=random.randrange(4))
    if random.random() < 0.25:
        return f"NOT ({_condition(random, depth - 1)})"
    parts = [_condition(random, depth - 1) for _ in range(2)]
    return f"({parts[0]}) {random.choice(('AND', 'AND', 'OR'))} ({parts[1]})"


def _conditions(random: Random) -> str:
    """One that what can't be NULL simplifies, beside others."""
    simplified = random.choice(_SIMPLIFIED).format(k=random.randrange(4))
    return f"{simplified} AND {_condition(random)}"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> datafusion.SessionContext:
    """The same rows in the base, a generation and the MemTable of one table, in a Lance table, and
    in memory."""
    folder: Path = tmp_path_factory.mktemp("joined")
    context = datafusion.SessionContext()
    table = mw.create_table(folder / "ours.lance", SCHEMA, primary_key="a")
    writer = table.writer()
    writer.upsert(ROWS.slice(0, 4))
    writer.flush()
    table.merge()
    writer.upsert(ROWS.slice(4, 4))
    writer.flush()
    writer.upsert(ROWS.slice(8))
    lance.write_dataset(ROWS, str(folder / "plain.lance"))
    mw.catalog(context, folder, "folder")
    context.register_record_batches("memory", [ROWS.to_batches()])
    return context


def _answer(context: datafusion.SessionContext, query: str, table: str) -> list[tuple[object, ...]]:
    rows = context.sql(query.replace("{t}", table)).to_arrow_table().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


@pytest.mark.parametrize("table", ["ours", "plain"])
@pytest.mark.parametrize("join", ["LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "JOIN"])
def test_they_keep_the_rows_that_they_keep_of_tables_in_memory(
    context: datafusion.SessionContext, table: str, join: str
) -> None:
    random = Random(f"{SEED} {join}")
    for _ in range(QUERIES):
        query = (
            f"SELECT x.a, x.n, y.a AS b FROM {{t}} AS y {join} {{t}} AS x "
            f"ON {random.choice(_ON)} WHERE {_conditions(random)}"
        )
        expected = _answer(context, query, "memory")
        assert _answer(context, query, f"folder.public.{table}") == expected, query
