"""Random histories of texts: after each step a search finds what one index over the live rows does.

The rows above the k-th score are those of a fresh Lance index and of bm25s, scores are within
3e-6, and the statistics are exact (rules of correctness, 4). A control that scores every source by
its own statistics fails the same test.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.search.text_history import TextHistory, globally, locally

SOAK = int(os.environ.get("MEMWAL_SOAK", "1"))
ANALYZERS: dict[str, dict[str, Any]] = {
    "english": {"base_tokenizer": "simple", "stem": True, "remove_stop_words": True},
    "plain": {"base_tokenizer": "simple", "stem": False, "remove_stop_words": True},
    "icu": {"base_tokenizer": "icu", "stem": False, "remove_stop_words": True},
    "code": {"analyzer": "code", "split_identifiers": True, "preserve_original": True},
}


class Checked(TextHistory):
    def compare(self) -> None:
        super().compare()
        self.check_statistics()


@pytest.mark.parametrize("number", range(2 * SOAK))
@pytest.mark.parametrize("analyzer", ANALYZERS)
def test_a_search_finds_what_one_index_over_the_live_rows_does(
    number: int, analyzer: str, tmp_path: Path
) -> None:
    seed = f"texts {analyzer} {number}"
    Checked(seed, str(tmp_path / "table"), ANALYZERS[analyzer], globally).run(25)


@pytest.mark.parametrize("number", range(3))
def test_scores_by_statistics_of_each_source_fail_the_same_test(
    number: int, tmp_path: Path
) -> None:
    history = TextHistory(f"control {number}", str(tmp_path / "table"), ANALYZERS["plain"], locally)
    history.compare()  # one source: its statistics are those of the table
    with pytest.raises(AssertionError, match="score"):
        history.run(25)
    history.close()
