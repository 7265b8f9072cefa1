"""A function of the caller ranks the candidates of a search: compared with the searches without it,
whose rows are sorted here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.each import each
from tests.model.writing import session_of

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), False),
        pa.field("body", pa.string()),
        pa.field("v", pa.list_(pa.float32(), 2)),
    ]
)
Q = [9.2, 0.0]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mw.Table]:
    """Ten rows in the base table, ten flushed, and ten in the memory of the writer."""
    table = mw.create_table(tmp_path_factory.mktemp("rerank") / "t", SCHEMA, "id")
    with table.writer() as writer:
        for start in (0, 10, 20):
            ids = range(start, start + 10)
            words = ["log " * (key % 4) + f"word{key}" for key in ids]
            writer.upsert(pa.table([ids, words, [[float(key), 0.0] for key in ids]], SCHEMA))
            if start < 20:
                writer.flush()
            if not start:
                table.merge()
        yield table


class Model:
    """Scores rows by their ids, and keeps what it was given."""

    def __init__(self, returned: Any = np.asarray) -> None:
        self.rows: list[pa.Table] = []
        self._returned = returned

    def __call__(self, rows: pa.Table) -> Any:
        self.rows.append(rows)
        return self._returned(self.scores(rows["id"].to_pylist()))

    @staticmethod
    def scores(ids: list[int]) -> list[float]:
        return [float(key * 7 % 5) for key in ids]

    def best(self, ids: list[int], k: int) -> list[int]:
        return sorted(ids, key=lambda key: -self.scores([key])[0])[:k]  # a stable sort


@each("k, candidates", [(3, None), (3, 5), (3, 1), (100, None), (2, 2**70)])
def test_the_best_of_the_candidates_are_returned(
    table: mw.Table, k: int, candidates: int | None
) -> None:
    count = max(k, 4 * k if candidates is None else candidates)
    for search, arguments in (
        (table.vector_search, ("v", Q)),
        (table.full_text_search, ("body", "log")),
    ):
        model = Model()
        rows = search(*arguments, k, "id < 28", rerank=model, candidates=candidates)
        plain = search(*arguments, count, "id < 28")
        assert model.rows[0].equals(plain)
        check(rows, plain, model, k)
    model = Model()
    rows = table.hybrid_search("v", Q, "body", "log", k, rerank=model, candidates=candidates)
    near = table.vector_search("v", Q, count)["id"].to_pylist()
    good = table.full_text_search("body", "log", count)["id"].to_pylist()
    (every,) = model.rows
    assert sorted(every["id"].to_pylist()) == sorted({*near, *good})
    fused = every["_relevance_score"].to_pylist()
    assert fused == sorted(fused, reverse=True)
    first = table.hybrid_search("v", Q, "body", "log", k, candidates=candidates)
    assert every.slice(0, len(first)).equals(first)
    check(rows, every, model, k)


def check(rows: pa.Table, candidates: pa.Table, model: Model, k: int) -> None:
    ids = rows["id"].to_pylist()
    assert ids == model.best(candidates["id"].to_pylist(), k)
    assert rows.schema.field("_relevance_score").equals(
        pa.field("_relevance_score", pa.float32(), nullable=False)
    )
    assert rows["_relevance_score"].to_pylist() == model.scores(ids)
    assert rows.column_names == [*dict.fromkeys([*candidates.column_names, "_relevance_score"])]


@each(
    "returned",
    [
        list,
        tuple,
        pa.array,
        pd.Series,
        np.int8,
        np.float16,
        lambda s: pa.chunked_array([s[:1], s[1:]]),
    ],
)
def test_scores_may_be_any_array(table: mw.Table, returned: Any) -> None:
    model = Model(returned)
    rows = table.vector_search("v", Q, 4, columns=["id"], rerank=model)
    check(rows, table.vector_search("v", Q, 16, columns=["id"]), model, 4)


@each(
    "scores",
    [
        [10**9, 10**9 + 1],
        [1.0 - 1e-9, 1.0],
        np.array([2**63, 2**63 + 1], np.uint64),
        np.array([-(2**63), -(2**63) + 1]),
        [False, True],
    ],
)
def test_scores_are_compared_before_they_are_rounded(table: mw.Table, scores: Any) -> None:
    rows = table.vector_search("v", Q, 2, rerank=lambda rows: scores, candidates=2)
    assert rows["id"].to_pylist() == [10, 9]
    rounded = np.array(scores).astype(np.float32)[::-1]
    assert rows["_relevance_score"].to_pylist() == rounded.tolist()


def test_without_candidates_nothing_is_scored(table: mw.Table) -> None:
    for condition in ("id < 0", "1 = 0"):
        rows = table.full_text_search("body", "log", 3, condition, rerank=lambda _: 1 / 0)
        assert (len(rows), rows.column_names[-1]) == (0, "_relevance_score")
    with pytest.raises(ZeroDivisionError):  # an error of the function comes out as it is
        table.full_text_search("body", "log", 3, rerank=lambda _: 1 / 0)


def returns(value: Any) -> dict[str, Any]:
    return {"rerank": lambda rows: value}


@each(
    "arguments, message",
    [
        (returns(None), "returned None for 8 rows"),
        (returns([1.0] * 7), "array of 8 numbers"),
        (returns([[1.0]] * 8), "array of 8 numbers"),
        (returns([[1.0], []] * 4), "array of 8 numbers"),
        (returns(["a"] * 8), "array of 8 numbers"),
        (returns(["1"] * 8), "array of 8 numbers"),
        (returns([1.0, float("nan")] * 4), "returned nan for row 1"),
        (returns([1.0, 1e39] * 4), "returned 1e[+]39 for row 1"),
        (returns([1.0, None] * 4), "array of 8 numbers"),
        ({"rerank": "cohere"}, "rerank='cohere' must be a function"),
        ({"candidates": 9}, "candidates=9 is the number of rows that rerank= scores"),
        ({**returns([1.0]), "candidates": 0}, "candidates=0 must be a whole number"),
        ({**returns([1.0]), "k": 1.5}, "k=1.5 must be a whole number"),
        ({**returns([1.0]), "query": [Q, Q]}, "rerank= is for one query vector"),
    ],
)
def test_a_wrong_call_is_refused(table: mw.Table, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(mw.InvalidCallError, match=message):
        table.vector_search(**{"column": "v", "query": Q, "k": 2, **arguments})


def test_sql_has_no_callables(table: mw.Table) -> None:
    sql = f"SELECT * FROM vector_search('t', 'v', {Q}, 2, {{rerank: 1}})"
    with pytest.raises(mw.InvalidCallError, match=r"unknown options \['rerank'\]"):
        mw.sql(session_of("t", table), sql)
