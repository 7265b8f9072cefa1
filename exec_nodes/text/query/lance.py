"""Objects of `lance.query`, read.

They keep what they were made of inside Lance and show it in one place only: the text of a plan.
So a query is planned over an empty table and its part of that text read; it is what Rust's
`Debug` prints. What this version of Lance doesn't print so is refused, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache
from typing import Any, Final
from uuid import uuid4

import lance
import pyarrow as pa
from lance.query import (
    BooleanQuery,
    CombinedFieldsQuery,
    FullTextQuery,
    Occur,
)

from exec_nodes.base.errors import InvalidCallError, UnsupportedError

_BEFORE: Final = "BooleanQuery: should=[], must=["
_TOKEN: Final = re.compile(
    r'\s*(?:"((?:[^"\\]|\\.)*)"|([A-Za-z_]\w*)|(-?\d[\w.+-]*)|(.))', re.DOTALL
)
_PLACE: Final = re.compile(r", /\S+:\d+:\d+$")  # in Lance's source
_ESCAPE: Final = re.compile(r"\\(?:u\{([0-9a-fA-F]+)\}|(.))", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def json_form(query: FullTextQuery, columns: Collection[str]) -> dict[str, Any]:
    """The query in the form of `parse_query`; `columns` are the text columns it may name.

    Raises InvalidCallError for what Lance itself refuses, and UnsupportedError for what can't be
    read.
    """
    if isinstance(query, CombinedFieldsQuery):
        raise UnsupportedError(
            "The weights in a lance.query.CombinedFieldsQuery can't be read; give the JSON form "
            '{"combined_fields": {"query": ..., "columns": [...], "boosts": [...]}}.'
        )
    table = _empty_table(tuple(sorted(columns)))
    try:
        # In a clause, whatever it is, the query is printed with all it has.
        plan = table.scanner(full_text_query=BooleanQuery([(Occur.MUST, query)])).explain_plan()
    except ValueError as error:
        reason = _PLACE.sub("", str(error))
        raise InvalidCallError(
            f"Lance refuses the full-text query over the columns {sorted(columns)!r}: {reason}."
        ) from error
    start = plan.find(_BEFORE)
    if start < 0:
        raise _unreadable(query)
    try:
        form: dict[str, Any] = _form(_value(_Tokens(plan[start + len(_BEFORE) :])))
    except (KeyError, ValueError, StopIteration) as error:
        raise _unreadable(query) from error
    return form


def _unreadable(query: FullTextQuery) -> UnsupportedError:
    return UnsupportedError(
        f"A {type(query).__name__} of lance {lance.__version__} can't be read; give the JSON form."
    )


@lru_cache(maxsize=16)
def _empty_table(columns: tuple[str, ...]) -> lance.LanceDataset:
    schema = pa.schema([pa.field(name, pa.string()) for name in columns])
    return lance.write_dataset(schema.empty_table(), f"memory://{uuid4().hex}")


class _Tokens:
    """The words of a debug text one by one: ("text", ...), ("name", ...), ("number", ...) or
    ("mark", ...)."""

    def __init__(self, text: str) -> None:
        self._matches = _TOKEN.finditer(text)
        self._next = self._read()

    def _read(self) -> tuple[str, str]:
        text, name, number, mark = next(self._matches).groups()
        if text is not None:
            return "text", _ESCAPE.sub(_unescape, text)
        if name is not None:
            return "name", name
        return ("mark", mark) if number is None else ("number", number)

    def take(self) -> tuple[str, str]:
        """The next word."""
        word, self._next = self._next, self._read()
        return word

    def skip(self, mark: str) -> bool:
        """Whether the next word is this mark; it is taken if so."""
        found = self._next == ("mark", mark)
        if found:
            self.take()
        return found

    def until(self, mark: str) -> Iterator[None]:
        """Once for each of the parts, between commas, that stand before the mark."""
        while not self.skip(mark):
            yield
            self.skip(",")


def _unescape(found: re.Match[str]) -> str:
    code, character = found.groups()
    return chr(int(code, 16)) if code else _ESCAPED.get(character, character)


def _value(tokens: _Tokens) -> Any:
    """A struct as a dict, a variant as a dict of one, a list; the names of structs are left out."""
    kind, text = tokens.take()
    if kind == "text":
        return text
    if kind == "number":
        return float(text) if re.search("[.eE]", text) else int(text)
    if kind == "name" and tokens.skip("{"):
        return {_field(tokens): _value(tokens) for _ in tokens.until("}")}
    if kind == "name" and tokens.skip("("):
        (value,) = [_value(tokens) for _ in tokens.until(")")]
        return value if text == "Some" else {text: value}
    if kind == "name":
        return None if text == "None" else text
    if (kind, text) == ("mark", "["):
        return [_value(tokens) for _ in tokens.until("]")]
    raise ValueError(text)


def _field(tokens: _Tokens) -> str:
    name = tokens.take()[1]
    if not tokens.skip(":"):
        raise ValueError(name)
    return name


def _form(value: dict[str, Any]) -> dict[str, Any]:
    """A variant of Lance's query type in the form of `parse_query`."""
    ((kind, body),) = value.items()
    if kind == "Match":
        return {"match": _leaf(body)}
    if kind == "Phrase":
        return {"phrase": _leaf(body)}
    if kind == "MultiMatch":
        return {"multi_match": {"match_queries": [_leaf(one) for one in body["match_queries"]]}}
    if kind == "Boost":
        parts = {part: _form(body[part]) for part in ("positive", "negative")}
        return {"boost": {**parts, "negative_boost": body["negative_boost"]}}
    if kind == "Boolean":
        clauses = ("must", "should", "must_not")
        return {"boolean": {clause: [_form(part) for part in body[clause]] for clause in clauses}}
    raise ValueError(kind)


def _leaf(body: dict[str, Any]) -> dict[str, Any]:
    granularity = body["document_granularity"]
    return {**body, "document_granularity": "row" if granularity == "Row" else granularity}
