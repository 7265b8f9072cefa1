from __future__ import annotations

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.keys.hash_index import KeyIndex

keys = st.integers(0, 6)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(keys, max_size=8), min_size=1, max_size=8))
def test_every_prefix_is_answered_as_if_nothing_came_later(batches: list[list[int]]) -> None:
    index, bounds, rows = KeyIndex(), [0], []
    for batch in batches:
        index.append(len(batch), partial(list, batch))
        rows += batch
        bounds.append(len(rows))
    for below in bounds:
        prefix = rows[:below]
        newest = {key: place for place, key in enumerate(prefix)}
        asked = list(range(7))
        expected = [newest.get(key, -1) for key in asked]
        assert [index.last(key, below) for key in asked] == expected
        assert index.last_of(asked, below).tolist() == expected
        superseded = [p for p, key in enumerate(prefix) if newest[key] != p]
        assert index.superseded(below).tolist() == superseded


def test_it_grows_beyond_its_first_capacity() -> None:
    index = KeyIndex()
    index.append(5000, lambda: list(range(5000)))
    index.append(2, lambda: [4999, 0])
    assert len(index) == 5002
    assert index.last(4999, 5002) == 5000
    assert index.last(4999, 5000) == 4999
    assert index.superseded(5002).tolist() == [0, 4999]
    assert 17 in index
    assert -1 not in index


def test_rows_are_indexed_in_order_and_only_when_a_key_is_asked_for() -> None:
    asked: list[int] = []

    def keys(number: int, values: list[int]) -> list[int]:
        asked.append(number)
        return values

    index = KeyIndex()
    index.append(2, lambda: keys(0, [1, 2]))
    index.append(2, lambda: keys(1, [2, 3]))
    index.append(2, lambda: keys(2, [3, 2]))
    assert (len(index), index.waiting, asked) == (6, 6, [])
    assert index.last(2, 6) == 5
    assert index.last(2, 4) == 2
    assert (index.waiting, asked) == (0, [0, 1, 2])
    index.append(1, lambda: keys(3, [9]))
    assert index.waiting == 1
    assert index.superseded(7).tolist() == [1, 2, 3]
    assert (index.waiting, asked) == (0, [0, 1, 2, 3])
