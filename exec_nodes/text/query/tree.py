"""A full-text query as a tree: the query types that Lance has in Python.

A tree is checked when it is built. Scores are BM25 with the statistics of the whole live corpus
(`exec_nodes.postings.bm25`); each node says how it combines them. A leaf without tokens after
analysis (an empty text, stop words only) matches no row.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from exec_nodes.base.errors import InvalidCallError

MAX_FIELD_WEIGHT: Final = float(2**20)


class Operator(Enum):
    """The number of a text's tokens that a row must have: `OR`, one; `AND`, all."""

    OR = "OR"
    AND = "AND"


@dataclass(frozen=True, slots=True)
class Match:
    """Rows that hold tokens of `text`; the score is the sum over its tokens, times `boost`.

    A token that `text` repeats counts once for each time. With a `fuzziness` above 0 every token
    stands for the tokens of the live corpus within that edit distance, and each of them that a row
    holds adds its own score.

    Attributes:
        fuzziness: insertions, deletions and substitutions of characters allowed in a token; None
            allows 0 up to two characters, 1 up to five, 2 in longer ones.
        max_expansions: how many tokens a fuzzy query may stand for altogether: the first in the
            order of their characters, for one token of `text` after the other.
        prefix_length: how many characters at a token's start must be the same.
        minimum_should_match: how many of the text's tokens a row must hold; None leaves it to
            `operator`.
    """

    text: str
    column: str
    operator: Operator = Operator.OR
    boost: float = 1.0
    fuzziness: int | None = 0
    max_expansions: int = 50
    prefix_length: int = 0
    minimum_should_match: int | None = None

    def __post_init__(self) -> None:
        _check_text(self.text, self.column)
        _check_factor("boost", self.boost)
        if self.fuzziness is not None:
            _check_count("fuzziness", self.fuzziness, 0)
        _check_count("max_expansions", self.max_expansions, 0)
        _check_count("prefix_length", self.prefix_length, 0)
        if self.minimum_should_match is not None:
            _check_count("minimum_should_match", self.minimum_should_match, 1)

    def __str__(self) -> str:
        options = [] if self.operator is Operator.OR else [self.operator.value]
        if self.minimum_should_match is not None:
            options.append(f"minimum={self.minimum_should_match}")
        if self.fuzziness != 0:
            options.append(f"fuzziness={'auto' if self.fuzziness is None else self.fuzziness}")
        if self.boost != 1:
            options.append(f"boost={self.boost:g}")
        return _call("match", self.column, _quoted(self.text), *options)


@dataclass(frozen=True, slots=True)
class Phrase:
    """Rows that have the tokens of `text` in order; scored as `Match`.

    Between two neighbours of the text a row may have up to `slop` more positions than the text
    has. Stop words are no tokens but take a position.
    """

    text: str
    column: str
    slop: int = 0

    def __post_init__(self) -> None:
        _check_text(self.text, self.column)
        _check_count("slop", self.slop, 0)

    def __str__(self) -> str:
        options = [f"slop={self.slop}"] if self.slop else []
        return _call("phrase", self.column, _quoted(self.text), *options)


@dataclass(frozen=True, slots=True)
class MultiMatch:
    """Rows that match `text` in any of the columns; the score is the best column's.

    Every column counts for itself: with `AND` one column must hold all tokens. `boosts`, one a
    column, multiply its scores.
    """

    text: str
    columns: tuple[str, ...]
    boosts: tuple[float, ...] | None = None
    operator: Operator = Operator.OR

    def __post_init__(self) -> None:
        _check_names("multi_match", self.columns)
        for name in self.columns:
            _check_text(self.text, name)
        for boost in _check_weights("multi_match", self.columns, self.boosts):
            _check_factor("boost", boost)

    @property
    def matches(self) -> tuple[Match, ...]:
        """The same as one `Match` a column."""
        boosts = self.boosts or (1.0,) * len(self.columns)
        pairs = zip(self.columns, boosts, strict=True)
        return tuple(Match(self.text, name, self.operator, boost) for name, boost in pairs)

    def __str__(self) -> str:
        options = [] if self.operator is Operator.OR else [self.operator.value]
        columns = _weighted(self.columns, self.boosts)
        return _call("multi_match", columns, _quoted(self.text), *options)


@dataclass(frozen=True, slots=True)
class CombinedFields:
    """Rows that match `text` in the columns taken together as one (BM25F).

    A token's frequency and a row's length are sums over the columns, times `weights` (at least 1
    each); a token's document frequency and the number of documents are the largest of a column.
    With `AND` each token must be in some column. Repeated tokens count once. All columns must
    have the same analyzer.
    """

    text: str
    columns: tuple[str, ...]
    weights: tuple[float, ...] | None = None
    operator: Operator = Operator.OR

    def __post_init__(self) -> None:
        _check_names("combined_fields", self.columns)
        for name in self.columns:
            _check_text(self.text, name)
        for weight in _check_weights("combined_fields", self.columns, self.weights):
            if not 1 <= weight <= MAX_FIELD_WEIGHT:
                raise InvalidCallError(
                    f"The boost of a combined_fields query is {weight!r}; give a number from 1 to "
                    f"{MAX_FIELD_WEIGHT:g} for each column."
                )

    def __str__(self) -> str:
        options = [] if self.operator is Operator.OR else [self.operator.value]
        columns = _weighted(self.columns, self.weights)
        return _call("combined_fields", columns, _quoted(self.text), *options)


