"""The tokens near a token, against an edit distance that is computed one pair at a time."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from exec_nodes.text.postings.fuzzy import Vocabulary

ALPHABET = "abcéñ字語🙂"


@cache
def distance(one: str, other: str) -> int:
    if not one or not other:
        return len(one) + len(other)
    changed = distance(one[1:], other[1:]) + (one[0] != other[0])
    return min(changed, distance(one[1:], other) + 1, distance(one, other[1:]) + 1)


@pytest.mark.parametrize("most", [0, 1, 2, 3, 9])
@pytest.mark.parametrize("prefix", [0, 1, 2, 8])
def test_near_finds_every_token_within_the_distance_and_no_other(most: int, prefix: int) -> None:
    rng = Random(f"{most} {prefix}")
    tokens = {"".join(rng.choices(ALPHABET, k=rng.randint(1, 6))) for _ in range(300)}
    vocabulary = Vocabulary(tokens)
    for _ in range(20):
        asked = "".join(rng.choices(ALPHABET, k=rng.randint(1, 6)))
        expected = {
            token
            for token in tokens
            if distance(asked, token) <= most and token.startswith(asked[:prefix])
        }
        assert vocabulary.near(asked, most, prefix) == expected


def test_an_empty_vocabulary_has_nothing_near() -> None:
    assert Vocabulary([]).near("log", 2, 0) == set()
