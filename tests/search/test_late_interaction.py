"""Rows with several vectors: the nearest equal brute force over a dict, and Lance's own search of
the merged rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.search import request
from memwal_sql.spark.options import READ, parse_options
from memwal_sql.spark.search import search_in_shares
from tests.each import each
from tests.exec_nodes.arrow.hidden_values import over_hidden_values
from tests.exec_nodes.vectors.vectors import measured
from tests.model.writing import session_of
from tests.spark.test_searches import Tasks

WIDTH, KEYS = 4, 40


def schema_of(kind: pa.DataType, large: bool) -> pa.Schema:
    vectors = pa.list_(kind, WIDTH)
    lists = pa.large_list(vectors) if large else pa.list_(vectors)
    columns = [("n", pa.int64()), ("body", pa.string()), ("v", lists)]
    return pa.schema([pa.field("id", pa.int64(), False), *columns])


class History:
    """A table, and a dict of its rows: several vectors by key."""

    def __init__(self, uri: str, kind: pa.DataType, large: bool = False) -> None:
        self.random = np.random.default_rng(7)
        self.live: dict[int, list[list[float]] | None] = {}
        self.schema, self.kind = schema_of(kind, large), kind.to_pandas_dtype()
        lance.write_dataset(self.new_rows(range(25)), uri, max_rows_per_file=10)
        self.table = mw.enable(uri, primary_key="id", regions=[mw.bucket("id", 1 + large)])

    def run(self) -> Iterator[mw.Table]:
        """The table after each step."""
        with self.table.writer() as writer:
            for step in (None, writer.flush, self.table.merge, writer.flush, None):
                writer.upsert(self.new_rows(self.random.choice(KEYS, 9, replace=False).tolist()))
                if step is not None:  # else all rows in memory are live, as they were given
                    gone = self.random.choice(KEYS, 3, replace=False).tolist()
                    writer.delete([{"id": key} for key in gone])
                    self.live = {key: own for key, own in self.live.items() if key not in gone}
                    step()
                yield self.table

    def new_rows(self, keys: Any) -> pa.Table:
        new = {key: None if key % 9 == 0 else self.vectors(key % 5) for key in keys}
        self.live.update(new)
        return over_hidden_values(self.rows(new))

    def rows(self, own: dict[int, Any]) -> pa.Table:
        columns = [[key % 3 for key in own], [f"log w{key}" for key in own], [*own.values()]]
        return pa.table([[*own], *columns], self.schema)

    def vectors(self, count: int) -> list[list[float]]:
        low, high = (0, 256) if self.kind is np.uint8 else (-9, 9)
        made: list[list[float]] = self.random.integers(low, high, (count, WIDTH)).tolist()
        return made

    def query(self) -> list[list[float]]:
        """Some vectors, none of them zero."""
        return [[*vector[1:], 1] for vector in self.vectors(int(self.random.integers(1, 4)))]

    def nearest(self, query: Any, metric: str, n: int | None = None) -> dict[int, float]:
        """The distances of all rows that have one."""
        found = {}
        for key, own in self.live.items():
            if own and n in (None, key % 3):
                matrix, vectors = np.array(own, self.kind), np.array(query, self.kind)
                away = [measured(metric, matrix, vector) for vector in vectors]
                found[key] = float(np.sum(np.nanmin(away, axis=1)))
        return found


def check(rows: pa.Table, expected: dict[int, float], k: int) -> None:
    """The rows are `k` of the nearest, in order, with their distances."""
    found = dict(zip(rows["id"].to_pylist(), rows["_distance"].to_pylist(), strict=True))
    assert len(found) == len(rows) == min(k, len(expected))
    assert [*found.values()] == pytest.approx(sorted(expected.values())[:k], rel=1e-5, abs=1e-5)
    assert found == pytest.approx({key: expected[key] for key in found}, rel=1e-5, abs=1e-5)
    assert sorted(found, key=lambda key: (found[key], key)) == [*found]  # ties by key


@each(
    "kind, metric, large",
    [
        *((pa.float32(), metric, False) for metric in ("l2", "cosine", "dot")),
        *((pa.float16(), "l2", True), (pa.float64(), "dot", True), (pa.uint8(), "hamming", False)),
    ],
)
def test_every_search_equals_brute_force_and_lance(
    kind: pa.DataType, metric: str, large: bool, tmp_path: Path
) -> None:
    history = History(str(tmp_path / f"{kind}{metric}"), kind, large)
    for table in history.run():
        query = history.query()
        expected = history.nearest(query, metric)
        check(table.vector_search("v", query, 3, metric=metric), expected, 3)
        rows = table.vector_search("v", query, 100, metric=metric)
        check(rows, expected, 100)
        where = table.vector_search("v", query, 4, "n = 1", metric=metric)
        check(where, history.nearest(query, metric, 1), 4)
        nearest = {"column": "v", "q": np.array(query, history.kind), "k": 100, "metric": metric}
        merged = history.rows(history.live).cast(schema_of(kind, False))
        whole = lance.write_dataset(merged, f"memory://{uuid4().hex}")
        theirs = whole.to_table(columns=["id", "_distance"], nearest=nearest)
        by_key = dict(zip(theirs["id"].to_pylist(), theirs["_distance"].to_pylist(), strict=True))
        check(rows, by_key, 100)


def test_other_ways_to_ask_give_the_same_rows(tmp_path: Path) -> None:
    history = History(str(tmp_path / "t"), pa.float32())
    (*_, table) = history.run()
    context, query = session_of("t", table), [[1.0, 2.0, 0.0, -1.0], [0.0, 1.0, 3.0, 1.0]]
    rows = table.vector_search("v", query, 5)
    call = f"SELECT * FROM vector_search('t', 'v', {query}, 5) ORDER BY _distance, id"
    for found in (
        mw.sql(context, call).to_arrow_table(),
        mw.sql(context, call.replace(str(query), "$q"), q=query).to_arrow_table(),
        table.vector_search("v", np.array(query, np.float32), 5),
    ):
        assert found.to_pylist() == rows.to_pylist()
    assert "index=brute_force" in str(context.sql(f"EXPLAIN {call}").to_pylist())
    hybrid = table.hybrid_search("v", query, "body", "w7", 3, text_weight=0)
    assert hybrid["id"].to_pylist() == rows["id"].to_pylist()[:3]
    options = parse_options({"path": table.uri}, READ, "a search")
    search = partial(request.vector_search, column="v", query=query, k=5, options={"exact": True})
    assert search_in_shares(options, search, None, None, 3, Tasks()).equals(rows)
    far = rows["_distance"][2].as_py()
    bounded = table.vector_search("v", query, 9, lower_bound=far)
    assert bounded["id"].to_pylist()[:3] == rows["id"].to_pylist()[2:]
    one = table.vector_search("v", query[0], 5)
    assert one.equals(table.vector_search("v", query[:1], 5))
    reranked = table.vector_search("v", query, 2, rerank=lambda rows: rows["id"], candidates=5)
    assert reranked["id"].to_pylist() == sorted(rows["id"].to_pylist(), reverse=True)[:2]


def test_an_index_of_lance_is_not_asked(tmp_path: Path) -> None:
    history = History(str(tmp_path / "t"), pa.float32())
    dataset = lance.dataset(history.table.uri)
    dataset.create_index("v", "IVF_FLAT", metric="cosine", num_partitions=1)
    for table in history.run():
        query = history.query()
        check(table.vector_search("v", query, 5), history.nearest(query, "cosine"), 5)
        check(table.vector_search("v", query, 5, metric="l2"), history.nearest(query, "l2"), 5)
    table.build_indexes()
    check(table.vector_search("v", query, 5), history.nearest(query, "cosine"), 5)


@each(
    "arguments, message",
    [
        ({"query": [1.0, 2.0]}, "has 2 dimensions, but column 'v' has 4"),
        ({"query": [[[1.0] * 4]]}, "is not a vector"),
        ({"query": [[1.0] * 4, [0.0] * 4], "metric": "cosine"}, "zero vector"),
        ({"query": [1.0] * 4, "metric": "hamming"}, "metric='hamming'"),
        ({"column": "n", "query": [1.0]}, "column 'n' of type int64 holds no vectors"),
    ],
)
def test_a_wrong_call_is_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / uuid4().hex, schema_of(pa.float32(), False), "id")
    with pytest.raises(mw.InvalidCallError, match=message):
        table.vector_search(**{"column": "v", **arguments})
    with pytest.raises(mw.InvalidCallError, match="a vector index needs a fixed_size_list"):
        table.create_index("v", "IVF_FLAT")
