"""Queries over several sources find what Lance finds in one index over the same rows."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from lance import query as lance_query

from exec_nodes.text.query.tree import Boolean, Boost, Match, Operator, Phrase
from tests.each import each
from tests.exec_nodes.text.searching import Source, search, sources_of
from tests.exec_nodes.text.trees import COLUMNS, random_combined, random_query, random_text
from tests.model.ranking import TOLERANCE, LanceRanking, Ranking, check_ranking
from tests.soak import SOAK

SIMPLE: dict[str, Any] = {
    "base_tokenizer": "simple",
    "stem": False,
    "remove_stop_words": True,
    "ascii_folding": False,
}
ANALYZERS = {
    "stop words": SIMPLE,
    "stemmed and folded": {**SIMPLE, "stem": True, "ascii_folding": True},
    "German": {**SIMPLE, "language": "German", "stem": True},
    "case kept": {
        **SIMPLE,
        "base_tokenizer": "whitespace",
        "lower_case": False,
        "remove_stop_words": False,
    },
    "n-grams": {
        **SIMPLE,
        "base_tokenizer": "ngram",
        "remove_stop_words": False,
        "min_ngram_length": 2,
        "max_ngram_length": 3,
    },
    "icu": {**SIMPLE, "base_tokenizer": "icu"},
    # Several tokens share a position: they are spellings of one word.
    "code": {"analyzer": "code", "split_identifiers": True, "preserve_original": True},
}


def random_sources(
    rng: Random, analyzer: dict[str, Any], rows: int
) -> tuple[list[Source], LanceRanking]:
    """Rows of random texts in one to eight sources, and the same in one Lance table."""
    texts = {column: [random_text(rng) for _ in range(rows)] for column in COLUMNS}
    parts = rng.choice((1, 2, 4, 8))
    sources = sources_of(texts, [rng.randrange(parts) for _ in range(rows)], analyzer)
    columns = {column: pa.array(values, pa.string()) for column, values in texts.items()}
    table = pa.table({"id": pa.array(range(rows), pa.int64()), **columns})
    return sources, LanceRanking(table, dict.fromkeys(COLUMNS, analyzer))


@pytest.mark.slow
@each("analyzer", ANALYZERS.values())
@each("rows", [0, 1, 60, 200])
def test_random_queries_find_the_rows_and_scores_of_one_lance_index(
    analyzer: dict[str, Any], rows: int
) -> None:
    rng = Random(f"{rows} {sorted(analyzer)}")
    sources, merged = random_sources(rng, analyzer, rows)
    for _ in range(4 * SOAK):
        ours, theirs = random_query(rng)
        check_tree(search(ours, sources), merged.search(theirs))


def check_tree(found: Ranking, expected: Ranking) -> None:
    """Trees add and subtract boosted scores of many tokens: the error grows with the scores."""
    largest = max((abs(score) for score in expected.values()), default=0.0)
    check_ranking(found, expected, tolerance=TOLERANCE * max(1.0, largest))


def test_random_combined_fields_queries_find_the_rows_and_scores_of_lance() -> None:
    rng = Random("combined fields")
    sources, merged = random_sources(rng, SIMPLE, 80)
    for _ in range(24 * SOAK):
        ours, theirs = random_combined(rng)
        check_tree(search(ours, sources), merged.search(theirs))


@pytest.mark.slow
def test_a_limit_gives_the_first_rows_of_the_whole_result() -> None:
    rng = Random("limit")
    sources, _ = random_sources(rng, SIMPLE, 300)
    for _ in range(20 * SOAK):
        ours, _ = random_query(rng, rng.choice((COLUMNS, COLUMNS[1:])))
        everything = list(search(ours, sources).items())
        for k in (0, 1, 3, 10, 1000):
            assert search(ours, sources, k) == dict(everything[:k])


def test_a_phrase_with_a_limit_reads_few_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["write ahead log"] * 10
    texts += ["write ahead log record"] * 5000 + ["ahead write log record"] * 5000
    (source,) = sources_of({"body": texts}, [0] * len(texts), SIMPLE)
    read = []
    whole = source["body"].texts
    monkeypatch.setattr(source["body"], "texts", lambda docs: read.append(len(docs)) or whole(docs))
    assert list(search(Phrase("write ahead", "body"), [source], 10)) == list(range(10))
    assert sum(read) <= 100


@each("k", [1, 5, 20])
def test_the_best_rows_of_a_phrase_are_found_behind_many_that_lack_it(k: int) -> None:
    """The shortest texts score best and hold the words in another order."""
    texts = ["ahead write"] * 500 + ["write ahead" + " log" * (n % 7 + 1) for n in range(30)]
    (source,) = sources_of({"body": texts}, [0] * len(texts), SIMPLE)
    phrase = Phrase("write ahead", "body")
    wanted = Boolean(should=(Match("log", "body", boost=0.01), phrase))
    for query in (phrase, wanted):
        everything = list(search(query, [source]).items())
        assert len(everything) == 30
        assert list(search(query, [source], k).items()) == everything[:k]


@pytest.mark.slow
def test_the_same_rows_in_1_2_4_or_8_sources_give_identical_results() -> None:
    rng = Random("sources")
    texts = {column: [random_text(rng) for _ in range(120)] for column in COLUMNS}
    layouts = [
        sources_of(texts, [rng.randrange(parts) for _ in range(120)], SIMPLE)
        for parts in (1, 2, 4, 8)
    ]
    for _ in range(30 * SOAK):
        ours, _ = random_query(rng)
        first, *others = [search(ours, sources) for sources in layouts]
        assert all(other == first for other in others)


@pytest.mark.slow
def test_stale_rows_are_not_found_and_change_no_score() -> None:
    rng = Random("stale")
    texts = {column: [random_text(rng) for _ in range(120)] for column in COLUMNS}
    parts = [rng.randrange(3) for _ in range(120)]
    dead = sorted(rng.sample(range(120), 50))
    with_stale = sources_of(texts, parts, SIMPLE)
    only_live = {
        column: [None if n in dead else text for n, text in enumerate(values)]
        for column, values in texts.items()
    }
    without = sources_of(only_live, parts, SIMPLE)
    for _ in range(30 * SOAK):
        ours, _ = random_query(rng)
        assert search(ours, with_stale, dead=dead) == search(ours, without)


def test_tokens_of_stale_rows_use_up_no_fuzzy_expansion() -> None:
    """`max_expansions` is a budget over the live corpus, whatever was there before."""
    (source,) = sources_of({"body": ["loga", "logb", "logc"]}, [0, 0, 0], SIMPLE)
    query = Match("log", "body", fuzziness=1, max_expansions=1)
    assert list(search(query, [source])) == [0]
    assert list(search(query, [source], dead=[0])) == [1]


def found(query: Any, texts: list[str | None]) -> Ranking:
    return search(query, sources_of({"body": texts}, [0] * len(texts), SIMPLE))


def test_minimum_should_match_counts_the_words_of_the_text() -> None:
    texts = ["a1 b1 c1", "a1 b1", "a1 a1 a1", "c1", None]
    rows = {
        minimum: sorted(found(Match("a1 b1 c1", "body", minimum_should_match=minimum), texts))
        for minimum in (1, 2, 3, 4)
    }
    assert rows == {1: [0, 1, 2, 3], 2: [0, 1], 3: [0], 4: []}
    # A word that the text has twice counts twice.
    assert sorted(found(Match("a1 a1 b1", "body", minimum_should_match=2), texts)) == [0, 1, 2]
    assert found(Match("a1 b1 c1", "body", minimum_should_match=3), texts) == found(
        Match("a1 b1 c1", "body", Operator.AND), texts
    )


def test_minimum_should_match_counts_the_clauses_of_a_boolean_query() -> None:
    texts = ["a1 b1 c1", "a1 b1", "a1", "b1 c1"]
    a, b, c = (Match(text, "body") for text in ("a1", "b1", "c1"))
    assert sorted(found(Boolean(should=(a, b, c), minimum_should_match=2), texts)) == [0, 1, 3]
    assert sorted(found(Boolean((a,), (b, c), minimum_should_match=2), texts)) == [0]
    assert sorted(found(Boolean((a,), (b, c)), texts)) == [0, 1, 2]
    assert sorted(found(Boolean(should=(a,), minimum_should_match=2), texts)) == []


def test_automatic_fuzziness_goes_by_the_length_of_a_word() -> None:
    texts = ["ab", "ac", "abc", "abd", "abcdef", "abcdxy", "abcxyz"]
    rows = {
        word: sorted(found(Match(word, "body", fuzziness=None), texts))
        for word in ("ab", "abc", "abcdef")
    }
    assert rows == {"ab": [0], "abc": [0, 1, 2, 3], "abcdef": [4, 5]}


@each("text", ["", "   ", "the of a", "...!?", "\N{ZERO WIDTH SPACE}"])
def test_a_query_without_tokens_finds_nothing(text: str) -> None:
    texts = ["write ahead log", "the of a", "", None]
    everything = Match("write", "body")
    nothing = Match(text, "body")
    assert found(nothing, texts) == {}
    assert found(Match(text, "body", Operator.AND), texts) == {}
    assert found(Match(text, "body", minimum_should_match=1), texts) == {}
    assert found(Phrase(text, "body"), texts) == {}
    assert found(Boolean((everything, nothing)), texts) == {}
    assert found(Boolean((everything,), must_not=(nothing,)), texts) == found(everything, texts)
    assert found(Boost(everything, nothing), texts) == found(everything, texts)


@pytest.mark.slow
def test_a_query_of_many_repeated_words_costs_no_more_than_its_different_ones() -> None:
    """A text of a million tokens may be asked for; here 12,000 take well below a second each."""
    texts = ["write ahead log", "log"]
    once = found(Match("write log log", "body"), texts)
    often = found(Match("write log log " * 4_000, "body"), texts)
    assert often.keys() == once.keys()
    assert often[0] == pytest.approx(once[0] * 4_000, rel=1e-5)


def test_lance_analyzes_no_fuzzy_query() -> None:
    """Why `fuzzy.plain_tokens` is no analyzer's: case is an edit, and stop words are words."""
    table = pa.table({"id": [0], "body": ["lances write"]})
    merged = LanceRanking(table, {"body": SIMPLE})
    for text, rows in (("Lances", 1), ("LAnces", 0), ("the lances", 0)):
        theirs = lance_query.MatchQuery(
            text, "body", fuzziness=1, operator=lance_query.FullTextOperator.AND
        )
        ours = Match(text, "body", Operator.AND, fuzziness=1)
        assert len(merged.search(theirs)) == len(found(ours, ["lances write"])) == rows


# Phrases with slop: every document that has the words in order and near enough, and no other.


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
    for _ in range(30 * SOAK):
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
