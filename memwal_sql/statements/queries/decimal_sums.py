"""Sums of decimals: DataFusion 55 computes them in the digits of their type, and wraps around."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from memwal_native.syntax import SqlParser
from memwal_sql.errors import UnsupportedError
from memwal_sql.statements.queries.places import Edit, edited

_NAMES = frozenset(("sum", "avg", "mean"))
_PLANS = r"^ *(?:Aggregate|WindowAggr): .*"
# Matches plans with a sum of decimals whose type may have too few digits.
_NARROW = re.compile(_PLANS + r"\b(?:sum|avg)\(.*:Decimal(?:32|64|128\(3[3-8])", re.M)
_COLUMNS = re.compile(_PLANS + r"\]\] \[(.*)\]$", re.M)
# Plans show columns as `sum(CASE Int64(7000001) WHEN ... END):Decimal128(38, 2);N`.
_MARK = 7_000_000
_MARKED = re.compile(
    r"(?:^|, )(sum|avg)\((?:DISTINCT )?CASE Int64\((7\d{6})\) WHEN "
    r".*?:(\w+)(?:\((\d+), (-?\d+)\))?(?:;N)?(?=, |$)"
)
_UNCLEAR = (
    "DataFusion may compute a sum of decimals here wrongly, and its type is not clear: name its "
    "columns with their tables, and the sum with AS, or write sum(CAST(d AS DECIMAL(66, 2))), with "
    "the number of decimal places of d"
)
# The most decimal places of the types; an average has four more than its values.
_PLACES = {"Decimal32": 9, "Decimal64": 18, "Decimal128": 38}
_MORE = 4


class _Call(NamedTuple):
    """The places of a call, with OVER and the like, and of its argument."""

    start: int
    end: int
    first: int
    last: int


def wide_sums(text: str, plan: Callable[[str], str]) -> str:
    """A text whose sums and averages of decimals are computed in more digits, and fail if they do
    not fit into their types. `plan` shows the plan of a text, with types.

    Raises UnsupportedError for sums whose types are not clear.
    """
    calls = list(_calls(text)) if any(name in text.lower() for name in _NAMES) else []
    if not calls or not _NARROW.search(plan(text)):
        return text
    # Calls that read the same stay the same: ORDER BY may repeat one of SELECT DISTINCT.
    marks: dict[str, int] = {}
    edits = []
    for call in calls:
        mark = marks.setdefault(text[call.start : call.last], _MARK + len(marks))
        edits += _around(call.first, call.last, f"CASE {mark} WHEN {mark} THEN ", " END")
    casts = defaultdict(set)
    for columns in _COLUMNS.findall(_shown(edited(text, edits), plan)):
        for name, mark, *kind in _MARKED.findall(columns):
            casts[int(mark)].add(_casts(name, *kind))
    edits = []
    for call in calls:
        if len(found := casts[marks[text[call.start : call.last]]]) != 1:
            raise UnsupportedError(_UNCLEAR)
        ((inner, outer),) = found
        if inner:
            edits += _around(call.first, call.last, "CAST(", f" AS {inner})")
        if outer:
            edits += _around(call.start, call.end, "CAST(", f" AS {outer})")
    return edited(text, edits)


def _shown(text: str, plan: Callable[[str], str]) -> str:
    try:
        return plan(text)
    except Exception as error:  # DataFusion raises nothing more specific
        raise UnsupportedError(_UNCLEAR) from error


def _around(start: int, end: int, before: str, after: str) -> list[Edit]:
    return [Edit(start, start, before), Edit(end, end, after)]


def _casts(name: str, kind: str, digits: str, scale: str) -> tuple[str, str]:
    """The types, to cast to, of the argument and of the result of a sum with this type; empty for
    those that have room. A cast leaves the name of a column as it is."""
    if kind not in _PLACES or (
        kind == "Decimal128" and int(digits) < (38 if name == "sum" else 33)
    ):
        return "", ""
    places = int(scale)
    if name == "avg" and places < _PLACES[kind]:
        places -= _MORE
    if kind != "Decimal128":
        return f"DECIMAL(28, {places})", ""
    return f"DECIMAL(66, {places})", f"DECIMAL({digits}, {scale})"


def _calls(text: str) -> Iterator[_Call]:
    tokens = SqlParser.tokens(text)
    words = [value.upper() if kind == "word" else "" for kind, value, _, _ in tokens]
    closing: dict[int, int] = {}
    opened = []
    for place, (kind, value, _, _) in enumerate(tokens):
        if kind == "symbol" and value == "(":
            opened.append(place)
        elif kind == "symbol" and value == ")" and opened:
            closing[opened.pop()] = place
    for place, (kind, value, start, _) in enumerate(tokens):
        if kind not in ("word", "quoted") or value.lower() not in _NAMES:
            continue
        first, last = place + 2, closing.get(place + 1, 0)
        first += words[first : first + 1] in (["DISTINCT"], ["ALL"])
        end = last
        while (after := _clause_end(end + 1, words, closing)) is not None:
            end = after
        at = first
        while at < last and words[at] != "ORDER":
            at = closing.get(at, at) + 1
        if first < at:
            yield _Call(start, tokens[end][3], tokens[first][2], tokens[at - 1][3])


def _clause_end(at: int, words: list[str], closing: dict[int, int]) -> int | None:
    """The last token of a clause after a call, if one begins at this token."""
    match words[at : at + 1]:
        case ["FILTER"]:
            return closing.get(at + 1)
        case ["OVER"]:
            return closing.get(at + 1, at + 1)
        case ["IGNORE" | "RESPECT"]:
            return at + 1
    return None
