"""The shape of scan plans (Specification 2, "Scan Queries")."""

from __future__ import annotations

import os

from exec_nodes.node import draw
from planner.model import Query
from planner.plan import plan
from tests.exec_nodes.tables import memory_base, memtable, pairs, snapshot, where

TABLE = snapshot(
    memory_base([(1, 10), (2, 20), (3, 30)]),
    [memtable([(1, 12)], 2, "A"), memtable([(1, 11)], 1, "A")],
    [memtable([(5, 50)], 3, "B"), memtable([(2, 22)], 2, "B"), memtable([(2, 21)], 1, "B")],
)


def test_a_scan_deduplicates_a_union_of_all_sources() -> None:
    node = plan(Query(("id", "val"), (where("val", ">", 5),)), TABLE)
    assert draw(node).splitlines() == [
        "DeduplicateExec: partition_by=[id], order_by=[_gen DESC, _rowaddr DESC]",
        "  UnionExec",
        "    ScanExec: base_table[gen=-1], filter=[val > 5]",
        "    ScanExec: region_A[gen=2], filter=[val > 5]",
        "    ScanExec: region_A[gen=1], filter=[val > 5]",
        "    ScanExec: region_B[gen=3], filter=[val > 5]",
        "    ScanExec: region_B[gen=2], filter=[val > 5]",
        "    ScanExec: region_B[gen=1], filter=[val > 5]",
    ]
    assert pairs(node) == [(1, 12), (2, 22), (3, 30), (5, 50)]
    assert node.partitions <= (os.cpu_count() or 1)


def test_the_filter_is_not_among_the_columns_it_reads() -> None:
    node = plan(Query(("s",), (where("val", ">", 25), where("id", "!=", 5))), TABLE)
    assert node.schema.names == ["s"]
    assert [b.to_pylist() for p in range(node.partitions) for b in node.execute(p)] == [
        [{"s": "text 30"}]
    ]


def test_many_keys_are_a_scan_with_the_condition_pushed_down() -> None:
    keys = ", ".join(map(str, range(9)))
    condition = where("id", "<", 9)
    many = type(condition)(f"id IN ({keys})", condition.evaluate, ("id",))
    node = plan(Query(("id", "val"), (many,)), TABLE)
    assert node.label().startswith("DeduplicateExec")
    assert pairs(node) == [(1, 12), (2, 22), (3, 30), (5, 50)]


def test_a_table_without_rows_is_an_empty_scan() -> None:
    node = plan(Query(("id", "val")), snapshot(memory_base([])))
    assert pairs(node) == []
