"""DeduplicateExec and the scan plan below it: the newest version of every key, whatever the
query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exec_nodes.base.columns import ROW_ADDRESS, SOURCE
from exec_nodes.liveness.stale_sets import StaleSets
from planner.model import Query
from planner.plan import plan_scan
from tests.exec_nodes.tables import (
    DELETED,
    OPERATORS,
    Write,
    collect,
    lance_base,
    lance_generation,
    memory_base,
    memtable,
    newest,
    pairs,
    snapshot,
    where,
)

BOTH = ("id", "val")


def test_without_deduplicate_exec_the_plan_returns_stale_rows() -> None:
    newer = [memtable([(1, 12)], 2), memtable([(1, 11)], 1)]
    plan = plan_scan(Query(BOTH), snapshot(memory_base([(1, 10)]), newer), StaleSets())
    assert pairs(plan) == [(1, 12)]
    (child,) = plan.children
    assert pairs(child) == [(1, 11), (1, 12)]  # a first scan leaves the base's out itself
    assert {ROW_ADDRESS, SOURCE} <= set(child.schema.names)
    assert plan.schema.names == ["id", "val"]


def test_a_limit_is_filled_although_stale_rows_come_first(tmp_path: Path) -> None:
    """lance-format/lance #7916: the limit counts live rows."""
    base = lance_base(tmp_path, [(i, i) for i in range(100)])
    table = snapshot(base, [memtable([(i, DELETED) for i in range(90)], 1)])
    plan = plan_scan(Query(BOTH, (), 7), table, StaleSets())
    assert plan.partitions == 1
    found = pairs(plan)
    assert len(found) == 7
    assert all(i >= 90 for i, _ in found)
    assert len(pairs(plan_scan(Query(BOTH, (where("val", "<", 95),), 100), table))) == 5


def test_the_same_key_in_two_regions_is_two_rows() -> None:
    """Rows of different regions need no deduplication (Specification 2, "MemTable Collection")."""
    table = snapshot(None, [memtable([(1, 1)], 5, "a")], [memtable([(1, 2)], 1, "b")])
    assert pairs(plan_scan(Query(BOTH), table, StaleSets())) == [(1, 1), (1, 2)]


@pytest.mark.parametrize("limit", [None, 2])
def test_a_count_without_columns_survives_the_c_stream(tmp_path: Path, limit: int | None) -> None:
    base = lance_base(tmp_path, [(1, 10), (2, 20), (3, 30)])
    flushed = lance_generation(tmp_path, [(7, 70), (8, DELETED)], 1)
    table = snapshot(base, [memtable([(1, DELETED)], 2), flushed])
    plan = plan_scan(Query((), (), limit), table, StaleSets())
    assert plan.schema == pa.schema([])
    rows = 0
    for partition in range(plan.partitions):
        reader = pa.RecordBatchReader.from_batches(plan.schema, plan.execute(partition))
        rows += sum(b.num_rows for b in pa.RecordBatchReader.from_stream(reader))
    assert rows == (3 if limit is None else limit)


def test_the_row_count_is_exact_once_the_stale_sets_are_known() -> None:
    sets = StaleSets()
    table = snapshot(memory_base([(1, 10), (2, 20)]), [memtable([(1, 11), (3, DELETED)], 1)])
    plan = plan_scan(Query(BOTH), table, sets)
    assert not plan.statistics.exact
    collect(plan)
    again = plan_scan(Query(BOTH), table, sets)
    assert again.statistics.exact
    assert again.statistics.num_rows == 2
    filtered = plan_scan(Query(BOTH, (where("val", ">", 10),)), table, sets)
    assert not filtered.statistics.exact


def test_metrics_count_what_was_dropped() -> None:
    sets, table = StaleSets(), snapshot(memory_base([(1, 10)]), [memtable([(1, 11)], 1)])
    first = plan_scan(Query(BOTH), table, sets)
    collect(first)
    scans = first.children[0].children
    assert sum(scan.metrics["stale_rows"] for scan in scans) == 1
    plan = plan_scan(Query(BOTH), table, sets)
    collect(plan)
    assert plan.metrics["stale_rows"] == 1
    assert plan.metrics["output_rows"] == 1
    assert plan.metrics["elapsed_compute_ns"] > 0
    assert plan.children[0].metrics["output_rows"] == 2


