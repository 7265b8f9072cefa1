from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from exec_nodes.arrow.filter_rows import live_rows

addresses = st.one_of(st.integers(0, 30), st.integers(0, 2**64 - 1))


@given(st.lists(addresses, min_size=1, unique=True), st.sets(addresses), st.booleans())
def test_exactly_the_stale_rows_go(rows: list[int], stale: set[int], ordered: bool) -> None:
    check(sorted(rows) if ordered else rows, stale)


@given(st.integers(0, 2**63), st.integers(1, 40), st.sets(st.integers(0, 40)))
def test_a_run_of_addresses_is_no_special_case(first: int, count: int, stale: set[int]) -> None:
    rows = list(range(first, first + count))
    check(rows, {first + s for s in stale})
    check([*rows[1:], rows[0]], {first + s for s in stale})
    check([rows[0], *rows[1:-1][::-1], rows[-1]] if count > 3 else rows, {first + s for s in stale})


def check(rows: list[int], stale: set[int]) -> None:
    found = live_rows(np.array(rows, np.uint64), np.array(sorted(stale), np.uint64))
    expected = [row not in stale for row in rows]
    assert ([True] * len(rows) if found is None else found.tolist()) == expected
