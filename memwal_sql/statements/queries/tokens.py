"""A statement as its text and the tokens in it: what is passed on is sliced, never printed anew."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from memwal_native import SqlParser
from memwal_sql.arguments import check_lengths, unquoted
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.queries.places import (
    Edit,
    Name,
    Source,
    StatementError,
    edited,
    offset_of,
)

_PLACE = re.compile(r" at Line: (\d+), Column: (\d+)$")
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True, slots=True)
class Token:
    """A token, and where its characters stand in the text.

    Attributes:
        kind: `"word"`, `"quoted"` (a name), `"string"`, `"number"`, `"placeholder"` or `"symbol"`.
        value: without quotes.
    """

    kind: str
    value: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """A word in upper case; empty for all else."""
        return self.value.upper() if self.kind == "word" else ""

    @property
    def is_name(self) -> bool:
        """Whether it may be a name."""
        return self.kind in ("word", "quoted")

    @property
    def name(self) -> str:
        """The name it is: in lower case unless quoted."""
        return self.value if self.kind == "quoted" else unquoted(self.value)


class Statement:
    """One statement. Places are indexes into `tokens`; none is inside of parentheses where a method
    looks for words.

    Attributes:
        source: the text that the user gave, with its edits since.
    """

    def __init__(
        self,
        text: str,
        tokens: Sequence[Token],
        source: Source | None = None,
    ) -> None:
        self.text = text
        self.tokens = tokens
        self.source = Source(text) if source is None else source

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def parameters(self) -> set[str]:
        """The names of its parameters, without the `$`."""
        return {token.value[1:] for token in self.tokens if token.kind == "placeholder"}

    def keyword(self, place: int) -> str:
        """The word at a place in upper case; empty at the end, and for a column, as in `s.end`."""
        if place >= len(self.tokens) or (place > 0 and self.symbol(place - 1) == "."):
            return ""
        return self.tokens[place].keyword

    def has(self, place: int, words: str) -> bool:
        """Whether these keywords, with blanks between, stand at a place."""
        return all(self.keyword(place + i) == word for i, word in enumerate(words.split()))

    def symbol(self, place: int) -> str:
        """The symbol at a place; empty for all else."""
        if place >= len(self.tokens) or self.tokens[place].kind != "symbol":
            return ""
        return self.tokens[place].value

    def slice(self, start: int, stop: int) -> str:
        """The text from one place up to another, as it was written."""
        if start >= stop:
            return ""
        return self.text[self.tokens[start].start : self.tokens[stop - 1].end]

    def part(self, start: int, stop: int) -> Statement:
        """The statement between two places."""
        tokens = self.tokens[start:stop]
        return Statement(self.text, tokens, self.source)

    def edited(self, edits: Sequence[Edit]) -> Statement:
        """The statement with other texts in places of it."""
        text = edited(self.text, edits)
        longer = len(text) - len(self.text)
        first = min(self.tokens[0].start, *(one.start for one in edits))
        last = self.tokens[-1].end + longer
        found = _tokens(text).tokens
        tokens = [one for one in found if first <= one.start and one.end <= last]
        return Statement(text, tokens, self.source.edited(edits))

    def find(self, words: str, start: int = 0, stop: int | None = None) -> int:
        """The first place from `start` where these keywords stand; `stop`, or the end, if none."""
        end = len(self.tokens) if stop is None else stop
        return next((place for place in self.top(start, end) if self.has(place, words)), end)

    def first(self, clauses: Sequence[str], start: int) -> int:
        """The first place at which one of several clauses begins; the end if none does."""
        return min((self.find(words, start) for words in clauses), default=len(self.tokens))

    def top(self, start: int, stop: int) -> Iterator[int]:
        """The places outside of parentheses."""
        depth = 0
        for place in range(start, stop):
            symbol = self.symbol(place)
            if symbol in _CLOSING:
                depth -= 1
            if depth == 0:
                yield place
            if symbol in _OPENING:
                depth += 1

    def split(self, start: int, stop: int) -> list[tuple[int, int]]:
        """The parts between commas, as `(start, stop)`; none where there is no token."""
        commas = [place for place in self.top(start, stop) if self.symbol(place) == ","]
        starts = [start, *(place + 1 for place in commas)]
        parts = list(zip(starts, [*commas, stop], strict=True)) if stop > start else []
        for first, last in parts:
            if first == last:
                raise self.error("there is nothing between two commas", first)
        return parts

    def closing(self, place: int) -> int:
        """The place after the parenthesis that ends the one at `place`."""
        places = self.top(place, len(self.tokens))
        next(places)
        after = next(places, None)
        if after is None or self.symbol(after) not in _CLOSING:
            raise self.error("this parenthesis does not end", place)
        return after + 1

    def table(self, place: int) -> tuple[Name, int]:
        """The name of a table, `catalog.schema.table` or less, and the place after it."""
        parts = []
        while True:
            if place >= len(self.tokens) or not self.tokens[place].is_name:
                raise self.error("the name of a table is missing", place)
            parts.append(self.tokens[place].name)
            place += 1
            if self.symbol(place) != ".":
                return tuple(parts), place
            place += 1

    def expect(self, place: int, words: str) -> int:
        """The place after these keywords. Raises InvalidCallError where something else stands."""
        if not self.has(place, words):
            raise self.error(f"{words} is missing", place)
        return place + len(words.split())

    def error(self, message: str, place: int) -> StatementError:
        """An error that says where in the user's text, by line and column, and what stands
        there."""
        if place < len(self.tokens):
            at = self.tokens[place].start
        else:
            at = self.tokens[-1].end if self.tokens else len(self.text)
        return StatementError(message, self.source.text, self.source.place(at))

    @contextmanager
    def places(self) -> Iterator[None]:
        """Within it, a StatementError of a part of the user's text has its place in that. One of a
        text that was put together has none."""
        try:
            yield
        except StatementError as error:
            text = self.source.text
            start = -1 if error.at is None else text.find(error.text)
            at = None if error.at is None or start < 0 else start + error.at
            raise StatementError(error.message, text, at) from error.__cause__


def statement_of(text: str) -> Statement:
    """The one statement of a text.

    Raises InvalidCallError for a text with none or several, and for a quote that does not end.
    """
    if not isinstance(text, str):
        raise InvalidCallError(f"{text!r} is no SQL statement, as text")
    found = statements_of(text)
    if not found:
        raise InvalidCallError("there is no statement in the text")
    if len(found) > 1:
        whole = _tokens(text)
        place = next(p for p in range(len(whole)) if whole.symbol(p) == ";")
        raise whole.error("give one statement at a time: another one begins after this", place)
    return found[0]


def statements_of(text: str) -> list[Statement]:
    """The statements of a text, between semicolons. Raises InvalidCallError for a quote that does
    not end, for a call that makes too long values, and for a parenthesis that ends nothing: in what
    is put together of parts of a text it could end a parenthesis around one."""
    whole = _tokens(text)
    check_lengths(text)
    depth = 0
    for place in range(len(whole)):
        symbol = whole.symbol(place)
        depth = 0 if symbol == ";" else depth + (symbol in _OPENING) - (symbol in _CLOSING)
        if depth < 0:
            raise whole.error("this parenthesis ends nothing", place)
    ends = [place for place in range(len(whole)) if whole.symbol(place) == ";"]
    starts = [0, *(place + 1 for place in ends)]
    pairs = zip(starts, [*ends, len(whole)], strict=True)
    return [whole.part(start, stop) for start, stop in pairs if start < stop]


def _tokens(text: str) -> Statement:
    try:
        return Statement(text, [Token(*found) for found in SqlParser.tokens(text)])
    except ValueError as error:
        place = _PLACE.search(str(error))
        at = None if place is None else offset_of(text, *map(int, place.groups()))
        raise StatementError(_PLACE.sub("", str(error)), text, at) from error
