"""Expressions in groups that DataFusion plans one by one, each over the columns that it names.

DataFusion looks up each column of a query among all columns: a query of 2,000 expressions over
2,000 columns takes seconds to plan, ten queries of 200 of each a fifth of a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from memwal_native.syntax import SqlParser
from memwal_sql.arguments import unquoted
from memwal_sql.errors import InvalidCallError

# Expressions planned at once.
MOST_TOGETHER = 200
# Kinds of tokens.
_NAMES = ("word", "quoted")
# Functions that have one value in all of a query.
_TIMES = frozenset(("current_date", "current_time", "current_timestamp", "now", "today"))


def groups(values: Mapping[str, str]) -> list[dict[str, str]]:
    """The expressions in groups; all that may show the time of the query are in the first."""
    times = {name for name, text in values.items() if not _TIMES.isdisjoint(_names([text]))}
    names = sorted(values, key=lambda name: name not in times)
    first = max(MOST_TOGETHER, len(times))
    starts = [0, *range(first, len(names), MOST_TOGETHER), len(names)]
    return [{name: values[name] for name in names[start:end]} for start, end in pairwise(starts)]


def named(columns: Iterable[str], texts: Iterable[str]) -> list[str]:
    """The columns that expressions may name, in order, whatever their case, as errors show those of
    another case. Raises InvalidCallError for a text that can't be divided into tokens."""
    names = _names(texts)
    return [column for column in columns if unquoted(column) in names]


def whole(texts: Iterable[str]) -> set[str]:
    """The names that expressions use by themselves, and not before a dot: `t` is a whole row then,
    as in `t IS DISTINCT FROM s` or `t['n']`."""
    names = set()
    for text in texts:
        ends = pairwise([*_tokens(text), ("symbol", "")])
        names |= {value for (kind, value), (_, after) in ends if kind in _NAMES and after != "."}
    return names


def _names(texts: Iterable[str]) -> set[str]:
    return {value for text in texts for kind, value in _tokens(text) if kind in _NAMES}


def _tokens(text: str) -> list[tuple[str, str]]:
    """Kinds and values; names without quotes."""
    try:
        tokens = SqlParser.tokens(text)
    except ValueError as error:
        raise InvalidCallError(f"{text!r} is not a SQL expression: {error}") from error
    return [(kind, unquoted(value) if kind in _NAMES else value) for kind, value, *_ in tokens]
