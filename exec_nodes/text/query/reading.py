"""What a query of words is taken for, for plans and for those who write it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from exec_nodes.base.errors import PlainTextWarning
from exec_nodes.base.warning import warn
from exec_nodes.text.postings.analyzer import Analyzer, plain_tokens
from exec_nodes.text.query.tree import (
    Boolean,
    Boost,
    CombinedFields,
    Match,
    MultiMatch,
    Phrase,
    TextExpression,
)

_MOST_TOKENS: Final = 20
# What other systems read in a text, and what to give for it. The texts themselves are not in the
# warnings: Python remembers each of those for ever.
_CLAUSES: Final = (
    '{"boolean": {"must": [...], "should": [...], "must_not": [...]}} of {"match": {"query": ...}}'
)
_OPERATORS: Final = (
    "AND, OR and NOT in a full-text query are words like any other: for rows with all words give "
    f'operator="AND", for more the JSON form, {_CLAUSES}'
)
_QUOTES: Final = (
    "quotation marks in a full-text query mean nothing: for words in order give the JSON form, "
    '{"phrase": {"query": ...}}'
)
_SIGNS: Final = (
    f"+ and - before words of a full-text query mean nothing: give the JSON form, {_CLAUSES}"
)
_SYNTAX: Final = (
    (re.compile(r"\S\s+(?:AND|OR|NOT)\s+\S|^\s*NOT\s+\S"), _OPERATORS),
    (re.compile(r'"[^"]*\w[^"]*"'), _QUOTES),
    (re.compile(r"(?:^|\s)[+-]\w"), _SIGNS),
)


def warn_of_syntax(text: str) -> None:
    """Warn of what looks like operators in a text that is taken for words."""
    if text.isupper():
        return  # the words of a headline
    for pattern, remedy in _SYNTAX:
        if pattern.search(text):
            warn(remedy, PlainTextWarning)


def taken_for(expression: TextExpression, analyzers: Mapping[str, Analyzer]) -> str:
    """The tokens that the texts of a query are taken for, as a plan shows them: `"fox", "dog"`, and
    those of other texts after a bar."""
    texts = dict.fromkeys(_tokens(expression, analyzers))
    return " | ".join(map(_shown, texts))


def _tokens(
    expression: TextExpression, analyzers: Mapping[str, Analyzer]
) -> Iterator[tuple[str, ...]]:
    match expression:
        case Match() if expression.fuzziness != 0:
            yield tuple(plain_tokens(expression.text))
        case Match() | Phrase():
            words = analyzers[expression.column].query_words(expression.text)
            yield tuple(token for token, _ in words)
        case MultiMatch():
            for part in expression.matches:
                yield from _tokens(part, analyzers)
        case CombinedFields():
            yield from _tokens(Match(expression.text, expression.columns[0]), analyzers)
        case Boost():
            yield from _tokens(expression.positive, analyzers)
            yield from _tokens(expression.negative, analyzers)
        case Boolean():
            for clause in (*expression.must, *expression.should, *expression.must_not):
                yield from _tokens(clause, analyzers)


def _shown(tokens: tuple[str, ...]) -> str:
    shown = [json.dumps(token, ensure_ascii=False) for token in tokens[:_MOST_TOKENS]]
    return ", ".join([*shown, "…"] if len(tokens) > _MOST_TOKENS else shown)
