"""A statement as DataFusion's parser reads it, with the forms that this package adds."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from memwal_native.syntax import SqlParser, SqlQuery, SqlStatement
from memwal_sql.arguments import check_lengths
from memwal_sql.errors import UnsupportedError
from memwal_sql.session.table_functions import FUNCTIONS
from memwal_sql.statements.queries.places import Edit, StatementError, offset_of, place_before

_PLACE = re.compile(r" at Line: (\d+), Column: (\d+)$")
_SEARCHES = [name for function in FUNCTIONS for name in function.names]


@dataclass(frozen=True, slots=True)
class Text:
    """The text of a statement.

    Attributes:
        text: the text that is parsed.
        original: the user's text, before `edits`.
    """

    text: str
    original: str
    edits: Sequence[Edit] = ()

    def error(self, message: str, at: int) -> StatementError:
        """An error with the place in the user's text for a place in this one."""
        return StatementError(message, self.original, place_before(at, self.edits))

    def since(self, at: int) -> Text:
        """The text from a place on, with blanks before it, so that places stay the same."""
        return replace(self, text=" " * at + self.text[at:])

    @contextmanager
    def parser_errors(self) -> Iterator[None]:
        """A context in which the parser's errors become InvalidCallError, or UnsupportedError for a
        text that nests too deep."""
        try:
            yield
        except RecursionError as error:
            raise UnsupportedError(str(error)) from None
        except ValueError as error:
            message, *at = error.args
            if at:
                raise self.error(message, min(at[0], len(self.text))) from None
            if (match := _PLACE.search(message)) is None:
                raise self.error(message, len(self.text.rstrip().rstrip(";"))) from None
            place = offset_of(self.text, int(match[1]), int(match[2]))
            raise self.error(message[: match.start()], place) from None


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement and its text."""

    source: Text
    sql: SqlStatement

    @property
    def ctes(self) -> str:
        """The text of the WITH clause before a change of rows; empty without one."""
        return "" if self.sql.ctes is None else self.sql.ctes.text

    def error(self, message: str, at: int) -> StatementError:
        """An error with the place in the user's text."""
        return self.source.error(message, at)

    def unsupported(self, message: str, at: int) -> UnsupportedError:
        """An UnsupportedError with the place in the user's text."""
        return UnsupportedError(str(self.error(message, at)))


def parsed(parser: SqlParser, source: Text) -> Statement:
    """The one statement of a text.

    Raises InvalidCallError, with the place, for a text that can't be parsed, for none or several
    statements, and for a call that makes too long values.
    """
    with source.parser_errors():
        statement = parser.statement(source.text)
    check_lengths(source.text)
    return Statement(source, statement)


def parsed_query(parser: SqlParser, source: Text) -> SqlQuery:
    """The tables and searches of a text for DataFusion. Raises as `parsed` does."""
    with source.parser_errors():
        return parser.query(source.text, _SEARCHES)


def statement_texts(text: str) -> list[str]:
    """The texts of the statements between semicolons, each on its own lines. Raises
    InvalidCallError, with the place, for an unterminated quote, and for an unmatched closing
    parenthesis."""
    source, start, depth, lines, column = Text(text, text), 0, 0, 0, 0
    with source.parser_errors():
        tokens = SqlParser.tokens(text)
    places = [at for _, _, at, _ in tokens]
    symbols = [(symbol, at, end) for kind, symbol, at, end in tokens if kind == "symbol"]
    for symbol, at, _ in symbols:
        depth += (symbol == "(") - (symbol == ")")
        if depth < 0:
            raise source.error("this parenthesis closes none", at)
    ends = [(at, end) for symbol, at, end in symbols if symbol == ";"]
    texts = []
    for at, end in [*ends, (len(text), len(text))]:
        part = text[start:end]
        if bisect_left(places, at) > bisect_left(places, start):
            texts.append("\n" * lines + " " * column + part)
        newlines = part.count("\n")
        column = len(part) - part.rfind("\n") - 1 if newlines else column + len(part)
        lines, start = lines + newlines, end
    return texts


def parameters_of(text: str) -> set[str]:
    """The names of the parameters in a text."""
    with Text(text, text).parser_errors():
        return {name[1:] for kind, name, _, _ in SqlParser.tokens(text) if kind == "placeholder"}
