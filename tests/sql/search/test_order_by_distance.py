"""ORDER BY a distance LIMIT k in `mw.sql` gives what DataFusion gives over a plain table of the
live rows.

`MEMWAL_SOAK=10` asks ten times as many queries of each table. A failure prints the query.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import datafusion
import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.liveness.masks import Matched
from exec_nodes.resident.admission import Admission
from tests.model.resident import another_store
from tests.soak import SOAK

QUERIES = 8 * SOAK
KEYS = 150
KINDS = {"float16": pa.float16(), "float32": pa.float32(), "float64": pa.float64()}
# And the direction in which the nearest come first.
FUNCTIONS = {
    "array_distance(v, {q})": "ASC",
    "list_distance({q}, v)": "ASC",
    "cosine_distance(v, {q})": "ASC",
    "inner_product(v, {q})": "DESC",
    "0 - dot_product(v, {q})": "ASC",
    "1 - cosine_distance(v, {q})": "DESC",
}
CONDITIONS = (
    "n > 4",
    "n IS NULL OR n < 3",
    "id % 3 = 0",
    "id IN (3, 5, 8, 13, 21, 34, 55)",
    "v IS NOT NULL",
    "id > (SELECT min(id) + 20 FROM t)",
    "n NOT IN (SELECT n FROM t WHERE id < 9 AND n IS NOT NULL)",
    "array_distance(v, {q}) > 1",
    "length(name) > 1 AND n < 8",
)
# What the vectors are cast to before they are measured.
CASTS = (
    "arrow_cast(v, 'FixedSizeList({d}, Float16)')",
    "arrow_cast(v, 'FixedSizeList({d}, Float32)')",
    "arrow_cast(v, 'FixedSizeList({d}, Float64)')",
    "arrow_cast(v, 'LargeList(Float64)')",
    "arrow_cast(arrow_cast(v, 'List(Float16)'), 'List(Float64)')",
    "arrow_cast(arrow_cast(v, 'List(Float64)'), 'List(Float32)')",
    "arrow_cast(v, 'List(Int64)')",
    "v::real[]",
    "CAST(v AS DOUBLE[])",
    "CAST(CAST(v AS DOUBLE[]) AS REAL[])",
    "CAST(v AS DECIMAL(6, 1)[])",
    "TRY_CAST(v AS DECIMAL(4, 2)[])",
    "TRY_CAST(v AS REAL[])",
    "TRY_CAST(v AS DOUBLE[])",
)
Row = dict[str, Any]


def in_memory(within: Callable[[Any], Any]) -> None:
    """All vectors are held."""


def by_reading(within: Callable[[Any], Any]) -> None:
    """Nothing is held or matched beforehand."""
    within(another_store(0))
    within(Matched.set(inline=-1))
    within(Admission.set(small=-1, fetch=0))


class Tables:
    """A table of a base, generations and MemTables in two regions, and its live rows."""

    def __init__(self, folder: Path, rng: Random, kind: pa.DataType, dimension: int) -> None:
        self.rng, self.kind, self.dimension = rng, kind, dimension
        vector = pa.list_(kind, dimension)
        self.schema = pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                ("n", pa.int64()),
                ("name", pa.string()),
                ("v", vector),
            ]
        )
        self.live: dict[int, Row] = {}
        lance.write_dataset(self.rows(range(KEYS)), folder, max_rows_per_file=60)
        self.table = mw.enable(folder, primary_key="id", regions=[mw.bucket("id", 2)])
        self.writer = self.table.writer()
        for _ in range(3):
            self.change()
            self.writer.flush()
        self.table.merge()
        for flush in (True, True, False, False):
            self.change()
            if flush:
                self.writer.flush()
        self.context = mw.SessionContext()
        mw.register(self.context, "t", self.table)
        self.plain = datafusion.SessionContext()
        rows = pa.Table.from_batches(self.arrow(list(self.live.values())).to_batches())
        self.plain.register_record_batches("t", [rows.to_batches()])

    def change(self) -> None:
        self.writer.upsert(self.rows(self.rng.sample(range(KEYS + 30), 25)))
        gone = self.rng.sample(range(KEYS), 6)
        self.writer.delete(gone)
        for key in gone:
            self.live.pop(key, None)

    def rows(self, keys: Any) -> pa.Table:
        made = [self.row(key) for key in keys]
        self.live.update({row["id"]: row for row in made})
        return self.arrow(made)

    def row(self, key: int) -> Row:
        rng = self.rng
        return {
            "id": key,
            "n": rng.choice([None, *range(10)]),
            "name": "x" * rng.randrange(4),
            "v": self.vector(),
        }

    def vector(self) -> list[float | None] | None:
        """Mostly of few different numbers, so that distances tie; seldom an odd one."""
        rng, size = self.rng, self.dimension
        chance = rng.random()
        if chance < 0.06:
            return None
        if chance < 0.09:
            return [0.0] * size
        if chance < 0.5:
            return [float(rng.randrange(-1, 2)) for _ in range(size)]
        found: list[float | None] = [rng.gauss(0, 1) for _ in range(size)]
        if chance < 0.54:
            odd = [math.nan, -math.nan, math.inf, -math.inf, None, 6e4, 1e-7]
            odd += [1e200, 1e-200] if self.kind == pa.float64() else []
            found[rng.randrange(size)] = rng.choice(odd)
        return found

    def arrow(self, rows: list[Row]) -> pa.Table:
        flat = [x for row in rows for x in (row["v"] or [0.0] * self.dimension)]
        with np.errstate(over="ignore"):
            values = pa.array(flat, pa.float64()).cast(self.kind, safe=False)
        void = pa.array([row["v"] is None for row in rows], pa.bool_())
        kind = self.schema.field("v").type
        vectors = pa.FixedSizeListArray.from_arrays(values, type=kind, mask=void)
        plain = pa.Table.from_pylist(rows, self.schema.remove(3))
        return plain.append_column(self.schema.field("v"), vectors)

    def query(self) -> str:
        rng = self.rng
        given = self.vector()
        while (
            given is None or None in given or (rng.random() < 0.9 and not np.isfinite(given).all())
        ):
            given = self.vector()
        literal = "[" + ", ".join(map(number, given)) + "]"
        function, direction = rng.choice(list(FUNCTIONS.items()))
        if rng.random() < 0.3:
            cast = rng.choice(CASTS).format(d=self.dimension)
            function = function.replace("(v,", f"({cast},").replace(", v)", f", {cast})")
        distance = function.format(q=literal)
        direction = rng.choice([direction, direction, direction, "ASC", "DESC"])
        nulls = rng.choice(["", "", "NULLS FIRST", "NULLS LAST"])
        keys = [f"{distance} {direction} {nulls}"]
        keys += [*rng.sample(["n DESC", "name"], rng.randrange(3)), "id"]
        where = ""
        if rng.random() < 0.6:
            chosen = rng.sample(CONDITIONS, rng.choice([1, 1, 2]))
            where = "WHERE " + " AND ".join(f"({one})" for one in chosen).format(q=literal)
        columns = rng.choice(["id", "*", "n, id", f"id, {distance} AS d", "id, v"])
        limit = f"LIMIT {rng.choice([1, 3, 10, 40, 500])}"
        offset = rng.choice(["", "", "OFFSET 4"])
        return f"SELECT {columns} FROM t {where} ORDER BY {', '.join(keys)} {limit} {offset}"


def exactly(table: pa.Table) -> list[str]:
    """The rows, of which NaN equals itself."""
    return [repr(row) for row in table.to_pylist()]


def number(value: float | None) -> str:
    """A value as SQL text."""
    return (
        repr(value)
        if value is not None and math.isfinite(value)
        else f"CAST('{value!r}' AS DOUBLE)"
    )


def answers(context: datafusion.SessionContext, query: str) -> list[str] | None:
    """The rows; None for an error."""
    try:
        return exactly(context.sql(query).to_arrow_table())
    except Exception:
        return None


@pytest.mark.parametrize("way", [in_memory, by_reading])
@pytest.mark.parametrize(("kind", "dimension"), [("float16", 3), ("float32", 5), ("float64", 2)])
def test_the_rows_are_those_of_a_plain_table(
    tmp_path: Path, kind: str, dimension: int, way: Callable[[Callable[[Any], Any]], None]
) -> None:
    seed = f"{kind} {way.__name__} {os.environ.get('MEMWAL_SEED', '')}"
    replaced = 0
    with ExitStack() as stack:
        way(stack.enter_context)
        tables = Tables(tmp_path / "t", Random(seed), KINDS[kind], dimension)
        for _ in range(QUERIES):
            query = tables.query()
            expected = answers(tables.plain, query)
            assert answers(tables.context, query) == expected, query
            plan = str(tables.context.sql(query).execution_plan().display_indent())
            replaced += "NearestExec" in plan
        tables.writer.close()
    assert replaced
