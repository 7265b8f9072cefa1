"""Specification 2, appendix 4: generations 1 to 3 are merged and indexed, generation 4 is merged
but not indexed, generation 5 is flushed, generation 6 is in memory (protocol rule 17)."""

from __future__ import annotations

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
from tests.plans.golden import cases_in, check_plan, physical_plan, read_cases

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


QUERY = [1.0, 2.0, 3.0, 4.0]
HYBRID = f"SELECT id FROM hybrid_search('t', 'v', {QUERY}, 'body', 'number 3', 30, {{nprobes: 2}})"


def _answers(example: Example) -> list[Any]:
    """Scores of texts of this table are equal, and their order is that of their sources."""

    def search(**weights: float) -> pa.Table:
        return example.table.hybrid_search("v", QUERY, "body", "number 3", 30, nprobes=2, **weights)

    near = search(text_weight=0.0)["id"].to_pylist()
    assert near == example.nearest(QUERY, 30)
    scores = example.table.full_text_search("body", "number 3", 50)["_score"].to_pylist()
    return [near, search(vector_weight=0.0)["_score"].to_pylist(), scores]


def test_the_gap_is_searched_through_its_generation_until_it_is_indexed(tmp_path: Path) -> None:
    """What generation 4 has brought into the base table is not read twice, and no score changes;
    scans and lookups ignore the gap."""
    example = Example(tmp_path)
    for path, number, case in cases_in(GOLDEN.parent):
        check_plan(path, number, example.plan(case.sql))
    snapshot = example.table.snapshot()
    assert snapshot.base is not None
    covered = snapshot.gaps["v_idx"].covered.rows
    assert covered < snapshot.base.rows
    assert _base_rows(example.table) == {name: {covered} for name in SEARCHES}
    lines = example.plan(HYBRID).splitlines()
    gap = [line for line in lines if "Exec: region_unsharded=0[gen=4]" in line]
    assert [line.split(":")[0].strip() for line in gap] == ["KNNExec", "FTSExec"]
    assert sorted(example.table.to_arrow(["id"])["id"].to_pylist()) == sorted(example.live)
    for sql in ("SELECT * FROM t", "SELECT * FROM t WHERE id = 900"):
        assert "[gen=4]" not in example.plan(sql)
    example.check()
    before = _answers(example)
    example.table.build_indexes()
    assert len(example.table.snapshot().gaps) == 0
    assert _base_rows(example.table) == {name: {snapshot.base.rows} for name in SEARCHES}
    for sql in (HYBRID, read_cases(GOLDEN)[0].sql):
        assert "gen=4" not in example.plan(sql)
    assert _answers(example) == before
    example.check()
    example.writer.close()


def _append(dataset: Any) -> None:
    row = {"id": 5000, "v": [1.0, 2.0, 3.0, 4.0], "body": "appended"}
    rows = pa.Table.from_pylist([row], SCHEMA).cast(dataset.schema)
    lance.write_dataset(rows, dataset.uri, mode="append")


def test_what_others_changed_is_no_part_of_a_gap(tmp_path: Path) -> None:
    """Protocol rule 17: no generation has what was appended, or was deleted after the merge."""
    example = Example(tmp_path / "appended", _append)
    example.live[5000] = ([1.0, 2.0, 3.0, 4.0], "appended")
    assert len(example.table.snapshot().gaps) == 0
    example.check()
    example.writer.close()
    example = Example(tmp_path / "deleted", lambda dataset: dataset.delete("id = 3"))
    example.live.pop(3)
    assert len(example.table.snapshot().gaps) == 2
    example.check()
    lance.dataset(example.table.uri).delete("id = 1000")  # generation 4 wrote it
    example.live.pop(1000)
    assert len(example.table.snapshot().gaps) == 0
    example.check()
    example.writer.close()
