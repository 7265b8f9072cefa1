"""Specification 2, appendix 4: generations 1 to 3 are merged and indexed, generation 4 is merged
but not indexed, generation 5 is flushed, generation 6 is in memory (protocol rule 17)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.columns import BASE_GENERATION
from exec_nodes.base.tasks import background_by
from memwal_sql.search.request import full_text_search, hybrid_search, vector_search
from tests.exec_nodes.tables import nodes
from tests.model.resident import another_store, never
from tests.model.writing import session_of
from tests.plans.golden import Case, physical_plan, read_cases, write_cases

WIDTH = 4
VECTOR = pa.list_(pa.float32(), WIDTH)
SCHEMA = pa.schema([("id", pa.int64()), ("v", VECTOR), ("body", pa.string())])
KEYS = {1: range(500), 2: range(400, 700), 3: range(650, 900), 4: range(850, 1100),
        5: range(1050, 1200), 6: range(0, 1300, 13)}  # fmt: skip
SEARCHES = ("vector", "text", "hybrid")
GOLDEN = Path(__file__).parent / "catch_up" / "appendix_4.plan"


def _rows(generation: int) -> pa.Table:
    keys = KEYS[generation]
    values = np.random.default_rng(generation).random(len(keys) * WIDTH, np.float32) * 5
    return pa.table(
        {
            "id": list(keys),
            "v": pa.FixedSizeListArray.from_arrays(values, WIDTH).cast(VECTOR),
            "body": [f"generation {generation} number {n % 5}" for n in keys],
        },
        schema=SCHEMA,
    )


class Example:
    """The table of the appendix. `between` is what somebody does between the merges of 3 and 4."""

    def __init__(self, folder: Path, between: Callable[[Any], None] = lambda dataset: None) -> None:
        self.table = mw.create_table(folder / "t", SCHEMA, "id")
        self.live: dict[int, tuple[list[float], str]] = {}
        for generation in range(1, 6):
            if generation == 2:
                self.table.create_index("v", "IVF_FLAT", num_partitions=2)
                self.table.create_index("body", "FTS")
            with self.table.writer(durable=False) as writer:
                self._write(writer, generation)
                writer.flush()
            if generation < 5:
                self.table.merge()
            if generation == 3:
                self.table.build_indexes()
                between(lance.dataset(self.table.uri))
        self.writer = self.table.writer()
        self._write(self.writer, 6)

    def _write(self, writer: Any, generation: int) -> None:
        rows = _rows(generation)
        writer.upsert(rows)
        for key, vector, body in zip(*rows.to_pydict().values(), strict=True):
            self.live[key] = (vector, body)
        gone = generation * 100
        writer.delete([gone])
        self.live.pop(gone, None)

    def plan(self, sql: str) -> str:
        context = session_of("t", self.table)
        return physical_plan(context, sql)

    def nearest(self, query: list[float], k: int) -> list[int]:
        def distance(key: int) -> float:
            difference = np.float32(self.live[key][0]) - np.float32(query)
            return float((difference * difference).sum())

        return sorted(self.live, key=lambda key: (distance(key), key))[:k]

    def check(self) -> None:
        """Both searches give what they should."""
        for seed in range(5):
            query = (np.random.default_rng(seed).random(WIDTH) * 5).tolist()
            found = self.table.vector_search("v", query, 20, nprobes=2)["id"].to_pylist()
            assert found == self.nearest(query, 20)
        for generation in range(1, 7):
            word = f"generation {generation}"
            found = self.table.full_text_search("body", str(generation), 2000)["id"].to_pylist()
            assert sorted(found) == sorted(
                key for key, (_, body) in self.live.items() if str(generation) in body.split()
            ), word


@pytest.fixture(autouse=True)
def no_vectors_in_memory() -> Iterator[None]:
    """Plans would show when they have come there."""
    with another_store(), background_by(never):
        yield


@pytest.fixture
def example(tmp_path: Path) -> Example:
    return Example(tmp_path)


def test_the_gap_is_searched_through_its_generation(example: Example) -> None:
    plans = [Case(case.sql, example.plan(case.sql)) for case in read_cases(GOLDEN)]
    if os.environ.get("MEMWAL_UPDATE_PLANS") == "1":
        write_cases(GOLDEN, plans)
    assert plans == read_cases(GOLDEN)
    gap = example.table.snapshot().gaps["v_idx"]
    assert gap.covered.rows < example.table.snapshot().base.rows  # type: ignore[union-attr]
    example.check()
    example.writer.close()


def _base_rows(table: mw.Table) -> dict[str, set[int]]:
    """How many rows of the base table each search looks into, by its name."""
    near, text = (table.schema, "v", [1.0] * WIDTH, 5), (table.schema, "body", "number 3", 5)
    found = {
        "vector": vector_search(*near, {}),
        "text": full_text_search(*text, {}),
        "hybrid": hybrid_search(table.schema, "v", near[2], "body", text[2], 5, {}),
    }
    snapshot = table.snapshot()
    leaves = {
        name: [one for one in nodes(search.plan(("id",), (), snapshot)) if not one.children]
        for name, search in found.items()
    }
    read = {
        name: {one.source.rows for one in ones if one.source.generation == BASE_GENERATION}
        for name, ones in leaves.items()
    }
    assert all(read.values()), "the base table is not read"
    return read


def test_the_base_table_is_read_as_far_as_its_indexes_reach(tmp_path: Path) -> None:
    """What generation 4 has brought into it is not read twice; plans don't show it."""
    example = Example(tmp_path)
    whole = example.table.snapshot().base
    assert whole is not None
    covered = example.table.snapshot().gaps["v_idx"].covered.rows
    assert covered < whole.rows
    assert _base_rows(example.table) == {name: {covered} for name in SEARCHES}
    example.table.build_indexes()
    assert _base_rows(example.table) == {name: {whole.rows} for name in SEARCHES}
    example.writer.close()


