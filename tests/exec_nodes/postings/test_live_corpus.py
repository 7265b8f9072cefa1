"""The statistics are exactly those of the live rows, whatever happened to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

from exec_nodes.base.columns import RowAddresses
from exec_nodes.liveness.stale_sets import PlanStale, StaleSets
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.corpus import LiveCorpus
from exec_nodes.resident.store import ResidentStore
from exec_nodes.sources.source import Source
from exec_nodes.text.scoring.open import SourceTexts
from tests.exec_nodes.text.sources import (
    WORDS,
    Texts,
    base_table,
    generation,
    memtable,
    merged,
    some_texts,
)

ANALYZER = Analyzer.of({})


def corpus_of(sources: Sequence[Source], texts: SourceTexts) -> LiveCorpus:
    """Of a base table and newer sources of one region, the base first, then newest first."""
    sets = PlanStale(sources[0], (tuple(sources[1:]),), StaleSets()).compute()
    found = zip(sources, sets, strict=True)
    return LiveCorpus([texts.of(source, "body", ANALYZER).at(stale) for source, stale in found])


def check(corpus: LiveCorpus, live: Texts) -> None:
    counts = [Counter(ANALYZER.tokens(text or "")) for text in live.values()]
    assert corpus.documents == sum(1 for count in counts if count)
    assert corpus.total_length == sum(count.total() for count in counts)
    for word in WORDS:
        tokens = ANALYZER.tokens(word)
        for token in tokens:
            expected = sum(1 for count in counts if token in count)
            assert corpus.document_frequency(token) == expected, token


@pytest.mark.parametrize("seed", range(4))
def test_statistics_are_exact_after_every_operation(seed: int, tmp_path: Path) -> None:
    random, texts = Random(seed), SourceTexts(ResidentStore())
    base = some_texts(random, range(300))
    older: list[Texts] = [base]
    newer: list[Source] = []
    sources: list[Source] = [base_table(tmp_path / "t", base, {}, max_rows_per_file=90)]
    rows: list[tuple[int, str | None]] = []
    past = []
    for step in range(12):
        batch = some_texts(random, random.sample(range(400), random.choice([1, 5, 40])), 0.2)
        rows += batch.items()
        past.append(
            ([*sources, memtable(rows, len(newer) + 1), *newer], merged(*older, dict(rows)))
        )
        check(corpus_of(past[-1][0], texts), past[-1][1])
        if step % 4 == 3:
            parameters = random.choice([None, {}])
            folder = tmp_path / f"g{len(newer)}"
            newer.insert(0, generation(folder, dict(rows), len(newer) + 1, parameters))
            older.append(dict(rows))
            rows = []
            past.append(([*sources, *newer], merged(*older)))
            check(corpus_of(past[-1][0], texts), past[-1][1])
    for snapshot, live in random.sample(past, 6):  # older ones, from the same caches
        check(corpus_of(snapshot, texts), live)


def test_a_token_is_counted_as_a_whole_once_and_then_among_the_newly_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {i: "word0 word1" if i % 2 else "word0" for i in range(100)}
    source = base_table(tmp_path / "t", base, {})
    texts, counted = SourceTexts(ResidentStore()), []
    dead: RowAddresses = np.empty(0, np.uint64)
    text = texts.of(source, "body", ANALYZER).at(dead)
    whole = type(text.counts)._count

    def spied(self: object, token: str, among: np.ndarray | None) -> int:
        counted.append(None if among is None else len(among))
        return whole(self, token, among)

    monkeypatch.setattr(type(text.counts), "_count", spied)
    assert text.document_frequency("word1") == 50
    for count in (3, 10):
        dead = np.arange(count, dtype=np.uint64)
        text = texts.of(source, "body", ANALYZER).at(dead)
        assert text.document_frequency("word1") == 50 - count // 2
        assert (text.documents, text.total_length) == (100 - count, 150 - count - count // 2)
    assert counted == [None, 0, 3, 7]
    assert text.document_frequency("word1") == 45
    assert texts.of(source, "body", ANALYZER).at(dead).live is text.live
    earlier = texts.of(source, "body", ANALYZER).at(dead[:5])
    assert earlier.document_frequency("word1") == 48
