"""Postings that grow with their rows equal those of a dict, whatever prefix is asked for."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pyarrow as pa
import pytest

from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.memory_postings import GrowingText, TextView

WORDS = ["apple", "banana", "cherry", "damson", "elder", "fig"]
PLAIN = Analyzer.of({"stem": False})


def some_text(random: Random) -> str | None:
    if random.random() < 0.2:
        return random.choice([None, "", "the"])
    return " ".join(random.choices(WORDS, k=random.randrange(1, 9)))


def check(view: TextView, texts: list[str | None]) -> None:
    counts = [Counter((text or "").replace("the", "").split()) for text in texts]
    assert view.lengths.tolist() == [count.total() for count in counts]
    for word in {word for count in counts for word in count}:
        assert view.near(word, 0, 0) == [word]
    for word in [*WORDS, "nothing"]:
        documents, often = view.postings(word)
        expected = [(row, count[word]) for row, count in enumerate(counts) if word in count]
        assert list(zip(documents.tolist(), often.tolist(), strict=True)) == expected


@pytest.mark.parametrize("seed", range(3))
def test_every_prefix_has_its_own_postings_while_rows_come(seed: int) -> None:
    random, text, rows, views = Random(seed), GrowingText(PLAIN, fan_in=3), [], []
    for _ in range(60):
        batch = [some_text(random) for _ in range(random.choice([0, 1, 2, 9]))]
        text.append(pa.array(batch, pa.string()))
        rows += batch
        views.append(text.view(len(rows)))
        views.append(text.view(random.randint(0, len(rows))))
    for view in views:
        check(view, rows[: len(view.lengths)])


def test_readers_that_catch_up_at_once_tokenize_each_row_once() -> None:
    text, asked = GrowingText(PLAIN), []
    rows = pa.array([f"fig {word}" for word in WORDS] * 50)

    def texts(start: int) -> list[pa.Array]:
        asked.append(start)
        return [rows.slice(start)]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: text.catch_up(len(rows), texts), range(8)))
    assert asked == [0]
    check(text.view(len(rows)), rows.to_pylist())


def test_tokens_that_come_later_are_near_too() -> None:
    text = GrowingText(PLAIN)
    for row in ("fig elder", "fig", "figs old"):
        text.append(pa.array([row]))
        found = text.view(text.rows).near("figs", 1, 0)
    assert sorted(found) == ["fig", "figs"]
