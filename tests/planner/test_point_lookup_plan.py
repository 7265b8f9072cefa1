"""The shape of point lookups (Specification 2, "Point Lookups")."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.node import draw
from planner.model import Query
from planner.plan import plan
from planner.predicates.condition import Condition
from planner.predicates.expr import In, Operand
from tests.exec_nodes.tables import (
    Write,
    lance_base,
    lance_generation,
    memory_base,
    memtable,
    newest,
    nodes,
    pairs,
    snapshot,
    where,
)

BOTH = ("id", "val")


def one_of(*keys: int) -> Condition:
    """`id IN (1, 2)`."""

    def evaluate(batch: pa.RecordBatch) -> pa.BooleanArray:
        return pc.is_in(batch["id"], value_set=pa.array(keys, pa.int64()))

    text = f"id IN ({', '.join(map(str, keys))})"
    return Condition(text, evaluate, ("id",), text, In(Operand("id"), pa.int64(), keys))


def test_a_key_is_looked_up_newest_first_behind_guards(tmp_path: Path) -> None:
    table = snapshot(
        lance_base(tmp_path, [(41, 1), (42, 2)]),
        [memtable([(7, 70)], 2), lance_generation(tmp_path, [(42, 20), (42, 21)], 1)],
    )
    node = plan(Query(BOTH, (one_of(42),)), table)
    assert draw(node).splitlines() == [
        "CoalesceFirstExec: return_first_non_null",
        "  BloomFilterGuardExec: keys[region_a][gen=2]",
        "    TakeLastExec: region_a[gen=2], filter=[id = 42]",
        "  BloomFilterGuardExec: bf[region_a][gen=1]",
        "    TakeLastExec: region_a[gen=1], filter=[id = 42]",
        "  TakeLastExec: base_table[gen=-1], version=2, filter=[id = 42]",
    ]
    assert pairs(node) == [(42, 21)]
    newer, older, base = node.children
    assert newer.metrics["bloom_skips"] == 1
    assert newer.children[0].metrics.values() == {}
    assert older.metrics["bloom_hits"] == 1
    assert base.metrics.values() == {}


def test_a_residual_filter_sees_only_the_newest_version() -> None:
    """lance-format/lance #6929, for lookups."""
    table = snapshot(memory_base([(1, 100)]), [memtable([(1, 1)], 1)])
    node = plan(Query(("id",), (one_of(1), where("val", ">", 50))), table)
    assert draw(node).splitlines()[0] == "FilterExec: filter=[val > 50]"
    assert [b.num_rows for b in node.execute(0)] == []
    kept = plan(Query(("id",), (one_of(1), where("val", "<", 50))), table)
    assert [b.to_pylist() for b in kept.execute(0)] == [[{"id": 1}]]
    assert kept.schema.names == ["id"]


def test_filters_over_the_key_alone_are_decided_by_the_plan() -> None:
    table = snapshot(memory_base([(1, 1), (2, 2)]), [memtable([(2, 3)], 1)])
    node = plan(Query(BOTH, (one_of(1, 2), where("id", ">", 1))), table)
    assert node.label() == "CoalesceFirstExec: return_first_non_null"
    assert pairs(node) == [(2, 3)]
    assert pairs(plan(Query(BOTH, (one_of(1), where("id", ">", 1))), table)) == []


def test_several_keys_are_a_union_of_lookups() -> None:
    table = snapshot(memory_base([(i, i) for i in range(20)]), [memtable([(2, 3)], 1)])
    node = plan(Query(BOTH, (one_of(2, 5, 99),)), table)
    assert [n.label() for n in (node, *node.children)] == [
        "UnionExec",
        *["CoalesceFirstExec: return_first_non_null"] * 3,
    ]
    assert pairs(node) == [(2, 3), (5, 5)]
    counted = plan(Query((), (one_of(2, 5, 99),)), table)
    assert sum(b.num_rows for b in counted.execute(0)) == 2


@pytest.mark.parametrize("limit", [0, 1, 5])
def test_a_limit_on_a_lookup_never_returns_too_few(limit: int) -> None:
    """lance-format/lance #7916: whoever set the limit cuts what is too much."""
    table = snapshot(memory_base([(1, 1), (2, 2)]))
    node = plan(Query(BOTH, (one_of(1, 2),), limit), table)
    assert len(pairs(node)) >= min(limit, 2)


writes = st.lists(
    st.tuples(st.integers(0, 6), st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=8
)


@settings(max_examples=150, deadline=None)
@given(
    base=st.dictionaries(st.integers(0, 20), st.integers(0, 9)),
    parts=st.lists(st.lists(writes, max_size=3), max_size=3),
    asked=st.lists(st.integers(0, 21), min_size=1, max_size=10, unique=True),
    above=st.one_of(st.none(), st.integers(0, 9)),
)
def test_a_lookup_equals_a_dict(
    base: dict[int, int],
    parts: list[list[list[Write]]],
    asked: list[int],
    above: int | None,
) -> None:
    parts = [
        [[(3 * key + r, value) for key, value in generation] for generation in region]
        for r, region in enumerate(parts)
    ]
    table = snapshot(
        memory_base(list(base.items())),
        *([memtable(g, i + 1) for i, g in enumerate(region)][::-1] for region in parts),
    )
    filters = (one_of(*asked), *(() if above is None else (where("val", ">", above),)))
    node = plan(Query(BOTH, filters), table)
    is_lookup = any(n.label().startswith("TakeLastExec") for n in nodes(node))
    assert is_lookup == (len(asked) <= 8)
    live = newest(list(base.items()), *parts)
    expected = [(k, live[k]) for k in sorted(asked) if k in live]
    assert pairs(node) == [(k, v) for k, v in expected if above is None or v > above]


# The shape of scan plans (Specification 2, "Scan Queries").


TABLE = snapshot(
    memory_base([(1, 10), (2, 20), (3, 30)]),
    [memtable([(1, 12)], 2, "A"), memtable([(1, 11)], 1, "A")],
    [memtable([(5, 50)], 3, "B"), memtable([(2, 22)], 2, "B"), memtable([(2, 21)], 1, "B")],
)


def test_the_filter_is_not_among_the_columns_it_reads() -> None:
    node = plan(Query(("s",), (where("val", ">", 25), where("id", "!=", 5))), TABLE)
    assert node.schema.names == ["s"]
    assert [b.to_pylist() for p in range(node.partitions) for b in node.execute(p)] == [
        [{"s": "text 30"}]
    ]
