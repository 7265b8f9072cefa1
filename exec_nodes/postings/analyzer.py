"""Tokenizes the texts of a column as the base table's index does, through Lance."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from lance.lance import tokenize

from exec_nodes.base.errors import UnsupportedError
from exec_nodes.postings.protocol import Lengths

# Lance's defaults for text; a description or a file of an index holds all of them.
DEFAULTS: Mapping[str, object] = {
    "base_tokenizer": "simple",
    "language": "English",
    "max_token_length": 40,
    "lower_case": True,
    "stem": True,
    "remove_stop_words": True,
    "custom_stop_words": None,
    "ascii_folding": True,
    "min_ngram_length": 3,
    "max_ngram_length": 3,
    "prefix_only": False,
    "split_identifiers": False,
    "split_on_numerics": False,
    "preserve_original": False,
    "index_operators": False,
}
# The name of an analyzer, and of the tokenizer that Lance stores for it.
_CODE = "code"
# Tokenizers that split at a blank whatever stands around it.
_SPLIT_AT_BLANKS = ("simple", "whitespace")
# The number of characters tokenized at once: a call of Lance costs as much as a short text.
_CHARACTERS = 1 << 16
# The tokens of longer queries are not kept.
_KEPT_TEXT = 1 << 10


@dataclass(frozen=True, slots=True)
class Analyzer:
    """The tokenizer and its filters; equal analyzers give equal tokens.

    Attributes:
        parameters: every parameter of `DEFAULTS`, by name.
    """

    parameters: tuple[tuple[str, object], ...]

    @classmethod
    def of(cls, parameters: Mapping[str, object]) -> Analyzer:
        """The analyzer of an index, whose `parameters` are as its description or its file has them;
        those that say nothing of tokens are ignored.

        Raises UnsupportedError for formats other than plain text, such as JSON.
        """
        kind = parameters.get("lance_tokenizer")
        if kind not in (None, "text") or parameters.get("document_granularity", "row") != "row":
            raise UnsupportedError(
                f"full-text indexes with lance_tokenizer={kind!r} and document_granularity="
                f"{parameters.get('document_granularity')!r} can't be searched: index whole texts"
            )
        if parameters.get("analyzer") == _CODE:
            parameters = {**parameters, "base_tokenizer": _CODE}
        chosen = [(name, parameters.get(name, default)) for name, default in DEFAULTS.items()]
        return cls(tuple([(n, tuple(v) if isinstance(v, list) else v) for n, v in chosen]))

    def tokens(self, text: str) -> list[str]:
        """The tokens of a text in order, repetitions kept."""
        return [token.text for token in self._tokenize(text)]

    def positions(self, text: str) -> list[tuple[str, int]]:
        """As `tokens`, with the position of each, see `TextIndex.positions`."""
        return [(token.text, token.position) for token in self._tokenize(text)]

    def query_words(self, text: str) -> Sequence[tuple[str, int]]:
        """As `positions`, for a query's text, which each part of a search asks for again."""
        return (_query_words if len(text) <= _KEPT_TEXT else Analyzer.positions)(self, text)

    def tokens_of(self, texts: pa.Array) -> tuple[list[str], Lengths]:
        """The tokens of all texts, one text after the other, and how many each of them has.

        Null has none. Equals `tokens` of each, in about half the time.
        """
        values = texts.to_pylist()
        blank = _blank(self) if len(values) > 1 else None
        tokens: list[str] = []
        lengths: list[int] = []
        for part in _parts(values) if blank else ([value] for value in values):
            together = None if blank is None else self._together(part, *blank)
            if together is None:
                # An empty text may be a token, null never is.
                each = [[] if value is None else self.tokens(value) for value in part]
                together = [token for tokens in each for token in tokens], list(map(len, each))
            tokens += together[0]
            lengths += together[1]
        return tokens, np.array(lengths, np.int32)

    def _together(
        self, texts: Sequence[str | None], word: str, mark: str
    ) -> tuple[list[str], list[int]] | None:
        """Tokens and lengths of several texts from one call, told apart by `word`, which becomes
        the token `mark`; None if a text has that token too."""
        tokens = self.tokens(f" {word} ".join(text or "" for text in texts))
        if tokens.count(mark) != len(texts) - 1:
            return None
        lengths, start = [], 0
        for _ in range(len(texts) - 1):
            end = tokens.index(mark, start)
            lengths.append(end - start)
            start = end + 1
        lengths.append(len(tokens) - start)
        return [token for token in tokens if token != mark], lengths

    def _tokenize(self, text: str) -> list[Any]:
        settings: dict[str, Any] = dict(self.parameters)
        words = settings["custom_stop_words"]
        settings["custom_stop_words"] = None if words is None else list(words)
        tokens: list[Any] = tokenize(text, **settings)
        return tokens


@lru_cache(maxsize=256)
def _query_words(analyzer: Analyzer, text: str) -> Sequence[tuple[str, int]]:
    return tuple(analyzer.positions(text))


@lru_cache(maxsize=64)
def _blank(analyzer: Analyzer) -> tuple[str, str] | None:
    """A word that no text has, and the only token it becomes; None if the analyzer can't tell words
    apart by blanks, or drops it."""
    if dict(analyzer.parameters)["base_tokenizer"] not in _SPLIT_AT_BLANKS:
        return None
    word = "".join(chr(ord("a") + int(digit, 16)) for digit in uuid.uuid4().hex[:12])
    tokens = analyzer.tokens(word)
    return (word, tokens[0]) if len(tokens) == 1 else None


def _parts(values: Sequence[str | None]) -> list[Sequence[str | None]]:
    """Runs of texts of about `_CHARACTERS` each."""
    parts: list[Sequence[str | None]] = []
    start = size = 0
    for end, value in enumerate(values, 1):
        size += len(value or "")
        if size >= _CHARACTERS:
            parts.append(values[start:end])
            start, size = end, 0
    return [*parts, values[start:]] if start < len(values) else parts


def automatic_distance(token: str) -> int:
    """The distance that fits a token's length: 0 up to two characters, 1 up to five, else 2."""
    return 0 if len(token) <= 2 else 1 if len(token) <= 5 else 2


def plain_tokens(text: str) -> list[str]:
    """The tokens of a fuzzy query: the parts between spaces and punctuation, unchanged.

    As in Lance, no analyzer is applied, so stop words count and case matters.
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