def test_both_sides_of_a_hybrid_search_read_the_gap_through_its_generation(
    example: Example,
) -> None:
    sql = (
        "SELECT id FROM hybrid_search('t', 'v', [1.0, 2.0, 3.0, 4.0], 'body', 'number 3', 30, "
        "{nprobes: 2})"
    )
    plan = example.plan(sql)
    gap = [line for line in plan.splitlines() if "Exec: region_unsharded=0[gen=4]" in line]
    assert [line.split(":")[0].strip() for line in gap] == ["KNNExec", "FTSExec"]

    def search(**weights: float) -> pa.Table:
        query = [1.0, 2.0, 3.0, 4.0]
        return example.table.hybrid_search("v", query, "body", "number 3", 30, nprobes=2, **weights)

    def answers() -> tuple[list[int], list[float]]:
        # Texts of this table have equal scores, whose order is that of their sources.
        texts = search(vector_weight=0.0)["_score"].to_pylist()
        return search(text_weight=0.0)["id"].to_pylist(), texts

    before = answers()
    assert before[0] == example.nearest([1.0, 2.0, 3.0, 4.0], 30)
    example.table.build_indexes()
    assert "gen=4" not in example.plan(sql)
    assert answers() == before
    example.writer.close()


def test_texts_are_counted_once(example: Example) -> None:
    """Scores are those of the live rows, wherever they are read."""
    before = example.table.full_text_search("body", "number 3", 50)
    example.table.build_indexes()
    assert len(example.table.snapshot().gaps) == 0
    after = example.table.full_text_search("body", "number 3", 50)
    assert after["_score"].to_pylist() == before["_score"].to_pylist()
    example.check()
    assert "[gen=4]" not in example.plan(read_cases(GOLDEN)[0].sql)
    example.writer.close()


def test_scans_and_lookups_ignore_the_gap(example: Example) -> None:
    found = example.table.scan(["id"]).read_all()["id"].to_pylist()
    assert sorted(found) == sorted(example.live)
    for sql in ("SELECT * FROM t", "SELECT * FROM t WHERE id = 900"):
        assert "[gen=4]" not in example.plan(sql)
    example.writer.close()


def _append(dataset: Any) -> None:
    row = {"id": 5000, "v": [1.0, 2.0, 3.0, 4.0], "body": "appended"}
    rows = pa.Table.from_pylist([row], SCHEMA).cast(dataset.schema)
    lance.write_dataset(rows, dataset.uri, mode="append")


def test_what_others_appended_is_scanned(tmp_path: Path) -> None:
    """Protocol rule 17: no generation has it."""
    example = Example(tmp_path, _append)
    example.live[5000] = ([1.0, 2.0, 3.0, 4.0], "appended")
    assert len(example.table.snapshot().gaps) == 0
    example.check()
    example.writer.close()


def test_what_others_deleted_before_the_merge_is_no_matter(tmp_path: Path) -> None:
    example = Example(tmp_path, lambda dataset: dataset.delete("id = 3"))
    example.live.pop(3)
    assert len(example.table.snapshot().gaps) == 2
    example.check()
    example.writer.close()


def test_what_others_deleted_after_the_merge_stays_deleted(example: Example) -> None:
    lance.dataset(example.table.uri).delete("id = 1000")  # generation 4 wrote it
    example.live.pop(1000)
    assert len(example.table.snapshot().gaps) == 0
    example.check()
    example.writer.close()
