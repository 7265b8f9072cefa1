"""Scans and lookups that returned stale rows, lost rows, or returned too few."""

from __future__ import annotations

from typing import Any

import lance
import pytest

import memwal_sql as mw
from tests.model.merging import manifests, merge_one
from tests.model.pairs import get, keys, rows, select


@pytest.fixture
def table(uri: str) -> Any:
    """Keys 0 to 9 with n = key in the base table, one region."""
    lance.write_dataset(rows(*((i, i) for i in range(10))), uri)
    return mw.enable(uri, primary_key="id")


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
