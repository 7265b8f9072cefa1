"""The statements of a text, each as the session reads it when its turn comes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memwal_native import SqlParser
from memwal_sql.session.front.queries.places import Edit, Source, as_before
from memwal_sql.session.front.queries.tokens import Statement, statements_of

_SEMICOLON = re.compile(";")
# Statements of a session that may give it another parser.
_SETTING = ("SET", "RESET")
_SETTINGS = "sql_parser"


def read_ahead(text: str, start: int, parser: SqlParser) -> tuple[list[Statement], int]:
    """The statements from a place of a text on, to the first that may give the session another
    parser, and the place after them: the end of the text if there is no such one.

    What follows that one is not looked at: it may be no SQL for this parser, or other statements.
    Raises InvalidCallError, with the place, as `statements_of` does.
    """
    found: list[Statement] = []
    for end in _ends(text, start, parser):
        cut = [Edit(0, start, "")]
        with as_before(text, cut):
            # A text of its own: this parser need not read the statements before and after it.
            part = statements_of(text[start:end], parser)
        start = min(end + 1, len(text))
        for statement in part:  # none between two semicolons
            statement.source = Source(text, (cut,))
            found.append(statement)
            if statement.keyword(0) in _SETTING and _SETTINGS in text[:end].lower():
                return found, start
    return found, start


def _ends(text: str, start: int, parser: SqlParser) -> Iterator[int]:
    """Where the statements from a place on end: their semicolons, and the end of the text."""
    try:
        tokens = parser.tokens(text[start:])
        yield from (start + at for kind, value, at, _ in tokens if (kind, value) == ("symbol", ";"))
    except ValueError:  # it may be a later statement that is not for this parser
        begin = start
        for semicolon in _SEMICOLON.finditer(text, start):
            try:
                tokens = parser.tokens(text[begin : semicolon.end()])
            except ValueError:  # within a quote or a comment
                continue
            if tokens and begin + tokens[-1][3] == semicolon.end():  # else in a comment of a line
                yield semicolon.start()
                begin = semicolon.end()
    yield len(text)
