"""The tokens near a token, against an edit distance that is computed one pair at a time."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from random import Random

import lance
import pyarrow as pa
import pytest

from exec_nodes.postings.lance_index import LancePartition
from exec_nodes.resident.store import ResidentStore
from memwal_native import TokenList
from tests.each import each

ALPHABET = "abcéñ字語🙂"
TOKENS = sorted(
    {
        "".join(random.choices(ALPHABET, k=random.randint(1, 6)))
        for random in [Random(5)]
        for _ in range(400)
    }
)
# As it is called: a token, the distance, the length of the prefix.
Near = Callable[[str, int, int], list[str]]


@cache
def distance(one: str, other: str) -> int:
    if not one or not other:
        return len(one) + len(other)
    changed = distance(one[1:], other[1:]) + (one[0] != other[0])
    return min(changed, distance(one[1:], other) + 1, distance(one, other[1:]) + 1)


def listed(tokens: list[str]) -> TokenList:
    made = TokenList()
    made.extend(tokens)
    return made


@pytest.fixture(scope="module", params=["a list", "an index of Lance"])
def near(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Near:
    """How tokens are found among `TOKENS`."""
    if request.param == "a list":
        return listed(TOKENS).near
    folder = tmp_path_factory.mktemp("index")
    dataset = lance.write_dataset(pa.table({"t": [" ".join(TOKENS)]}), folder)
    exact = dict.fromkeys(("lower_case", "stem", "remove_stop_words", "ascii_folding"), False)
    dataset.create_scalar_index("t", "INVERTED", base_tokenizer="whitespace", **exact)
    (file,) = folder.glob("_indices/*/part_*_tokens.lance")
    number = int(file.name.split("_")[1])
    partition = LancePartition((str(folder), file.parent.name), number, None, ResidentStore())
    assert partition.tokens() == sorted(TOKENS, key=str.encode)
    return partition.near


@each("most", [0, 1, 2, 3, 9])
@each("prefix", [0, 1, 2, 8])
def test_every_token_within_the_distance_is_found_and_no_other(
    near: Near, most: int, prefix: int
) -> None:
    random = Random(f"{most} {prefix}")
    for _ in range(12):
        asked = "".join(random.choices(ALPHABET, k=random.randint(1, 7)))
        expected = [
            token
            for token in TOKENS
            if distance(asked, token) <= most and token.startswith(asked[:prefix])
        ]
        assert sorted(near(asked, most, prefix)) == expected


def test_no_token_is_too_long_to_be_compared(near: Near) -> None:
    """A table of all states of the automaton has a limit, which long tokens would exceed."""
    long = "字" * 3_000
    assert near(long, 2, 0) == []
    others = [long, long[1:], long[3:], long + "a"]
    assert listed(others).near(long, 2, 0) == [long, long[1:], long + "a"]


def test_no_tokens_are_near_in_an_empty_vocabulary() -> None:
    assert listed([]).near("log", 2, 0) == []


def test_readers_of_a_growing_list_find_its_first_tokens_in_order() -> None:
    tokens, growing = [f"{number:05}" for number in range(20_000)], TokenList()

    def read(_: int) -> list[int]:
        """How many tokens were there, each time."""
        counts = [0]
        while counts[-1] < len(tokens):
            found = growing.near("00000", 5, 0)
            assert found == tokens[: len(found)]
            counts.append(len(found))
        return counts

    with ThreadPoolExecutor(4) as pool:
        reads = pool.map(read, range(4))
        for start in range(0, len(tokens), 100):
            growing.extend(tokens[start : start + 100])
        assert all(counts == sorted(counts) for counts in reads)
    assert len(growing) == len(tokens)
    assert growing.nbytes >= 5 * len(tokens)
