"""Scans and lookups that returned stale rows, lost rows, or returned too few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import lance
import numpy as np
import pytest

import memwal_sql as mw
from exec_nodes.sources.lance_source import LanceSource
from tests.model.merging import manifests, merge_one
from tests.model.pairs import count, get, keys, rows, select
from tests.model.writing import flush_rows

Layer = Callable[[Any], None]


@pytest.fixture
def table(uri: str) -> Any:
    """Keys 0 to 9 with n = key in the base table, one region."""
    lance.write_dataset(rows(*((i, i) for i in range(10))), uri)
    return mw.enable(uri, primary_key="id")


def _in_memory(writer: Any) -> None:
    """The newest rows stay in the MemTable."""


def _flushed(writer: Any) -> None:
    writer.flush()


LAYERS = [_in_memory, _flushed]


@pytest.mark.parametrize("layer", LAYERS)
def test_a_filter_never_lets_a_replaced_row_through(table: Any, layer: Layer) -> None:
    """#6929: the filter ran below the deduplication, and the new row, which did not match, could
    no longer hide the old one, which did."""
    with table.writer() as writer:
        writer.upsert(rows((1, 100), (2, None)))
        writer.delete(keys(3))
        layer(writer)
        assert select(table, "n < 4") == {0: 0}
        assert select(table, "n = 1") == {}
        assert select(table, "n IN (1, 2, 3, 100)") == {1: 100}
        assert select(table, "id = 1 AND n = 1") == {}
        assert select(table, "id IN (1, 2, 3) AND n < 50") == {}
        writer.upsert(rows((1, 200)))
        layer(writer)
        assert select(table, "n <= 100") == {0: 0, **{i: i for i in range(4, 10)}}


@pytest.mark.parametrize("layer", LAYERS)
def test_a_fresh_row_outside_the_filter_does_not_revive_its_older_versions(
    table: Any, layer: Layer
) -> None:
    """#6888, #6899, for scans: a limit or an order applied in each source before the rows met."""
    with table.writer() as writer:
        for n in (30, 20, 1000):
            writer.upsert(rows((5, n)))
            layer(writer)
        assert select(table, "n BETWEEN 15 AND 40") == {}
        found = table.scan(filter="n > 6").read_all()
        assert sorted(found["n"].to_pylist()) == [7, 8, 9, 1000]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("one_batch", [True, False])
def test_duplicate_keys_inside_one_memtable_give_one_row(
    table: Any, layer: Layer, one_batch: bool
) -> None:
    """#6880, #6881."""
    with table.writer() as writer:
        if one_batch:
            writer.upsert(rows((50, 1), (50, 2), (1, 10), (50, 3), (1, 11)))
        else:
            for batch in (rows((50, 1)), rows((50, 2), (1, 10)), rows((50, 3)), rows((1, 11))):
                writer.upsert(batch)
        layer(writer)
        assert select(table, "id IN (1, 50)") == {1: 11, 50: 3}
        assert get(table, 1, 50) == {1: 11, 50: 3}
        assert select(table, "n < 4") == {0: 0, 2: 2, 3: 3, 50: 3}
        assert count(table) == 11


@pytest.mark.parametrize("layer", LAYERS)
def test_delete_and_upsert_of_a_key_inside_one_memtable_keep_their_order(
    table: Any, layer: Layer
) -> None:
    """#6881: of a tombstone and a row in one MemTable the later one counts."""
    with table.writer() as writer:
        writer.delete(keys(1))
        writer.upsert(rows((1, 10), (2, 20)))
        writer.delete(keys(2))
        layer(writer)
        assert get(table, 1, 2) == {1: 10}
        assert select(table, "id < 3") == {0: 0, 1: 10}


def test_a_bloom_filter_s_false_positive_loses_no_row(table: Any) -> None:
    """#6856: with filters that always say "maybe", every row is still there."""

    def maybe(self: Any, batch: Any) -> Any:
        return np.ones(len(batch), dtype=np.bool_)

    with table.writer() as writer:
        for n in (1, 2, 3):
            writer.upsert(rows((n, n * 10)))
            writer.flush()
        with patch.object(LanceSource, "might_contain", maybe):
            expected = {0: 0, 1: 10, 2: 20, 3: 30, **{i: i for i in range(4, 10)}}
            assert get(table, *range(12)) == expected
            assert select(table) == expected


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("where", ["", "n >= 0", "id < 100"])
def test_limit_returns_as_many_rows_as_there_are(table: Any, layer: Layer, where: str) -> None:
    """#7916: the limit was filled with rows that the deduplication dropped afterwards."""
    with table.writer() as writer:
        writer.upsert(rows(*((i, i + 100) for i in range(8))))
        layer(writer)
        writer.delete(keys(0, 1, 2))
        layer(writer)
        live = {**{i: i + 100 for i in range(3, 8)}, 8: 8, 9: 9}
        for limit in range(10):
            found = select(table, where, limit)
            assert len(found) == min(limit, len(live))
            assert found.items() <= live.items()
            direct = table.scan(filter=where or None, limit=limit).read_all()
            assert direct.num_rows == min(limit, len(live))


