"""The native kernels equal their numpy twins, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from exec_nodes.postings.protocol import Documents, Frequencies
from memwal_native import Postings, TokenMap, top_k
from tests.exec_nodes.text import twin
from tests.soak import SOAK

SIZE = 40_000  # more than two windows of the scoring kernel


@st.composite
def posting_lists(draw: st.DrawFn) -> tuple[Documents, Frequencies]:
    """Of any density; frequencies that take from 0 to 20 bits."""
    count = draw(st.one_of(st.integers(0, 300), st.sampled_from([128, 256, 5000])))
    span = draw(st.sampled_from([count, 10 * count, SIZE]))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    span = min(SIZE, max(count, span))
    documents = np.sort(random.choice(span, count, replace=False)).astype(np.int32)
    often = random.integers(1, 2 ** draw(st.integers(1, 20)), count).astype(np.int32)
    return documents, often


def both(documents: Documents, often: Frequencies, size: int = SIZE) -> list[Postings]:
    data, offsets = twin.packed(documents, often)
    return [
        Postings.plain(documents, often, size),
        Postings.packed(data, offsets, len(documents), size),
    ]


@given(posting_lists())
@settings(max_examples=60, deadline=None)
def test_posting_lists_come_back_as_they_were_packed(lists: tuple[Documents, Frequencies]) -> None:
    documents, often = lists
    for postings in both(documents, often):
        assert twin.decoded(postings) == (documents.tolist(), often.tolist())
        assert len(postings) == len(documents)


@given(posting_lists(), posting_lists())
@settings(max_examples=60, deadline=None)
def test_documents_are_counted_among_others(
    lists: tuple[Documents, Frequencies], wanted: tuple[Documents, Frequencies]
) -> None:
    documents, often = lists
    expected = len(np.intersect1d(documents, wanted[0]))
    for postings in both(documents, often):
        assert postings.count_among(wanted[0]) == expected


@pytest.mark.slow
@given(
    st.lists(posting_lists(), min_size=1, max_size=4),
    st.sampled_from([0, 1, 10, 1000]),
    st.integers(0, 4),
    st.floats(0, 1),
    st.integers(0, 2**32),
)
@settings(max_examples=60 * SOAK, deadline=None)
def test_the_best_documents_are_those_of_a_full_sort(
    lists: list[tuple[Documents, Frequencies]], k: int, required: int, live: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    shortest = int(random.integers(1, 50))
    lengths = random.integers(shortest, 60, SIZE).astype(np.int32)
    allowed = random.random(SIZE) < live
    weights = [np.float32(weight) for weight in 10 ** random.uniform(-2, 1, len(lists))]
    norms = np.float32(0.3), np.float32(0.9 / 35)
    expected = twin.top_k(lists, weights, lengths, allowed, k=k, required=required, norms=norms)
    for kind in (0, 1):
        documents, scores = top_k(
            [both(*one)[kind] for one in lists],
            [float(weight) for weight in weights],
            lengths,
            allowed.view(np.uint8),
            k=k,
            required=required,
            fixed=float(norms[0]),
            per_token=float(norms[1]),
            shortest=shortest,
        )
        assert np.frombuffer(documents, np.int32).tolist() == expected[0]
        assert np.frombuffer(scores, np.float32).tolist() == expected[1]


def test_all_documents_come_that_are_as_good_as_the_last_one() -> None:
    tens = np.arange(0, SIZE, 10_000, dtype=np.int32)
    ones, lengths = np.ones(4, np.int32), np.full(SIZE, 9, np.int32)
    lists = [Postings.plain(tens + np.int32(7 - shift), ones, SIZE) for shift in range(4)]
    allowed = np.ones(SIZE, np.uint8)
    for k in (1, 3, 5):
        documents, _ = top_k(
            lists,
            [1.0] * 4,
            lengths,
            allowed,
            k=k,
            required=1,
            fixed=1.0,
            per_token=1.0,
            shortest=9,
        )
        expected = sorted(int(one) + shift for one in tens for shift in range(4, 8))
        assert np.frombuffer(documents, np.int32).tolist() == expected


def test_blocks_of_another_form_are_refused() -> None:
    documents = np.arange(200, dtype=np.int32)
    data, offsets = twin.packed(documents, documents + np.int32(1))
    Postings.packed(data, offsets, 200, 200)
    with pytest.raises(ValueError, match="must ascend"):
        Postings.packed(data, offsets, 200, 199)  # a document that is not there
    for length in (0, 127, 128, 199, 201, 300):
        with pytest.raises(ValueError, match="format"):
            Postings.packed(data, offsets, length, 1000)
    for cut in (1, 5, 60):
        with pytest.raises(ValueError, match="format"):
            Postings.packed(data[:-cut], offsets, 200, 200)
    wide = data.copy()
    wide[8] = 33  # bits a number
    with pytest.raises(ValueError, match="format"):
        Postings.packed(wide, offsets, 200, 200)
    for bounds in (offsets[::-1].copy(), offsets - 1, offsets + 1):
        with pytest.raises(ValueError, match="format"):
            Postings.packed(data, bounds, 200, 200)


@given(st.binary(min_size=0, max_size=700), st.integers(0, 300))
@settings(max_examples=100, deadline=None)
def test_any_bytes_are_a_posting_list_or_a_value_error(data: bytes, length: int) -> None:
    count = -(-length // twin.BLOCK)
    offsets = np.linspace(0, len(data), count + 1).astype(np.int64)
    try:
        postings = Postings.packed(np.frombuffer(data, np.uint8), offsets, length, 1 << 31)
    except ValueError:
        return
    held, _ = twin.decoded(postings)
    assert held == sorted(set(held))


def test_arrays_that_do_not_fit_are_refused() -> None:
    held = np.array([3, 1], np.int32)
    with pytest.raises(ValueError, match="must ascend"):
        Postings.plain(held, held, 10)
    with pytest.raises(ValueError, match="must have a frequency"):
        Postings.plain(held[:1], held, 10)
    with pytest.raises(ValueError):
        TokenMap(b"no transducer")
    one = Postings.plain(held[:1], held[:1], 10)
    lengths, allowed = np.ones(10, np.int32), np.ones(9, np.uint8)
    with pytest.raises(ValueError, match="the same length"):
        top_k([one], [1.0], lengths, allowed, k=1, required=1, fixed=1.0, per_token=1.0, shortest=1)
