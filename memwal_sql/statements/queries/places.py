"""Places in the texts of statements, and errors that have one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from memwal_native.syntax import SqlParser
from memwal_sql.errors import InvalidCallError

Name = tuple[str, ...]


class Edit(NamedTuple):
    """A new text in place of characters from `start` to `end`."""

    start: int
    end: int
    text: str


def edited(text: str, edits: Sequence[Edit]) -> str:
    """A text after edits, which do not overlap."""
    for start, end, new in sorted(edits, reverse=True):
        text = text[:start] + new + text[end:]
    return text


def place_before(at: int, edits: Sequence[Edit]) -> int:
    """The place before edits of a place after them; within a new text, the place of the edit."""
    longer = 0
    for start, end, new in sorted(edits):
        if at < start + longer:
            break
        if at < start + longer + len(new):
            return start
        longer += len(new) - (end - start)
    return at - longer


class StatementError(InvalidCallError):
    """An error in a text, which may be assembled from parts of a user's statement.

    Attributes:
        message: the message without the place.
        text: the text.
        at: the place of the error, in characters; None if unknown.
    """

    def __init__(self, message: str, text: str = "", at: int | None = None) -> None:
        first, newline, rest = message.partition("\n")
        place = "" if at is None else f", at {_described(text, at)}"
        super().__init__(f"{first}{place}{newline}{rest}")
        self.message = message
        self.text = text
        self.at = at


@contextmanager
def errors_of_calls() -> Iterator[None]:
    """A context in which a StatementError becomes the InvalidCallError that callers know."""
    try:
        yield
    except StatementError as error:
        raise InvalidCallError(str(error)) from error.__cause__


def _described(text: str, at: int) -> str:
    """A place by line and column, from 1, and the token there."""
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    rest = text[at:].strip()
    try:
        value = next((repr(token[1]) for token in SqlParser.tokens(rest)), "the end")
    except ValueError:  # an unterminated quote, here or later
        value = repr(rest if rest[0] in "'\"`" else rest.split(maxsplit=1)[0])
    return f"line {line}, column {column}: {value}"


def offset_of(text: str, line: int, column: int) -> int:
    """The place of a line and a column, which count from 1."""
    lines = text.split("\n")[: line - 1]
    return min(sum(map(len, lines)) + len(lines) + column - 1, len(text))