@pytest.mark.parametrize("where", ["id IN (3, 4, 5, 6)", "id = 3 OR id = 4", "n > 2"])
def test_limit_is_no_more_than_asked_for_in_any_plan(table: Any, where: str) -> None:
    """#7916 the other way: a lookup of several keys does not limit its rows itself."""
    with table.writer() as writer:
        writer.upsert(rows((3, 33)))
        for limit in range(4):
            expected = min(limit, table.scan(filter=where).read_all().num_rows)
            assert table.scan(filter=where, limit=limit).read_all().num_rows == expected
            assert len(select(table, where, limit)) == expected


def test_limit_holds_over_all_parts_of_the_base_table(table: Any, uri: str) -> None:
    for start in (100, 200, 300, 400):
        lance.write_dataset(rows(*((start + i, 0) for i in range(20))), uri, mode="append")
    for limit in (0, 1, 15, 30):
        assert table.scan(limit=limit).read_all().num_rows == limit
        assert table.scan(filter="n = 0", limit=limit).read_all().num_rows == limit


def test_limit_is_filled_when_the_first_fragments_are_all_stale(table: Any, uri: str) -> None:
    """#7916, over several fragments of the base table."""
    for start in (100, 200, 300):
        lance.write_dataset(rows(*((start + i, 0) for i in range(20))), uri, mode="append")
    with table.writer() as writer:
        writer.delete(keys(*range(10), *range(100, 120), *range(200, 220)))
        assert set(select(table, "", 20)) == set(range(300, 320))
        assert len(select(table, "n = 0", 5)) == 5


def test_a_deleted_row_does_not_come_back(table: Any, uri: str) -> None:
    """#6653: after the flush, after older generations, after the merge, after a re-open."""
    with table.writer() as writer:
        writer.upsert(rows((1, 10), (50, 50)))
        writer.flush()
        writer.delete(keys(1, 2, 50))
        gone = {i: i for i in range(10) if i not in (1, 2)}
        assert select(table) == gone
        writer.flush()
        assert select(table) == gone
        assert get(table, 1, 2, 50) == {}
        (region_id,) = manifests(uri)
        for _ in range(2):
            assert merge_one(uri, region_id, ["id"]) is not None
            assert select(table) == gone
            assert get(table, 1, 2, 50) == {}
    assert select(mw.open_table(uri)) == gone


def test_rows_are_newest_right_after_a_flush(table: Any) -> None:
    """#7067, #6834: a reader that had opened the older generations kept returning their rows."""
    with table.writer() as writer:
        for n in range(1, 15):
            writer.upsert(rows((1, n), (n % 10, -n)))
            before = select(table)
            writer.flush()
            assert select(table) == before
            assert get(table, 1, n % 10) == {k: before[k] for k in {1, n % 10}}


def test_an_older_handle_does_not_return_merged_generations_over_a_newer_base(
    table: Any, uri: str
) -> None:
    """#8262, as a reader sees it: progress belongs to the base version that is read."""
    with table.writer() as writer:
        writer.upsert(rows((1, 10)))
        writer.flush()
        older = mw.open_table(uri)
        assert get(older, 1) == {1: 10}
        (region_id,) = manifests(uri)
        merge_one(uri, region_id, ["id"])
        # Somebody changes the merged row in the base table itself.
        lance.dataset(uri).update({"n": "77"}, where="id = 1")
        assert get(older, 1) == {1: 77}
        assert select(older, "id = 1") == {1: 77}


def test_a_merge_through_the_key_s_index_updates_rows(table: Any, uri: str) -> None:
    """#7596: a merge_insert that used the index reported success and updated nothing."""
    flush_rows(table, rows((1, 10), (60, 60)))
    (region_id,) = manifests(uri)
    merge_one(uri, region_id, ["id"])
    base = lance.dataset(uri).to_table(filter="id IN (1, 60)")
    assert sorted(base["n"].to_pylist()) == [10, 60]
    assert get(table, 1, 60) == {1: 10, 60: 60}
