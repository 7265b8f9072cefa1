"""Phrases with slop: every document that has the words in order and near enough, and no other."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

import pyarrow as pa
from lance import query as lance_query

from exec_nodes.text.query.tree import Phrase
from tests.exec_nodes.text.searching import search, sources_of
from tests.model.ranking import LanceRanking

ANALYZER = {"base_tokenizer": "simple", "stem": False, "remove_stop_words": True}


def holds(text: str, phrase: str, slop: int) -> bool:
    """By trying every choice of places."""
    words = text.split()
    places = [[n for n, word in enumerate(words) if word == wanted] for wanted in phrase.split()]
    return any(
        all(1 <= after - before <= 1 + slop for before, after in pairwise(choice))
        for choice in product(*places)
    )


def test_slop_is_the_number_of_words_allowed_between_two_neighbours() -> None:
    """Lance loses documents whose words repeat: what it finds is found, and more."""
    rng = Random("slop")
    letters = "pqrx"
    texts = [" ".join(rng.choice(letters) for _ in range(rng.randint(1, 9))) for _ in range(400)]
    table = pa.table({"id": range(len(texts)), "body": texts})
    merged = LanceRanking(table, {"body": ANALYZER})
    sources = sources_of({"body": texts}, [n % 3 for n in range(len(texts))], ANALYZER)
    lost = 0
    for _ in range(60):
        phrase = " ".join(rng.choice(letters) for _ in range(rng.randint(1, 4)))
        slop = rng.choice((0, 0, 1, 2, 3))
        ours = search(Phrase(phrase, "body", slop), sources)
        assert ours.keys() == {n for n, text in enumerate(texts) if holds(text, phrase, slop)}
        theirs = merged.search(lance_query.PhraseQuery(phrase, "body", slop=slop))
        assert theirs.keys() <= ours.keys()
        assert slop or theirs.keys() == ours.keys()
        lost += len(ours) - len(theirs)
    assert lost > 0, "Lance loses none any more: compare for equality"


def test_stop_words_take_a_place_in_texts_and_in_phrases() -> None:
    texts = ["quick of the fox", "quick fox", "quick the fox", "the quick fox", "fox quick"]
    (source,) = sources_of({"body": texts}, [0] * len(texts), ANALYZER)
    table = pa.table({"id": range(len(texts)), "body": texts})
    merged = LanceRanking(table, {"body": ANALYZER})
    for phrase in ("quick fox", "quick the fox", "quick of the fox", "the quick fox", "quick of"):
        for slop in (0, 1, 2):
            ours = search(Phrase(phrase, "body", slop), [source])
            theirs = merged.search(lance_query.PhraseQuery(phrase, "body", slop=slop))
            assert ours.keys() == theirs.keys()
