"""Tables with vectors, a dict of what they hold, and the answers that brute force gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import memwal_sql as mw
from exec_nodes.node import Node
from planner.model import Snapshot
from planner.predicates.condition import Condition
from planner.search.vector import VectorQuery, plan_vector_search
from tests.exec_nodes.arrow.hidden_values import over_hidden_values
from tests.exec_nodes.vectors.vectors import measured

DIMENSION = 6
Vector = npt.NDArray[Any] | None


def schema_of(kind: pa.DataType, dimension: int = DIMENSION) -> pa.Schema:
    """`id`, `n` and the vector column `v`."""
    vector = pa.list_(kind, dimension)
    return pa.schema([pa.field("id", pa.int64(), False), ("n", pa.int64()), ("v", vector)])


class VectorTable:
    """A table beside the dict `live` of its rows: (n, vector) by id."""

    def __init__(self, table: mw.Table) -> None:
        self.table = table
        self.schema = table.schema
        self.live: dict[int, tuple[int, Vector]] = {}
        self._writer = table.writer()

    @classmethod
    def over(
        cls,
        folder: Path,
        rows: dict[int, tuple[int, Vector]],
        kind: pa.DataType | None = None,
        index: Callable[[Any], None] = lambda dataset: None,
        **options: Any,
    ) -> VectorTable:
        """Over a base table of these rows, which `index` may index; `options` are `enable`'s."""
        dimension = next((len(v) for _, v in rows.values() if v is not None), DIMENSION)
        schema = schema_of(kind or pa.float32(), dimension)
        lance.write_dataset(arrow(rows, schema), folder, max_rows_per_file=2000)
        index(lance.dataset(folder))
        found = cls(mw.enable(folder, primary_key="id", **options))
        found.live.update(rows)
        return found

    def upsert(self, rows: dict[int, tuple[int, Vector]]) -> None:
        self._writer.upsert(over_hidden_values(arrow(rows, self.schema)))
        self.live.update(rows)

    def delete(self, ids: Iterable[int]) -> None:
        ids = list(ids)
        self._writer.delete(pa.table({"id": pa.array(ids, pa.int64())}))
        for key in ids:
            self.live.pop(key, None)

    def flush(self) -> None:
        self._writer.flush()

    def reopen(self) -> None:
        self._writer.close()
        self.table = mw.open_table(self.table.uri)
        self._writer = self.table.writer()

    def close(self) -> None:
        self._writer.close()

    def query(self, vectors: Any, k: int, **options: Any) -> VectorQuery:
        element = self.schema.field("v").type.value_type.to_pandas_dtype()
        return VectorQuery("v", np.atleast_2d(vectors).astype(element), k, ("id", "n"), **options)

    def check(self, query: VectorQuery, met: Callable[[int], bool] = lambda n: True) -> Node:
        """The plan's rows are what brute force over the live rows that meet the filters gives."""
        plan = plan_vector_search(query, self.table.snapshot())
        rows = run(plan)
        for place, vector in enumerate(query.vectors):
            own = [r for r in rows if len(query.vectors) == 1 or r["query_index"] == place]
            self._check_one(query, vector, own, met)
        return plan

    def _check_one(
        self,
        query: VectorQuery,
        vector: npt.NDArray[Any],
        rows: Sequence[dict[str, Any]],
        met: Callable[[int], bool],
    ) -> None:
        ids = [i for i, (n, v) in self.live.items() if v is not None and met(n)]
        default = "hamming" if vector.dtype == np.uint8 else "l2"
        exact: dict[int, float] = {}
        if ids:
            matrix = np.stack([np.asarray(self.live[i][1]) for i in ids]).astype(vector.dtype)
            distances = measured(query.metric or default, matrix, vector).tolist()
            exact = {i: d for i, d in zip(ids, distances, strict=True) if self._counts(query, d)}
        best = sorted(exact.values())[: query.k]
        found = [row["_distance"] for row in rows]
        assert len(found) == len(best), f"{len(found)} rows where {len(best)} match"
        np.testing.assert_allclose(found, best, rtol=2e-6, atol=2e-6)
        for row in rows:
            np.testing.assert_allclose(row["_distance"], exact[row["id"]], rtol=2e-6, atol=2e-6)
            assert row["n"] == self.live[row["id"]][0]
        assert len({row["id"] for row in rows}) == len(rows)

    @staticmethod
    def _counts(query: VectorQuery, distance: float) -> bool:
        low, high = query.lower_bound, query.upper_bound
        return (
            not np.isnan(distance)
            and (low is None or distance >= np.float32(low))
            and (high is None or distance < np.float32(high))
        )


def run(plan: Node) -> list[dict[str, Any]]:
    """The rows of a plan."""
    found = pa.Table.from_batches(list(plan.execute()), plan.schema)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def arrow(rows: dict[int, tuple[int, Vector]], schema: pa.Schema) -> pa.Table:
    vectors = [None if v is None else v.tolist() for _, v in rows.values()]
    numbers = [n for n, _ in rows.values()]
    return pa.table([list(rows), numbers, pa.array(vectors, schema.field("v").type)], schema=schema)


def below(limit: int, *, pushable: bool = True) -> Condition:
    """n < limit."""

    def evaluate(batch: pa.RecordBatch) -> pa.BooleanArray:
        return pa.array([n is not None and n < limit for n in batch["n"].to_pylist()])

    text = f"n < {limit}"
    return Condition(text, evaluate, ("n",), text if pushable else None)


def plan_of(snapshot: Snapshot, query: VectorQuery) -> Node:
    return plan_vector_search(query, snapshot)