def test_metrics_count_what_a_stream_has_given_before_it_is_given_up() -> None:
    plan = plan_scan(Query(BOTH), snapshot(memory_base([(1, 10), (2, 20)]), []), StaleSets())
    stream = plan.execute()
    rows = next(stream).num_rows
    assert rows > 0
    assert plan.metrics["output_rows"] == rows
    assert plan.metrics["output_batches"] == 1
    assert plan.metrics["elapsed_compute_ns"] > 0
    stream.close()  # type: ignore[attr-defined]
    assert plan.metrics["output_rows"] == rows


def test_a_column_that_an_old_generation_lacks_is_null(tmp_path: Path) -> None:
    generation = lance_generation(tmp_path, [(1, 1)], 1)
    lance.dataset(generation.identity[1]).drop_columns(["s"])
    table = snapshot(None, [generation])
    plan = plan_scan(Query(("id", "s")), table, StaleSets())
    assert collect(plan).to_pylist() == [{"id": 1, "s": None}]
    none = plan_scan(Query(("id",), (where("s", "=", "text 1"),)), table, StaleSets())
    assert collect(none).num_rows == 0


writes = st.lists(
    st.tuples(st.integers(0, 12), st.one_of(st.none(), st.integers(0, 20))), max_size=14
)
regions = st.lists(st.lists(writes.filter(len), max_size=4), max_size=3)
conditions = st.lists(
    st.tuples(st.sampled_from(["id", "val"]), st.sampled_from(list(OPERATORS)), st.integers(0, 20)),
    max_size=2,
)


def known(number: int, base: dict[int, int], *generations: list[Write], where: Any = ()) -> Any:
    """What lance-format/lance got wrong, by the number of its issue: one region, oldest first."""
    parts, asked = [list(generations)], [where] if where else []
    return example(base=base, parts=parts, asked=asked, limit=None, sizes=3).via(f"lance #{number}")


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    base=st.dictionaries(st.integers(0, 40), st.integers(0, 20), max_size=25),
    parts=regions,
    asked=conditions,
    limit=st.one_of(st.none(), st.integers(0, 12)),
    sizes=st.integers(1, 5),
)
@known(6929, {0: 100}, [(0, 99)], [(0, 1)], where=("val", ">", 50))  # the newest fails the filter
@known(6880, {}, [(3, 1), (6, 2), (3, 3), (3, 4)])  # several rows of a key in one MemTable
@known(6881, {}, [(3, 1), (6, 2), (3, 3), (3, 4)], where=("val", "<", 3))
@known(6653, {0: 10, 3: 20}, [(0, 11)], [(0, DELETED)])  # a tombstone is the newest
@known(6653, {0: 10, 3: 20}, [(0, 11)], [(0, DELETED)], where=("val", ">", 0))
def test_a_scan_equals_a_dict(
    base: dict[int, int],
    parts: list[list[list[tuple[int, int | None]]]],
    asked: list[tuple[str, str, int]],
    limit: int | None,
    sizes: int,
) -> None:
    # A key belongs to one region: region r gets the keys r, r + 3, ... (protocol rule 10).
    parts = [
        [[(3 * key + r, value) for key, value in generation] for generation in region]
        for r, region in enumerate(parts)
    ]
    table = snapshot(
        memory_base(list(base.items())),
        *(
            [memtable(g, i + 1, str(r), sizes) for i, g in enumerate(region)][::-1]
            for r, region in enumerate(parts)
        ),
    )
    filters = tuple(where(*condition) for condition in asked)
    found = pairs(plan_scan(Query(BOTH, filters, limit), table, StaleSets()))
    expected = [
        row
        for row in sorted(newest(list(base.items()), *parts).items())
        if all(OPERATORS[op](row[c == "val"], v) for c, op, v in asked)
    ]
    if limit is None:
        assert found == expected
    else:
        assert len(found) == min(limit, len(expected))
        assert set(found) <= set(expected)
