"""Checks of callers' numbers, names and conditions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from numbers import Integral
from typing import Any

from memwal_native.syntax import SqlParser, SqlText
from memwal_sql.errors import InvalidCallError

# Characters of a value in an error.
_SHOWN = 80
# What makes a value as long as its second argument says, and the longest.
_LENGTHENING = frozenset(
    ("array_repeat", "array_resize", "list_repeat", "list_resize", "lpad", "repeat", "rpad")
)
_LENGTHENS = re.compile("|".join(_LENGTHENING), re.IGNORECASE)
_LONGEST = 1_000_000
# DataFusion compares timestamps of all units with literals in nanoseconds.
_BEYOND_NANOSECONDS = re.compile(
    r"Overflow converting (?P<date>.*?)(?: 00:00:00)? to Nanosecond|to Timestamp\(ns\)"
)


def date_remedy(message: str) -> str:
    """The remedy for a date that DataFusion can't compare; empty for other messages."""
    beyond = _BEYOND_NANOSECONDS.search(message)
    if beyond is None:
        return ""
    date = beyond["date"] or "9999-12-31"
    return (
        f"\nWrite a date beyond the years 1678 to 2261 as arrow_cast('{date}', "
        "'Timestamp(Microsecond, None)'), and leave it out where the column is of nanoseconds, "
        "which has no such dates"
    )


def is_whole(value: Any, least: int) -> bool:
    """Whether it is a whole number from `least` on, numpy's too; a bool is not."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: Any) -> bool:
    """Whether it is a number. Infinities are; bools and NaN are not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not math.isnan(value)


def name_list(argument: str, value: Any) -> list[str]:
    """A list of names. Raises InvalidCallError for anything else, a single name too."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidCallError(f"{argument}={value!r} must be a list of names: [{value!r}]")
    return list(value)


def shortened(text: str) -> str:
    """A text as errors show it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def quoted(name: str) -> str:
    """A name as SQL takes it whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A text as SQL takes it whatever is in it."""
    return "'" + text.replace("'", "''") + "'"


def unquoted(name: str) -> str:
    """A name without quotes as DataFusion takes it: of `ÄB` the B alone is in lower case."""
    return name.encode().lower().decode()


def parsed_expression(text: str) -> SqlText | None:
    """An expression as DataFusion's parser has it; None for a text that it can't parse.

    Raises InvalidCallError for a text that nests too deep to be planned, or makes too long values.
    """
    try:
        parsed = SqlParser.expression(text)
    except ValueError as error:
        raise InvalidCallError(f"{text!r}: {error}") from error
    if parsed is not None:
        check_lengths(text)
    return parsed


def check_lengths(text: str) -> None:
    """Raise InvalidCallError for a text of SQL with a call, as `repeat('a', 1000000000)`, that asks
    for longer values than memory may have room for: DataFusion's pool does not count them."""
    if _LENGTHENS.search(text) is None:
        return
    calls = [("", 0)]  # the functions whose parentheses are open, and their commas
    name = ""
    for kind, value, _, _ in SqlParser.tokens(text):
        function, commas = calls[-1]
        symbol = value if kind == "symbol" else ""
        if symbol == "(" and not name:
            calls.append((function, commas))
        elif symbol in ("(", "[", "{"):
            calls.append((name if symbol == "(" else "", 0))
        elif symbol in (")", "]", "}") and len(calls) > 1:
            calls.pop()
        elif symbol == ",":
            calls[-1] = function, commas + 1
        is_length = commas == 1 and function in _LENGTHENING and kind in ("number", "string")
        if is_length and _is_too_long(value):
            raise InvalidCallError(
                f"{function}(...) is asked for the length {shortened(value)}: it makes "
                f"{_LONGEST:,} characters or elements at most"
            )
        name = value.lower() if kind in ("word", "quoted") else ""


def _is_too_long(number: str) -> bool:
    try:
        return float(number) > _LONGEST
    except ValueError:
        return False


def check_expression(text: str) -> None:
    """Raise InvalidCallError for an expression that nests too deep or makes too long values. What
    can't be parsed passes."""
    parsed_expression(text)
