"""The tokens of a query of words, as plans show them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from exec_nodes.postings.analyzer import Analyzer, plain_tokens
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


def taken_for(expression: TextExpression, analyzers: Mapping[str, Analyzer]) -> str:
    """The tokens of a query's texts, as a plan shows them: `"fox", "dog"`, and those of further
    texts after a bar."""
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
