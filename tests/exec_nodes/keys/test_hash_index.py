from __future__ import annotations

from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.keys.hash_index import KeyIndex
from exec_nodes.keys.keys import KeyBatch, KeyColumn
from tests.model.racing import race
from tests.soak import SOAK

KINDS = [
    *(pa.int8(), pa.uint8(), pa.int16(), pa.uint16(), pa.int32(), pa.uint32(), pa.int64()),
    *(pa.uint64(), pa.bool_(), pa.date32(), pa.timestamp("us"), pa.decimal128(30, 2)),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(2)),
]
keys = st.integers(0, 6)


def columns(numbers: list[int], kind: pa.DataType) -> list[KeyColumn]:
    """Key columns of which one has this type."""
    if pa.types.is_boolean(kind):  # too few values for one column
        even = [number % 2 == 0 for number in numbers]
        return [pa.array(even, pa.bool_()), pa.array(numbers, pa.int64())]
    if kind == pa.binary(2):
        return [pa.array([b"k%d" % number for number in numbers], kind)]
    texts = pa.types.is_large_binary(kind) or pa.types.is_binary(kind)
    values = pa.array(numbers, pa.int64())
    if pa.types.is_date(kind):
        values = values.cast(pa.int32())
    return [values.cast(pa.string()).cast(kind) if texts else values.cast(kind)]


def batch(numbers: list[int], kind: pa.DataType = pa.int64()) -> KeyBatch:  # noqa: B008
    of_keys = columns(numbers, kind)
    return KeyBatch(pa.table(of_keys, [str(place) for place in range(len(of_keys))]))


@settings(max_examples=100 * SOAK, deadline=None)
@given(
    st.lists(st.lists(keys, max_size=8), min_size=1, max_size=20),
    st.sampled_from(KINDS),
    st.randoms(use_true_random=False),
)
def test_every_prefix_is_answered_as_if_nothing_came_later(
    batches: list[list[int]], kind: pa.DataType, order: Random
) -> None:
    """In any order of questions."""
    index, rows, asked = KeyIndex(), list[int](), list(range(7))
    questions: list[Callable[[], None]] = []

    def ask(below: int) -> None:
        prefix = rows[:below]
        newest = {key: place for place, key in enumerate(prefix)}
        expected = [newest.get(key, -1) for key in asked]
        superseded = [p for p, key in enumerate(prefix) if newest[key] != p]
        whole = [
            lambda: index.last_of(batch(asked, kind), below).tolist() == expected,
            lambda: index.superseded(below).tolist() == superseded,
        ]
        single = [
            lambda key=key, place=place: index.last(batch([key], kind), below) == place
            for key, place in zip(asked, expected, strict=True)
        ]
        questions.extend(order.choices([*single, *whole], k=3))

    ask(0)
    for added in batches:
        index.append(columns(added, kind))
        rows += added
        assert len(index) == len(rows)
        ask(order.randrange(len(rows) + 1))
        order.shuffle(questions)
        for question in [questions.pop() for _ in range(order.randrange(len(questions)))]:
            assert question()
    assert all(question() for question in questions)


@pytest.mark.parametrize("kind", [pa.uint64(), pa.int64()])
def test_the_ends_of_the_range_are_keys(kind: pa.DataType) -> None:
    ends = [0, 2**64 - 1, 2**63] if kind == pa.uint64() else [-(2**63), 2**63 - 1, -1]
    index = KeyIndex()
    index.append([pa.array(ends, kind)])
    for place, key in enumerate(ends):
        assert index.last(KeyBatch(pa.table({"id": pa.array([key], kind)})), 3) == place


def test_what_it_holds_is_counted() -> None:
    index, sizes = KeyIndex(), list[int]()
    for number in range(3):
        index.append([pa.array([f"{number}-{row}" * 20 for row in range(1000)])])
        sizes.append(index.nbytes)
    assert sizes == sorted(set(sizes))
    assert sizes[0] > 1000 * 80


def test_threads_read_while_rows_come() -> None:
    """Each sees the rows that were there when it began, whatever comes meanwhile."""
    index, rounds = KeyIndex(), 200

    def write() -> None:
        for number in range(rounds):
            index.append([pa.array([number, -1])])

    def read() -> None:
        while (below := len(index)) < 2 * rounds:
            assert index.last(batch([-1]), below) == below - 1
            found = index.last_of(batch(list(range(below // 2))), below)
            assert found.tolist() == list(range(0, below, 2))
            assert len(index.superseded(below)) == max(0, below // 2 - 1)

    race(write, read, read)
