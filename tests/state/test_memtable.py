"""MemTables: snapshots, consolidation, indexing."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pytest

from exec_nodes.keys.keys import KeyBatch
from memwal_sql.state import memtable as module
from memwal_sql.state.memtable import MemTable, conform, memtable_schema
from tests.model.interrupts import at_line
from tests.write.harness import SCHEMA, delete, make_memtable, upsert


def keys(*values: int) -> KeyBatch:
    return KeyBatch(pa.table({"id": pa.array(values, pa.int64())}))


def test_a_snapshot_does_not_change_while_the_memtable_grows() -> None:
    memtable = make_memtable(1)
    memtable.append(upsert({1: "a", 2: "b"}))
    before = memtable.snapshot()
    assert memtable.snapshot() is before
    memtable.append(upsert({1: "c", 3: "d"}))
    memtable.append(delete([2]))
    after = memtable.snapshot()
    assert before.identity == after.identity and (before.rows, after.rows) == (2, 5)
    assert before.take(keys(1, 2, 3), ["val"])["val"].to_pylist() == ["a", "b"]
    assert list(before.keys().hidden) == []
    assert list(after.keys().hidden) == [0, 1, 4]
    assert make_memtable(1).snapshot().identity != before.identity


def test_many_small_batches_become_few_without_moving_rows() -> None:
    memtable, everything = make_memtable(1), []
    generator = random.Random(0)
    for step in range(1500):
        rows = {step * 10 + i: str(step) for i in range(generator.choice([1, 2, 3]))}
        everything += list(rows.items())
        memtable.append(upsert(rows))
        if step == 700:
            early, early_rows = memtable.snapshot(), list(everything)
    assert len(memtable._rows.batches) <= 3 * 16
    for snapshot, expected in ((memtable.snapshot(), everything), (early, early_rows)):
        batches = list(snapshot.scan(["id", "val"], [], None))
        got = [(row["id"], row["val"]) for batch in batches for row in batch.to_pylist()]
        assert got == expected
        positions = [p for batch in batches for p in batch["_rowaddr"].to_pylist()]
        assert positions == list(range(len(expected)))


def test_rows_since_an_earlier_snapshot_are_in_the_order_of_writing() -> None:
    memtable, everything = make_memtable(1), list[int]()
    for size in (3, 1, 2):
        ids = list(range(len(everything), len(everything) + size))
        everything += ids
        memtable.append(upsert(dict.fromkeys(ids, "v")))
    whole = memtable.snapshot()
    for rows in range(len(everything) + 1):
        for first in range(rows + 1):
            batches = list(whole.first(rows).since(first))
            assert all(batch.num_rows for batch in batches)
            got = [row for batch in batches for row in batch["id"].to_pylist()]
            assert got == everything[first:rows]
            assert all(batch.schema.names == ["id", "val", "_tombstone"] for batch in batches)


def test_composite_keys_and_sliced_batches() -> None:
    schema = pa.schema([pa.field("a", pa.string(), False), pa.field("b", pa.date32(), False)])
    memtable = MemTable("r", 1, schema, ("b", "a"))
    columns = [pa.array(["x", "y", "x"]), pa.array([1, 1, 1], pa.int32()).cast(pa.date32())]
    batch = pa.RecordBatch.from_arrays(
        [*columns, pa.array([False] * 3)], schema=memtable_schema(schema)
    )
    memtable.append(batch.slice(1, 2))
    memtable.append(batch.slice(0, 1))
    assert memtable.newest_rows()["a"].to_pylist() == ["y", "x"]
    assert memtable.rows == 3


def test_stored_batches_of_an_older_schema_are_taken_in() -> None:
    old = pa.schema([pa.field("id", pa.int32(), False), pa.field("gone", pa.string())])
    batch = pa.record_batch([pa.array([1], pa.int32()), pa.array(["x"])], schema=old)
    taken = conform(batch, memtable_schema(SCHEMA))
    assert taken.schema == memtable_schema(SCHEMA)
    assert taken.to_pylist() == [{"id": 1, "val": None, "_tombstone": False}]


def values(memtable: MemTable) -> dict[int, str]:
    found = memtable.snapshot().take(keys(*range(10)), ["id", "val"])
    newest = memtable.newest_rows()
    got = dict(zip(found["id"].to_pylist(), found["val"].to_pylist(), strict=True))
    assert dict(zip(newest["id"].to_pylist(), newest["val"].to_pylist(), strict=True)) == got
    return got


class Interrupt(BaseException):
    """What comes from outside."""


def test_an_append_that_is_interrupted_leaves_all_of_its_rows_or_none() -> None:
    """At each line, where batches become one as well; what comes next is right in both cases."""
    outcomes, step, passed = set(), 0, True
    while passed:
        step += 1
        memtable, expected = make_memtable(1), {}
        for number in range(15):
            expected |= {number % 4: str(number)}
            memtable.append(upsert({number % 4: str(number)}))

        def strike() -> None:
            raise Interrupt

        with at_line(module, step, strike) as reached, suppress(Interrupt):
            memtable.append(upsert({1: "x", 9: "x"}))
        passed = reached()
        outcomes.add(memtable.rows)
        assert memtable.rows in (15, 17)
        expected |= {1: "x", 9: "x"} if memtable.rows == 17 else {}
        assert values(memtable) == expected
        memtable.append(upsert({2: "y", 7: "y"}))
        assert values(memtable) == expected | {2: "y", 7: "y"}
    assert outcomes == {15, 17} and step > 15


@pytest.mark.parametrize("ask", [MemTable.snapshot, MemTable.newest_rows])
def test_what_interrupts_an_append_can_read_the_memtable(ask: Callable[[MemTable], object]) -> None:
    step, passed = 0, True
    while passed:
        step += 1
        memtable = make_memtable(1)
        memtable.append(upsert({1: "a", 2: "b"}))
        with at_line(module, step, partial(ask, memtable)) as reached:
            memtable.append(upsert({1: "c"}))
        passed = reached()
        assert values(memtable) == {1: "c", 2: "b"}
    assert step > 10
