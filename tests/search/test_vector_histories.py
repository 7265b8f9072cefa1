"""Random histories: after every step the search equals brute force over the live rows."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.liveness.masks import Matched
from exec_nodes.resident.admission import Admission
from exec_nodes.vectors.index_search import ALL_PROBES, IndexUse
from tests.model.resident import another_store
from tests.search.text_history import TextHistory, globally, locally
from tests.search.vector_tables import DIMENSION, Vector, VectorTable, below
from tests.soak import SOAK, usual

STEPS, KEYS = 24 if SOAK > 1 else 9, 60
KINDS = {
    "float16": pa.float16(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "uint8": pa.uint8(),
}


def in_memory(within: Any) -> None:
    """All vectors are held."""


def by_index(within: Any) -> None:
    """No vectors are held, and the index is asked, of every partition, however few rows match."""
    within(another_store(0))
    within(IndexUse.set(few_least=0, few_most=0, probes=ALL_PROBES))


def few(within: Any) -> None:
    """No vectors are held, and all rows count as few."""
    within(another_store(0))


def cold(within: Any) -> None:
    """Nothing is held, decoded or matched beforehand: bloom filters are asked."""
    by_index(within)
    within(Matched.set(inline=-1))
    within(Admission.set(small=-1, fetch=0))


WAYS = {"in memory": in_memory, "by index": by_index, "few rows": few, "cold": cold}


class History:
    """Random steps on a table and random questions to it."""

    def __init__(self, seed: str, folder: Path, kind: pa.DataType, indexed: bool) -> None:
        self.rng = Random(seed)
        self.random = np.random.default_rng(self.rng.randrange(10**9))
        self.kind = kind
        self.bits = kind == pa.uint8()
        # Empty, small, or with an index whose partitions are all probed.
        rows = self.rows(range(0, 2 * KEYS, 2)) if indexed or self.rng.random() < 0.7 else {}

        def index(dataset: Any) -> None:
            if indexed:
                metric = "hamming" if self.bits else "l2"
                dataset.create_index("v", "IVF_FLAT", num_partitions=2, metric=metric, name="v_idx")

        regions = [mw.bucket("id", self.rng.choice([1, 3]))]
        self.table = VectorTable.over(folder, rows, kind, index, regions=regions)

    def run(self) -> None:
        for _ in range(STEPS):
            step = self.rng.choices(
                [self.upsert, self.delete, self.table.flush, self.table.reopen], [10, 4, 4, 1]
            )[0]
            step()
            self.ask()
        self.table.close()

    def rows(self, ids: Any) -> dict[int, tuple[int, Vector]]:
        return {i: (self.rng.randrange(10), self.vector()) for i in ids}

    def vector(self) -> Vector:
        if self.rng.random() < 0.1:
            return None
        if self.bits:
            return self.random.integers(0, 256, DIMENSION, np.uint8)
        found = self.random.normal(size=DIMENSION).astype(self.kind.to_pandas_dtype())
        if self.rng.random() < 0.1:
            found[:] = 0 if self.rng.random() < 0.5 else np.nan
        return found

    def upsert(self) -> None:
        count = self.rng.choice([1, 5, 30])
        self.table.upsert(self.rows(self.rng.sample(range(2 * KEYS), count)))

    def delete(self) -> None:
        self.table.delete(self.rng.sample(range(2 * KEYS), self.rng.choice([1, 5, 30])))

    def ask(self) -> None:
        for _ in range(2):
            queries = [self.question() for _ in range(self.rng.choice([1, 1, 3]))]
            options: dict[str, Any] = {}
            limit = self.rng.choice([None, 1, 5])
            if limit is not None:
                pushable = self.rng.random() < 0.5
                options["filters"] = (below(limit, pushable=pushable),)
            if not self.bits:
                options["metric"] = self.rng.choice([None, "l2", "cosine", "dot"])
            if self.rng.random() < 0.3:
                options["upper_bound"] = self.rng.choice([0.0, 1.0, 12.0])
            elif self.rng.random() < 0.2:
                options["lower_bound"] = self.rng.choice([0.0, 1.0, 12.0])
            k = self.rng.choice([1, 3, 10, 200])
            query = self.table.query(queries, k, **options)
            self.table.check(query, lambda n, limit=limit: limit is None or n < limit)  # type: ignore[misc]

    def question(self) -> Any:
        stored = [v for _, v in self.table.live.values() if v is not None and np.isfinite(v).all()]
        if stored and self.rng.random() < 0.5 and (near := self.rng.choice(stored)).any():
            return near
        if self.bits:
            return self.random.integers(1, 256, DIMENSION, np.uint8)
        return self.random.normal(size=DIMENSION)


@pytest.mark.parametrize(("way", "kind"), usual([*product(WAYS, KINDS)], 7))
def test_every_search_equals_brute_force_after_every_step(
    kind: str, way: str, tmp_path: Path, within: Any
) -> None:
    WAYS[way](within)
    for number in range(SOAK):
        seed = f"1/{kind}/{way}/{number}"
        History(seed, tmp_path / f"{number}", KINDS[kind], indexed=way != "in memory").run()


# Random histories of texts: after each step a search finds what one index over the live rows
# does. The rows above the k-th score are those of a fresh Lance index and of bm25s, scores are
# within 3e-6, and the statistics are exact (rules of correctness, 4). A control that scores
# every source by its own statistics fails the same test.


ANALYZERS: dict[str, dict[str, Any]] = {
    "english": {"base_tokenizer": "simple", "stem": True, "remove_stop_words": True},
    "plain": {"base_tokenizer": "simple", "stem": False, "remove_stop_words": True},
    "icu": {"base_tokenizer": "icu", "stem": False, "remove_stop_words": True},
    "code": {"analyzer": "code", "split_identifiers": True, "preserve_original": True},
}


class Checked(TextHistory):
    def compare(self) -> None:
        super().compare()
        self.check_statistics()


@pytest.mark.parametrize("number", range(SOAK))
@pytest.mark.parametrize("analyzer", ANALYZERS)
def test_a_search_finds_what_one_index_over_the_live_rows_does(
    number: int, analyzer: str, tmp_path: Path
) -> None:
    seed = f"texts {analyzer} {number}"
    Checked(seed, str(tmp_path / "table"), ANALYZERS[analyzer], globally).run(STEPS)


@pytest.mark.parametrize("number", range(3))
def test_scores_by_statistics_of_each_source_fail_the_same_test(
    number: int, tmp_path: Path
) -> None:
    history = TextHistory(f"control {number}", str(tmp_path / "table"), ANALYZERS["plain"], locally)
    history.compare()  # one source: its statistics are those of the table
    with pytest.raises(AssertionError, match="score"):
        history.run(25)
    history.close()
