"""A search whose work tasks share gives the rows and scores of one process."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import memwal_sql as mw
from memwal_sql.search import request
from memwal_sql.spark import full_text_search, hybrid_search, vector_search
from memwal_sql.spark.options import READ, parse_options
from memwal_sql.spark.reader import Share, ShareTable, parts_of, shares_of
from memwal_sql.spark.search import search_in_shares
from tests.soak import SOAK

WORDS = ("fox", "foxes", "fax", "dog", "dig", "cat", "cut", "cot", "the", "quick", "brown")
RARE = tuple(f"{word}{letter}" for word in ("fox", "dig") for letter in ascii_lowercase)
WIDTH = 3
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("vec", pa.list_(pa.float32(), WIDTH)),
        ("body", pa.string()),
        ("title", pa.string()),
    ]
)
TEXTS: tuple[Any, ...] = (
    "fox",
    "quick brown fox",
    "nothing",
    {"phrase": {"column": "body", "query": "quick brown", "slop": 1}},
    {
        "boolean": {
            "must": [{"match": {"column": "body", "query": "fox"}}],
            "must_not": [{"match": {"column": "title", "query": "dog"}}],
        }
    },
    {"match": {"column": "body", "query": "fox dig", "fuzziness": 1, "max_expansions": 3}},
    {"match": {"column": "body", "query": "cat fox", "fuzziness": 1, "max_expansions": 1}},
    {"combined_fields": {"query": "fox dog", "columns": ["body", "title"]}},
)
CONDITIONS = (None, "id % 3 = 1", "id = 7", "body LIKE '%fox%'", "1 = 0")


def random_rows(rng: Random, keys: Sequence[int]) -> list[dict[str, Any]]:
    def text() -> str | None:
        return rng.choice([None, "", " ".join(rng.choices(WORDS + RARE, k=rng.randint(1, 8)))])

    return [
        {
            "id": key,
            "vec": rng.choice([None, [float(rng.randint(0, 3)) for _ in range(WIDTH)]]),
            "body": text() or " ".join(rng.choices(WORDS, k=3)),
            "title": text(),
        }
        for key in keys
    ]


def random_table(folder: Path, rng: Random) -> mw.Table:
    """Rows in fragments of the base, in generations and in the WAL, some replaced or deleted."""
    table = mw.create_table(folder / "table", SCHEMA, "id", [mw.bucket("id", 3)])
    if rng.random() < 0.5:
        table.create_index("body", "FTS", with_position=True)
    with table.writer() as writer:
        for step in (table.merge, table.build_indexes, table.merge, None, None):
            writer.upsert(random_rows(rng, rng.sample(range(60), 30)))
            writer.delete([{"id": key} for key in rng.sample(range(60), 3)])
            if step is not None or rng.random() < 0.5:
                writer.flush()
            if step is not None:
                step()
    return table


class Tasks:
    """Does the work of tasks in this process; everything is pickled as for another one."""

    def __init__(self) -> None:
        self.shares: list[Share] = []

    def __call__(
        self, text: str, shares: Sequence[Share], work: Callable[[Share], Any]
    ) -> list[Any]:
        assert "shares of" in text
        self.shares += shares
        sent = pickle.dumps((work, tuple(shares)))
        work, shares = pickle.loads(sent)
        return [pickle.loads(pickle.dumps(work(share))) for share in shares]


@pytest.mark.parametrize("seed", range(3 * SOAK))
def test_shares_of_any_table_give_the_rows_and_scores_of_one_process(
    tmp_path: Path, seed: int
) -> None:
    rng = Random(seed)
    table = random_table(tmp_path, rng)
    options = parse_options({"path": table.uri}, READ, "a search")

    def check(tasks: int, condition: str | None, text: Any) -> None:
        k, vector = rng.randint(1, 12), [float(rng.randint(0, 3)) for _ in range(WIDTH)]
        both = {"vector_column": "vec", "vector": vector, "text_column": "body", "text": text}
        for made, mine in (
            (
                partial(request.full_text_search, column="body", query=text, k=k, options={}),
                table.full_text_search("body", text, k, condition),
            ),
            (
                partial(
                    request.vector_search,
                    column="vec",
                    query=vector,
                    k=k,
                    options={"exact": True},
                ),
                table.vector_search("vec", vector, k, condition, exact=True),
            ),
            (
                partial(request.hybrid_search, **both, k=k, options={"exact": True}),
                table.hybrid_search(**both, k=k, filter=condition, exact=True),
            ),
        ):
            run = Tasks()
            found = search_in_shares(options, made, condition, None, tasks, run)
            assert found.equals(mine), (found.to_pylist(), mine.to_pylist())
            parts = {(share.fragments, share.regions) for share in run.shares}
            assert (len(parts) == 0) == (condition == "1 = 0") and len(parts) <= tasks
            most.add(len(parts))

    most: set[int] = set()
    cases = [(rng.randint(2, 6), c, t) for c in CONDITIONS for t in TEXTS]
    for case in rng.sample(cases, 8):
        check(*case)
    assert max(most) > 2


def test_the_work_of_a_task_falls_with_their_number(tmp_path: Path) -> None:
    table = random_table(tmp_path, Random(2))
    options = parse_options({"path": table.uri}, READ, "a search")
    pinned, most = table.pin(), []
    for tasks in (1, 2, 4):
        shares = shares_of(parts_of(options, pinned), tasks)
        snapshots = [ShareTable(options, pinned, share, table.schema).snapshot for share in shares]
        rows = [sum(source.rows for source in snapshot.sources) for snapshot in snapshots]
        most.append(max(rows))
        assert sum(rows) == sum(source.rows for source in table.snapshot().sources)
    assert most[0] > 1.5 * most[1] and most[1] > 1.3 * most[2]


def test_columns_of_now_are_searched(tmp_path: Path) -> None:
    table = random_table(tmp_path, Random(3))
    options = parse_options({"path": table.uri}, READ, "a search")
    search = partial(request.full_text_search, column="body", query="fox", k=1, options={})
    assert search_in_shares(options, search, None, None, 2, Tasks()).num_columns == 5
    mw.open_table(table.uri).add_columns({"more": "id + 1"})
    found = search_in_shares(options, search, None, None, 2, Tasks())
    assert found["more"].to_pylist() == [key + 1 for key in found["id"].to_pylist()]


def test_spark_runs_the_tasks(spark: SparkSession, tmp_path: Path) -> None:
    table = random_table(tmp_path, Random(1))
    text, vector = "quick fox", [1.0, 2.0, 0.0]
    for frame, mine in (
        (full_text_search(spark, table.uri, "body", text), table.full_text_search("body", text)),
        (
            vector_search(spark, table.uri, "vec", vector, 5, "id > 9", ["id"]),
            table.vector_search("vec", vector, 5, "id > 9", ["id"], exact=True),
        ),
        (
            vector_search(spark, table.uri, "vec", vector, 5, "id < 0"),
            table.vector_search("vec", vector, 5, "id < 0", exact=True),
        ),
        (
            hybrid_search(spark, table.uri, "vec", vector, "body", text, fuzziness=1),
            table.hybrid_search("vec", vector, "body", text, fuzziness=1, exact=True),
        ),
    ):
        assert [row.asDict() for row in frame.collect()] == mine.to_pylist()
