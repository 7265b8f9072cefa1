"""The words of a region expression, read so that no parser of SQL can read others in it.

Parsers differ in comments, in quotes of names, in prefixes of texts: what stands in `/*! ... */` is
a remark to one and code to another. So there is none of these here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from exec_nodes.base.errors import InvalidCallError

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<text>[xX]?'(?:[^']|'')*')
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?P<sign>::|<>|<=|>=|!=|\|\||<<|>>|!~|-(?!-)|/(?!\*)|[+*%(),=<>~&|^])
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    """`kind` is text, word, number or sign; `start` and `end` are its places in the expression."""

    kind: str
    text: str
    start: int
    end: int


@lru_cache(maxsize=256)
def tokens_of(sql: str) -> tuple[Token, ...]:
    """The tokens in order. Raises InvalidCallError for anything else between them."""
    found, place, end = [], 0, len(sql.rstrip())
    while place < end:
        match = _TOKEN.match(sql, place)
        if match is None:
            rest = sql[place:].lstrip()
            raise InvalidCallError(
                f"region expression {sql!r}: {rest[:20]!r} is not allowed; it is made of col0, "
                "col1, ..., numbers, texts in single quotes, operators and functions"
            )
        kind = str(match.lastgroup)
        found.append(Token(kind, match[kind], match.start(kind), match.end(kind)))
        place = match.end()
    return tuple(found)
