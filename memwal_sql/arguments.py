"""What callers give as numbers, names and conditions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral
from typing import Any

from memwal_native import SqlParser, SqlText
from memwal_sql.errors import InvalidCallError, UnsupportedError

# Characters of a value in an error.
_SHOWN = 80


def is_whole(value: Any, least: int) -> bool:
    """Whether it is a whole number from `least` on, numpy's too; a bool is none."""
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= least


def is_number(value: Any) -> bool:
    """Whether it is a number; infinite ones are, a bool and NaN are none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return not math.isnan(value)


def names_given(argument: str, value: Any) -> list[str]:
    """A list of names. Raises InvalidCallError, as a single name is none."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InvalidCallError(f"{argument}={value!r} must be a list of names: [{value!r}]")
    return list(value)


def shortened(text: str) -> str:
    """A text as errors show it."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def quoted(name: str) -> str:
    """A name as SQL takes it whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def unquoted(name: str) -> str:
    """A name without quotes as DataFusion takes it: of `ÄB` the B alone is in lower case."""
    return name.encode().lower().decode()


def parsed_expression(text: str) -> SqlText | None:
    """An expression as DataFusion's parser has it; None for a text that it can't parse.

    Raises InvalidCallError for a text that nests too deep to be planned.
    """
    try:
        return SqlParser().expression(text)
    except ValueError as error:
        raise InvalidCallError(f"{text!r}: {error}") from error


def check_expression(text: str) -> None:
    """Raise InvalidCallError for an expression that nests too deep, UnsupportedError for one with a
    comparison that DataFusion reads otherwise than SQL says. What can't be parsed passes."""
    parsed = parsed_expression(text)
    if parsed is not None:
        check_comparisons(parsed)


def check_comparisons(parsed: SqlText) -> None:
    """The same for what has been parsed."""
    if misread := parsed.misread_comparisons():
        raise UnsupportedError(
            f"DataFusion would compare with all that follows in {misread[0]!r}: put the comparison "
            "into parentheses, as in (a IS DISTINCT FROM b) AND c"
        )
