from __future__ import annotations

from collections.abc import Callable, Hashable
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.keys.hash_index import KeyIndex
from exec_nodes.keys.keys import KeyColumn, key_values

keys = st.integers(0, 6)


def columns(numbers: list[int], kind: pa.DataType) -> list[KeyColumn]:
    """Key columns of which one has this type."""
    column = pa.array(numbers, pa.int32()).cast(kind)
    return [column, column] if pa.types.is_boolean(kind) else [column]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(keys, max_size=8), min_size=1, max_size=20),
    st.sampled_from([pa.int64(), pa.uint8(), pa.date32(), pa.string(), pa.bool_()]),
    st.randoms(use_true_random=False),
)
def test_every_prefix_is_answered_as_if_nothing_came_later(
    batches: list[list[int]], kind: pa.DataType, order: Random
) -> None:
    """In any order of questions, of which some are answered before the rows are indexed."""
    index, rows = KeyIndex(), list[Hashable]()
    asked = list(dict.fromkeys(key_values(columns(list(range(7)), kind))))
    questions: list[Callable[[], None]] = []

    def ask(below: int) -> None:
        prefix = rows[:below]
        newest = {key: place for place, key in enumerate(prefix)}
        expected = [newest.get(key, -1) for key in asked]
        superseded = [p for p, key in enumerate(prefix) if newest[key] != p]
        whole = [
            lambda: index.last_of(asked, below).tolist() == expected,
            lambda: index.superseded(below).tolist() == superseded,
        ]
        single = [
            lambda key=key, place=place: index.last(key, below) == place
            for key, place in zip(asked, expected, strict=True)
        ]
        questions.extend(order.choices([*single, *whole], weights=[20] * len(single) + [1, 1], k=3))

    ask(0)
    for batch in batches:
        added = columns(batch, kind)
        index.append(added)
        rows += key_values(added)
        ask(len(rows))
        order.shuffle(questions)
        for question in [questions.pop() for _ in range(order.randrange(len(questions)))]:
            assert question()
    assert all(question() for question in questions)


def test_it_grows_beyond_its_first_capacity() -> None:
    index = KeyIndex()
    index.append([pa.array(range(5000))])
    index.append([pa.array([4999, 0])])
    assert len(index) == 5002
    assert index.last(4999, 5002) == 5000
    assert index.last(4999, 5000) == 4999
    assert index.superseded(5002).tolist() == [0, 4999]
    assert 17 in index
    assert -1 not in index


def test_a_few_lookups_of_integers_are_answered_before_rows_are_indexed() -> None:
    index = KeyIndex()
    for keys in ([1, 2], [2, 3], [3, 2]):
        index.append([pa.array(keys)])
    assert (index.last(2, 6), index.last(2, 4), index.last(2, 2), index.last(7, 6)) == (5, 2, 1, -1)
    assert (len(index), index.waiting) == (6, 6)
    while index.waiting:
        assert index.last(3, 6) == 4
    index.append([pa.array([9])])
    assert (index.last(9, 7), index.waiting) == (6, 1)
    assert index.superseded(7).tolist() == [1, 2, 3]
    assert index.waiting == 0


@pytest.mark.parametrize(("kind", "pieces"), [(pa.string(), 1), (pa.bool_(), 1), (pa.int64(), 17)])
def test_other_keys_and_many_pieces_are_indexed_by_the_first_lookup(
    kind: pa.DataType, pieces: int
) -> None:
    index = KeyIndex()
    for _ in range(pieces):
        index.append(columns([1], kind))
    (key,) = key_values(columns([1], kind))
    assert index.last(key, pieces) == pieces - 1
    assert index.waiting == 0
