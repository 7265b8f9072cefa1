"""Stale sets: protocol rule 16."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.base.columns import Filter
from exec_nodes.keys.hash_index import KeyIndex
from exec_nodes.liveness import stale_sets as stale
from exec_nodes.liveness.base_join import BaseMatch
from exec_nodes.liveness.stale_sets import StaleSets
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.sources.source import Source
from tests.exec_nodes.tables import (
    DELETED,
    STORED,
    MemoryBase,
    Write,
    lance_base,
    lance_generation,
    memory_base,
    memtable,
    stored,
)
from tests.model.racing import race


class Growing:
    """A MemTable that tests append to between snapshots."""

    def __init__(self, generation: int) -> None:
        self.identity, self.generation, self.index = object(), generation, KeyIndex()
        self.batches: list[pa.RecordBatch] = []
        self.rows = 0

    def append(self, writes: Sequence[Write]) -> MemTableSource:
        """The snapshot after these writes."""
        for batch in stored(writes).to_batches():
            self.batches.append(batch)
            self.index.append([batch["id"]])
            self.rows += batch.num_rows
        return MemTableSource(
            identity=self.identity,
            region="a",
            generation=self.generation,
            primary_key=("id",),
            batches=self.batches,
            rows=self.rows,
            index=self.index,
            schema=STORED,
        )


def test_a_grown_memtable_extends_its_sets_by_its_new_rows_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protocol rule 16: what was computed for a prefix stays true."""
    sets, base = StaleSets(ResidentStore()), memory_base([(1, 1), (2, 2), (3, 3)])
    old, active = memtable([(1, 10), (3, 30)], 1), Growing(2)
    first = active.append([(1, 100)])
    assert sets.of_base(base, [first, old]).tolist() == [0, 2]
    assert [s.tolist() for s in sets.of_region([first, old])] == [[], [0]]
    matched: list[int] = []

    class Counted(BaseMatch):
        def __init__(self, newer: Sequence[tuple[Source, int]]) -> None:
            matched.extend(source.rows - start for source, start in newer)
            super().__init__(newer)

    monkeypatch.setattr(stale, "BaseMatch", Counted)
    second = active.append([(2, 200), (3, 300), (1, DELETED)])
    assert sets.of_base(base, [second, old]).tolist() == [0, 1, 2]
    assert matched == [3]
    assert [s.tolist() for s in sets.of_region([second, old])] == [[0, 3], [0, 1]]
    third = Growing(3).append([(2, 0)])
    assert [s.tolist() for s in sets.of_region([third, second, old])] == [[], [0, 1, 3], [0, 1]]


class Slow(MemoryBase):
    """A base table that counts its scans."""

    scans = 0

    def scan(
        self, columns: Sequence[str], filters: Sequence[Filter], limit: int | None, part: int = 0
    ) -> Iterator[pa.RecordBatch]:
        type(self).scans += 1
        return super().scan(columns, filters, limit, part)


def test_threads_that_need_a_missing_set_compute_it_once() -> None:
    base = memory_base([(1, 1)])
    base.__class__ = Slow
    Slow.scans = 0
    sets, newer = StaleSets(ResidentStore()), [memtable([(1, 2)], 1)]
    found = race(*[lambda: sets.of_base(base, newer).tolist()] * 8)
    assert found == [[0]] * 8
    assert Slow.scans == 1


@pytest.mark.parametrize("rows", [50, 3000])
def test_few_newer_keys_are_looked_up_in_the_base_instead_of_a_pass(
    tmp_path: Path, rows: int
) -> None:
    base = lance_base(tmp_path, [(i * 7, i) for i in range(rows)], max_rows_per_file=1000)
    newer = [memtable([(7, 1), (70, DELETED), (5, 5)], 2), memtable([(14, 1), (7, 2)], 1)]
    found = StaleSets(ResidentStore()).of_base(base, newer)
    assert found.tolist() == [1, 2, 10]


def test_the_cache_may_forget_everything() -> None:
    sets = StaleSets(ResidentStore(max_bytes=1))
    base, newer = memory_base([(1, 1), (2, 2)]), [memtable([(2, 3)], 1)]
    for _ in range(2):
        assert sets.of_base(base, newer).tolist() == [1]
        assert [s.tolist() for s in sets.of_region(newer)] == [[]]


def test_rows_deleted_inside_lance_do_not_count(tmp_path: Path) -> None:
    """Native generations carry a deletion vector."""
    generation = lance_generation(tmp_path, [(1, 1), (2, 2), (3, 3), (1, 4)], 1)
    generation.dataset.delete("val = 1")
    assert generation.rows == 3
    (found,) = StaleSets(ResidentStore()).of_region([generation])
    assert found.tolist() == []
    (newer, older) = StaleSets(ResidentStore()).of_region([memtable([(3, DELETED)], 2), generation])
    assert (newer.tolist(), older.tolist()) == ([0], [2])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.lists(
            st.tuples(st.integers(-3, 9), st.one_of(st.none(), st.just(1))), min_size=1, max_size=9
        ),
        min_size=1,
        max_size=5,
    ),
    st.integers(0, 4),
)
def test_extending_equals_computing_at_once(generations: list[list[Write]], known: int) -> None:
    sources = [memtable(w, i + 1) for i, w in enumerate(generations)][::-1]
    sets = StaleSets(ResidentStore())
    if known < len(sources):
        sets.of_region(sources[known:])
    fresh = StaleSets(ResidentStore()).of_region(sources)
    for one, other, source in zip(sets.of_region(sources), fresh, sources, strict=True):
        assert np.array_equal(one, other)
        place = sources.index(source)
        keys = [w[0] for w in generations[len(sources) - 1 - place]]
        newer = {w[0] for g in generations[len(sources) - place :] for w in g}
        values = [w[1] for w in generations[len(sources) - 1 - place]]
        expected = [
            row
            for row, key in enumerate(keys)
            if key in newer or key in keys[row + 1 :] or values[row] is None
        ]
        assert one.tolist() == expected


def _rows_of(writes: Sequence[Write]) -> st.SearchStrategy[list[Write]]:
    return st.lists(st.sampled_from(writes), min_size=1, max_size=4)


WRITES: list[Write] = [(key, value) for key in range(4) for value in (1, DELETED)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(_rows_of(WRITES), min_size=1, max_size=4), min_size=1, max_size=3),
    st.randoms(use_true_random=False),
)
def test_snapshots_of_any_age_in_any_order_are_answered_as_if_each_was_the_first(
    generations: list[list[list[Write]]], order: Random
) -> None:
    """Protocol rules 16 and 18: queries with older snapshots go on while MemTables grow."""
    base = memory_base([(key, 0) for key in range(4)])
    snapshots: list[list[MemTableSource]] = []
    below: list[MemTableSource] = []
    for number, batches in enumerate(generations, 1):
        growing = Growing(number)
        grown = [growing.append(batch) for batch in batches]
        snapshots += [[one, *below] for one in grown]
        below = [grown[-1], *below]
    kept = StaleSets(ResidentStore())
    for sources in order.choices(snapshots, k=2 * len(snapshots)):
        fresh = StaleSets(ResidentStore())
        some = order.sample(sources, order.randint(1, len(sources)))  # others are pruned
        found = [kept.of_base(base, some), *kept.of_region(sources)]
        expected = [fresh.of_base(base, some), *fresh.of_region(sources)]
        assert [one.tolist() for one in found] == [one.tolist() for one in expected]
