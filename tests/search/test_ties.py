"""Rows that are equally near, or equally good, come in the order of their keys in every search,
wherever they lie: which of them are among the first `k` as well as their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import datafusion
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.vectors.index_search import IndexUse
from tests.soak import usual

NEAR, FAR = [1.0, 0.0], [0.0, 3.0]
PHRASE: dict[str, Any] = {"phrase": {"query": "red fox", "column": "body"}}
FUZZY: dict[str, Any] = {"match": {"query": "rad", "column": "body", "fuzziness": 1}}
MOST = (1, 7, 20, 21)
KEYS: dict[str, tuple[list[pa.Field], Callable[[int], tuple[Any, ...]]]] = {
    "int": ([pa.field("id", pa.int64(), False)], lambda n: (n - 15,)),
    "text": ([pa.field("id", pa.string(), False)], lambda n: (f"{n}é" if n % 3 else f"Z{n}",)),
    "composite": (
        [pa.field("part", pa.string(), False), pa.field("id", pa.binary(2), False)],
        lambda n: ("ab"[n % 2], bytes([255 - n, n])),
    ),
    "bool and time": (
        [pa.field("flag", pa.bool_(), False), pa.field("at", pa.timestamp("us"), False)],
        lambda n: (n % 2 == 0, n * 86_400_000_000),
    ),
}


class Tied:
    """A table of rows of which 20 are equally near and 10 equally far, with equal texts."""

    def __init__(self, folder: Path, name: str) -> None:
        fields, self.key_of = KEYS[name]
        self.names = [field.name for field in fields]
        vector = pa.field("v", pa.list_(pa.float32(), 2))
        self.schema = pa.schema([*fields, vector, pa.field("body", pa.string())])
        self.table = mw.create_table(folder / name, self.schema, self.names)
        self.near = {n: n % 3 != 0 for n in range(30)}

    def rows(self, numbers: list[int]) -> pa.Table:
        keys = zip(*map(self.key_of, numbers), strict=True)
        columns = [pa.array(k, f.type) for k, f in zip(keys, self.schema, strict=False)]
        vectors = [NEAR if self.near[n] else FAR for n in numbers]
        columns += [pa.array(vectors, self.schema.field("v").type)]
        columns += [pa.array(["red fox" if self.near[n] else "red fox den" for n in numbers])]
        return pa.Table.from_arrays(columns, schema=self.schema)

    def keys(self, rows: pa.Table) -> list[tuple[Any, ...]]:
        return list(zip(*(rows[name].to_pylist() for name in self.names), strict=True))

    def expected(self) -> list[tuple[Any, ...]]:
        table = self.rows(list(range(30)))
        keys = self.keys(table)
        return [keys[n] for n in sorted(range(30), key=lambda n: (not self.near[n], keys[n]))]


def searches(tied: Tied) -> Iterator[tuple[str, Callable[[int], list[tuple[Any, ...]]]]]:
    table, keys, names = tied.table, tied.keys, tied.names
    context = datafusion.SessionContext()
    mw.register(context, "t", table)
    for metric in ("l2", "cosine", "dot"):
        yield (
            f"vector {metric}",
            lambda k, m=metric: keys(table.vector_search("v", NEAR, k=k, columns=names, metric=m)),
        )
    yield "exact", lambda k: keys(table.vector_search("v", NEAR, k=k, columns=names, exact=True))

    def batch(k: int) -> list[tuple[Any, ...]]:
        found = table.vector_search("v", [NEAR, NEAR], k=k, columns=names)
        first, second = found.slice(0, k), found.slice(k)
        assert keys(first) == keys(second)
        return keys(first)

    yield "two vectors", batch
    for query in ("red", "red fox", PHRASE, FUZZY):
        yield query, lambda k, q=query: keys(table.full_text_search("body", q, k=k, columns=names))
    yield (
        "hybrid",
        lambda k: keys(table.hybrid_search("v", NEAR, "body", "red", k=k, columns=names)),
    )
    yield (
        "vector_search()",
        lambda k: keys(
            mw.sql(
                context, f"SELECT * FROM vector_search('t', 'v', [1.0, 0.0], k => {k})"
            ).to_arrow_table()
        ),
    )


def check(tied: Tied, where: str) -> None:
    expected = tied.expected()
    for name, search in searches(tied):
        for k in MOST:
            assert search(k) == expected[:k], (where, name, k)


@pytest.mark.parametrize("name", usual([*KEYS], 2))
def test_ties_go_by_primary_key(tmp_path: Path, name: str) -> None:
    tied = Tied(tmp_path, name)
    numbers = list(range(30))
    Random(1).shuffle(numbers)
    with tied.table.writer() as writer:
        writer.upsert(tied.rows(numbers))
        check(tied, "memory")
        writer.flush()
        check(tied, "generation")
        writer.upsert(tied.rows(numbers[5:9]))
        writer.flush()
        writer.upsert(tied.rows(numbers[11:20]))
        check(tied, "generations and memory")
        writer.flush()
    tied.table.merge()
    check(tied, "base")
    with tied.table.writer() as writer:
        writer.upsert(tied.rows(numbers[3:14]))
    check(tied, "base and memory")


def test_ties_of_an_index_go_by_primary_key(tmp_path: Path) -> None:
    """More of them than candidates are asked for."""
    for kind in ("IVF_FLAT", "IVF_PQ"):
        tied = Tied(tmp_path / kind, "int")
        schema = tied.schema
        ids = list(range(600))
        Random(2).shuffle(ids)
        vectors = [NEAR if n % 2 else [float(n), 5.0] for n in ids]
        with tied.table.writer() as writer:
            body = pa.array(["red"] * 600)
            writer.upsert(pa.Table.from_arrays([ids, vectors, body], names=schema.names))
            writer.flush()
        tied.table.merge()
        parts: dict[str, Any] = {"num_sub_vectors": 1} if kind == "IVF_PQ" else {}
        tied.table.create_index("v", kind, num_partitions=2, **parts)
        expected = sorted(n for n in ids if n % 2)
        with IndexUse.set(few_least=1, few_most=1):
            for k in (1, 5, 60, 299, 300):
                found = tied.table.vector_search("v", NEAR, k=k, columns=["id"])
                assert found["id"].to_pylist() == expected[:k], (kind, k)
