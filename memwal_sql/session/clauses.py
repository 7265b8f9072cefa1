"""Checks of clauses that DataFusion would answer wrongly, and of repeated names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from memwal_native.syntax import SqlParser, SqlQuery
from memwal_sql.errors import InvalidCallError, UnsupportedError

_COMPARED = frozenset(("ANY", "SOME", "ALL"))
_OPERATORS = frozenset(("=", "<>", "!=", "<", "<=", ">", ">="))
_SKIPPED = (
    "after EXISTS, ANY and ALL, DataFusion ignores OFFSET in a query that has columns of the query "
    "around it: compare a count, as in (SELECT count(*) FROM u WHERE u.id = t.id) > 1. A query "
    "without such columns can stand in FROM: = ANY (SELECT s.a AS b FROM (SELECT ...) AS s)"
)


def check_offsets(text: str) -> None:
    """Raise UnsupportedError for OFFSET in a query after EXISTS, ANY or ALL."""
    if not any(word in text.lower() for word in ("offset", "limit")):
        return
    tokens = [
        (kind, value.upper() if kind == "word" else value)
        for kind, value, _, _ in SqlParser.tokens(text)
    ]
    within = [False]
    for place, (kind, value) in enumerate(tokens):
        before = [value for _, value in tokens[max(0, place - 2) : place]]
        if (kind, value) == ("symbol", "("):
            compares = before[-1:] == ["EXISTS"] or (
                len(before) == 2 and before[1] in _COMPARED and before[0] in _OPERATORS
            )
            within.append(compares or (before[-1:] == ["("] and within[-1]))
        elif (kind, value) == ("symbol", ")"):
            within.pop()
        elif kind == "word" and within[-1] and _skips(value, tokens[place + 1 : place + 3]):
            raise UnsupportedError(_SKIPPED)


def _skips(word: str, after: Sequence[tuple[str, str]]) -> bool:
    """Whether a word begins OFFSET n, or LIMIT n, m."""
    if word == "LIMIT":
        return ("symbol", ",") in after
    return word == "OFFSET" and (after[0][0] in ("number", "placeholder") or after[0][1] == "(")


def check_memberships(misread: Sequence[str]) -> None:
    """Raise UnsupportedError for an IN that DataFusion 55 computes otherwise than SQL says."""
    if misread:
        raise UnsupportedError(
            f"DataFusion would ignore NULLs of the subquery in {misread[0]!r}: write "
            "x = ANY (SELECT ...) for IN, and x <> ALL (SELECT ...) for NOT IN"
        )


def check_faults(query: SqlQuery, *, merges_piecewise: bool) -> None:
    """Raise UnsupportedError for clauses that DataFusion 55 ignores or answers wrongly, and for a
    query of tables in a session whose joins may lose rows."""
    if merges_piecewise and query.tables:
        raise UnsupportedError(
            "piecewise merge joins lose rows: set "
            "datafusion.optimizer.enable_piecewise_merge_join to false"
        )
    if query.refused:
        raise UnsupportedError(query.refused[0])


def check_names_differ(names: Sequence[str]) -> None:
    """Raise InvalidCallError for repeated names."""
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise InvalidCallError(
            f"the result has several columns with the names {repeated}: give each a name of its "
            "own with AS"
        )
