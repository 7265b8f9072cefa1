"""Fuzzy matching: the tokens of an index within an edit distance of a token of a query.

The distance is Levenshtein's over characters (Unicode scalar values), as in Lance.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
from lance.lance import tokenize

Characters = npt.NDArray[np.uint32]


def automatic_distance(token: str) -> int:
    """The distance that fits a token's length: 0 up to two characters, 1 up to five, else 2."""
    return 0 if len(token) <= 2 else 1 if len(token) <= 5 else 2


def plain_tokens(text: str) -> list[str]:
    """The tokens of a fuzzy query: what lies between spaces and punctuation, as it was written.

    As in Lance: no analyzer has a say in it, so that stop words count and case is a difference.
    """
    tokens = tokenize(
        text,
        base_tokenizer="simple",
        max_token_length=None,
        lower_case=False,
        stem=False,
        remove_stop_words=False,
        ascii_folding=False,
    )
    return [token.text for token in tokens]


class Vocabulary:
    """Different tokens by their length, as matrices of characters: one row a token."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._matrices = _matrices(tokens)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(matrix.nbytes for matrix in self._matrices.values())

    def extended(self, tokens: Iterable[str]) -> Vocabulary:
        """With further tokens; what does not change is shared."""
        whole = Vocabulary(())
        whole._matrices = dict(self._matrices)
        for length, more in _matrices(tokens).items():
            before = whole._matrices.get(length)
            whole._matrices[length] = more if before is None else np.concatenate([before, more])
        return whole

    def near(self, token: str, distance: int, prefix_length: int) -> set[str]:
        """The tokens at most `distance` away whose first `prefix_length` characters are those of
        `token` (all of them, where it is shorter)."""
        asked = np.array([token]).view(np.uint32)
        prefix = asked[:prefix_length]
        found: set[str] = set()
        for length, matrix in self._matrices.items():
            if abs(length - len(asked)) > distance or length < len(prefix):
                continue
            rows = matrix[(matrix[:, : len(prefix)] == prefix).all(axis=1)]
            rows = rows[_distances(rows, asked) <= distance]
            found.update(np.ascontiguousarray(rows).view(f"U{length}").ravel().tolist())
        return found


def _matrices(tokens: Iterable[str]) -> dict[int, Characters]:
    by_length: defaultdict[int, list[str]] = defaultdict(list)
    for token in tokens:
        by_length[len(token)].append(token)
    return {
        length: np.array(words, f"U{length}").view(np.uint32).reshape(len(words), length)
        for length, words in by_length.items()
        if length
    }


def _distances(words: Characters, asked: Characters) -> npt.NDArray[np.int32]:
    """The edit distance of each row of `words` to `asked`: the usual table, a column at a time,
    each cell a vector over all words."""
    row = [np.full(len(words), place, np.int32) for place in range(len(asked) + 1)]
    for column in range(words.shape[1]):
        letters = words[:, column]
        diagonal, row[0] = row[0], row[0] + 1
        for place, letter in enumerate(asked, start=1):
            changed = diagonal + (letters != letter)
            diagonal = row[place]
            row[place] = np.minimum(np.minimum(row[place], row[place - 1]) + 1, changed)
    return row[-1]
