"""Messages are short, and shortening them takes no memory to speak of."""

from __future__ import annotations

import tracemalloc

import pytest

from exec_nodes.base.brief import brief


@pytest.mark.parametrize("quote", ["'", '"', ""])
def test_a_value_of_megabytes_is_cut_within_its_own_size(quote: str) -> None:
    text = f"column 'n': {quote}{'9' * 3_000_000}{quote} is not an int64"
    tracemalloc.start()
    try:
        shown = brief(text)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert shown.startswith("column 'n': ")
    assert shown.endswith("is not an int64")
    assert len(shown) <= 1_000
    assert most < 2 * len(text)
