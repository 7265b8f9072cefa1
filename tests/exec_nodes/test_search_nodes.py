"""SortExec, GlobalLimitExec, TakeExec, and how FilterStaleExec asks on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exec_nodes.base.columns import (
    BATCH_DISTANCE_ROWS,
    DISTANCE,
    DISTANCE_ROWS,
    SCORE,
    SCORE_ROWS,
    RowAddresses,
)
from exec_nodes.filter_stale_exec import FilterStaleExec
from exec_nodes.global_limit_exec import GlobalLimitExec
from exec_nodes.liveness.masks import Masks
from exec_nodes.liveness.stale_sets import PlanStale, StaleSets
from exec_nodes.node import Node, draw
from exec_nodes.sort_exec import SortExec
from exec_nodes.take_exec import TakeExec
from exec_nodes.union_exec import UnionExec
from tests.exec_nodes.tables import (
    DELETED,
    SCHEMA,
    MemoryBase,
    Rows,
    collect,
    lance_generation,
    memory_base,
    memtable,
    memtable_of,
    stored,
)

# Address, source, distance, and the query of a batch.
Row = tuple[float, ...]


def narrow(rows: Sequence[Row], schema: pa.Schema = DISTANCE_ROWS) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else [() for _ in schema]
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def child(*batches: Sequence[Row], schema: pa.Schema = DISTANCE_ROWS) -> Rows:
    return Rows(tuple(narrow(rows, schema) for rows in batches), schema)


def rows_of(node: Node) -> list[Row]:
    return [tuple(row.values()) for row in collect(node).to_pylist()]


def filtered(limit: int | None, *inputs: Rows, queries: int = 1) -> FilterStaleExec:
    """Over a base with the keys 0 to 9, of which a MemTable has replaced 1 and deleted 2."""
    newer = memtable([(1, 11), (2, DELETED)], 1)
    stale = PlanStale(memory_base([(i, i) for i in range(10)]), ((newer,),), StaleSets())
    return FilterStaleExec(UnionExec(inputs, len(inputs)), Masks(stale), ("id",), limit, queries)


def test_a_source_is_asked_on_until_enough_of_its_rows_are_live() -> None:
    base = child(((1, 0, 0.1), (2, 0, 0.2), (3, 0, 0.3)), ((4, 0, 0.4),), ((5, 0, 0.5),))
    newer = child(((0, 1, 0.0),), ())
    node = filtered(2, base, newer)
    assert [row[0] for row in rows_of(node)] == [3, 4, 0]
    assert (base.asked, newer.asked) == ([0, 1], [0, 1])
    assert node.metrics["refills"] == 2
    assert node.metrics["stale_rows"] == 2


def test_no_more_is_asked_than_needed() -> None:
    base = child(((3, 0, 0.1), (4, 0, 0.2)), ((5, 0, 0.4),))
    assert [row[0] for row in rows_of(filtered(2, base))] == [3, 4]
    assert base.asked == [0]
    base = Rows(base.batches, base.kind)
    assert [row[0] for row in rows_of(filtered(None, base))] == [3, 4, 5]


def test_every_query_of_a_batch_gets_enough() -> None:
    first = ((3, 0, 0.1, 0), (1, 0, 0.1, 1), (2, 0, 0.2, 1))
    then = ((1, 0, 0.9, 0), (4, 0, 0.4, 1))
    base = child(first, then, schema=BATCH_DISTANCE_ROWS)
    node = filtered(1, base, queries=2)
    assert [(row[0], row[3]) for row in rows_of(node)] == [(3, 0), (4, 1)]
    assert base.asked == [0, 1]


def sort_exec(
    rows: Node, column: str, keys: dict[int, list[Any]], limit: int = 10, **options: Any
) -> SortExec:
    """A sort over sources that have these keys at the addresses from 0 on."""
    sources = tuple(
        memory_base([(key, 0) for key in keys.get(ordinal, ())])
        for ordinal in range(max(keys, default=0) + 1)
    )
    return SortExec(rows, column, sources, pa.schema([SCHEMA.field("id")]), limit, **options)


def test_equally_near_rows_are_ordered_by_primary_key() -> None:
    rows = ((0, 1, 0.5), (2, 0, 0.5), (1, 0, 0.5), (0, 2, 0.25))
    keys = {0: [1, 7, 5], 1: [6], 2: [9]}
    node = sort_exec(child(rows[:2], rows[2:]), DISTANCE, keys)
    assert [row[:2] for row in rows_of(node)] == [(0, 2), (2, 0), (0, 1), (1, 0)]
    assert node.label() == "SortExec: order_by=[_distance ASC]"
    assert rows_of(sort_exec(child(), DISTANCE, {})) == []


def test_no_keys_are_read_of_rows_that_are_not_tied_within_the_limit() -> None:
    rows = ((3, 0, 0.1), (4, 0, 0.2), (5, 0, 0.3), (6, 0, 0.3))
    unread = SortExec(child(rows), DISTANCE, (), pa.schema([SCHEMA.field("id")]), 2)
    assert [row[0] for row in rows_of(unread)][:2] == [3, 4]


def test_the_best_scores_come_first() -> None:
    rows = ((0, 1, 0.5), (1, 0, 1.5), (0, 0, 0.5))
    node = sort_exec(child(rows, schema=SCORE_ROWS), SCORE, {0: [2, 3], 1: [1]}, descending=True)
    assert [row[:2] for row in rows_of(node)] == [(1, 0), (0, 1), (0, 0)]
    assert node.label() == "SortExec: order_by=[_score DESC]"


def test_the_limit_holds_for_each_query_of_a_batch() -> None:
    rows = ((1, 0, 0.3, 1), (2, 0, 0.1, 0), (3, 0, 0.2, 1), (4, 0, 0.1, 1), (5, 0, 0.9, 2))
    node = GlobalLimitExec(sort_exec(child(rows, schema=BATCH_DISTANCE_ROWS), DISTANCE, {}), 2)
    assert [(row[3], row[0]) for row in rows_of(node)] == [(0, 2), (1, 4), (1, 3), (2, 5)]
    assert node.label() == "GlobalLimitExec: limit=2"
    alone = GlobalLimitExec(child(((1, 0, 0.1), (2, 0, 0.2))), 1)
    assert rows_of(alone) == [(1, 0, pytest.approx(0.1))]
    assert rows_of(GlobalLimitExec(child(), 3)) == []


def test_columns_of_rows_are_taken_from_their_sources_in_the_order_of_the_rows(
    tmp_path: Path,
) -> None:
    sources = (
        memory_base([(i, i * 10) for i in range(5)]),
        lance_generation(tmp_path, [(7, 70), (8, 80)], 1),
        memtable([(9, 90)], 2),
    )
    rows = ((1, 1, 0.1, 0), (4, 0, 0.2, 0), (0, 2, 0.3, 1), (0, 1, 0.4, 1), (4, 0, 0.5, 1))
    output = pa.schema([SCHEMA.field("val"), SCHEMA.field("id")])
    node = TakeExec(child(rows, schema=BATCH_DISTANCE_ROWS), sources, output)
    assert node.schema.names == ["val", "id", "_distance", "query_index"]
    found = collect(node)
    assert found["id"].to_pylist() == [8, 4, 9, 7, 4]
    assert found["val"].to_pylist() == [80, 40, 90, 70, 40]
    assert found["query_index"].to_pylist() == [0, 0, 1, 1, 1]
    assert draw(node) == "TakeExec: columns=[val, id]\n  Rows"
    nothing = TakeExec(child(((1, 1, 0.5),)), sources, pa.schema([]))
    assert collect(nothing).to_pydict() == {"_distance": [0.5]}
    assert collect(TakeExec(child(()), sources, output)).num_rows == 0


class InPieces(MemoryBase):
    """Its rows fit into no single array, as those of a column above 2 GiB."""

    def rows_at(self, addresses: RowAddresses, columns: Sequence[str]) -> pa.Table:
        rows = super().rows_at(addresses, columns)
        places = pa.array(range(100), pa.int8())
        pieces = [
            pa.DictionaryArray.from_arrays(places, rows["id"].slice(start, 100).combine_chunks())
            for start in range(0, len(rows), 100)
        ]
        return pa.table({"id": pa.chunked_array(pieces)})


def test_rows_that_fit_into_no_single_array_are_taken_in_several_batches() -> None:
    source = memtable_of(stored([(i, i) for i in range(300)]), -1, "", 300, InPieces)
    rows = [(299 - i, 0, float(i)) for i in range(300)]
    output = pa.schema([pa.field("id", pa.dictionary(pa.int8(), pa.int64()))])
    batches = list(TakeExec(child(rows), (source,), output).execute())
    assert [one for batch in batches for one in batch["id"].to_pylist()] == list(range(299, -1, -1))
    assert [one for batch in batches for one in batch["_distance"].to_pylist()] == list(range(300))