@dataclass(frozen=True, slots=True)
class Boost:
    """The rows of `positive`; from the score of those that `negative` matches too, its score times
    `negative_boost` is taken. A score may become negative."""

    positive: TextExpression
    negative: TextExpression
    negative_boost: float = 0.5

    def __post_init__(self) -> None:
        _check_factor("negative_boost", self.negative_boost)

    def __str__(self) -> str:
        return _call("boost", f"{self.positive}", f"-{self.negative_boost:g} * {self.negative}")


@dataclass(frozen=True, slots=True)
class Boolean:
    """Rows that every `must` and no `must_not` matches; without a `must`, at least one `should`.

    The score is the sum of the `must` and of the `should` that match. `minimum_should_match`
    asks for more of the `should`.
    """

    must: tuple[TextExpression, ...] = ()
    should: tuple[TextExpression, ...] = ()
    must_not: tuple[TextExpression, ...] = ()
    minimum_should_match: int | None = None

    def __post_init__(self) -> None:
        if not self.must and not self.should:
            raise InvalidCallError(
                "A boolean query has no clause that finds rows; add one to must or should."
            )
        if self.minimum_should_match is not None:
            _check_count("minimum_should_match", self.minimum_should_match, 0)

    @property
    def required(self) -> int:
        """The number of the `should` that must match."""
        return max(self.minimum_should_match or 0, 0 if self.must else 1)

    def __str__(self) -> str:
        parts = [f"+{clause}" for clause in self.must]
        parts += [f"{clause}" for clause in self.should]
        parts += [f"-{clause}" for clause in self.must_not]
        if self.minimum_should_match is not None:
            parts.append(f"minimum={self.minimum_should_match}")
        return _call("boolean", *parts)


TextExpression: TypeAlias = Match | Phrase | MultiMatch | CombinedFields | Boost | Boolean


def columns_of(expression: TextExpression) -> frozenset[str]:
    """The columns that an expression reads."""
    match expression:
        case Match() | Phrase():
            return frozenset((expression.column,))
        case MultiMatch() | CombinedFields():
            return frozenset(expression.columns)
        case Boost():
            return columns_of(expression.positive) | columns_of(expression.negative)
        case Boolean():
            clauses = (*expression.must, *expression.should, *expression.must_not)
            return frozenset[str]().union(*map(columns_of, clauses))


def _call(name: str, *parts: str) -> str:
    return f"{name}({', '.join(parts)})"


def _quoted(text: str, longest: int = 60) -> str:
    """A text on one line of a plan, cut where it is long."""
    return json.dumps(text if len(text) <= longest else f"{text[:longest]}…", ensure_ascii=False)


def _weighted(names: Sequence[str], weights: Sequence[float] | None) -> str:
    if weights is None:
        return f"[{', '.join(names)}]"
    pairs = zip(names, weights, strict=True)
    return f"[{', '.join(f'{name}^{weight:g}' for name, weight in pairs)}]"


def _check_text(text: object, column: object) -> None:
    if not isinstance(text, str):
        raise InvalidCallError(f"The text of a full-text query is {text!r}; give a string.")
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise InvalidCallError(
            f"The text of a full-text query has half a surrogate pair, which no text in a table "
            f"has: {text[:80]!r}; decode it with errors='replace'."
        )
    if not isinstance(column, str) or not column:
        raise InvalidCallError(
            f"The column of a full-text query is {column!r}; give the name of a text column."
        )


def _check_names(kind: str, names: Sequence[str]) -> None:
    if not names or len(set(names)) != len(names):
        raise InvalidCallError(
            f"The columns of a {kind} query are {list(names)!r}; name at least one, each once."
        )


def _check_weights(
    kind: str, names: Sequence[str], weights: Sequence[float] | None
) -> Sequence[float]:
    if weights is not None and len(weights) != len(names):
        raise InvalidCallError(
            f"A {kind} query has {len(names)} columns and {len(weights)} boosts; give one each."
        )
    return weights or ()


def _check_factor(name: str, value: object) -> None:
    number = not isinstance(value, bool) and isinstance(value, int | float)
    if not number or not math.isfinite(value) or value < 0:  # type: ignore[arg-type, operator]
        raise InvalidCallError(f"{name} is {value!r}; give a finite number, 0 or more.")


def _check_count(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise InvalidCallError(f"{name} is {value!r}; give a whole number, {least} or more.")
