"""The searches of a statement: named arguments and parameters, which DataFusion's table functions
take neither of.

    SELECT * FROM vector_search('t', 'embedding', $q, k => 5, nprobes => 20)
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from math import isfinite
from typing import Any

from memwal_sql.arguments import literal
from memwal_sql.errors import InvalidCallError
from memwal_sql.search.request import DEFAULT_K
from memwal_sql.session.table_functions import FUNCTIONS, TableName, table_name
from memwal_sql.statements.queries.tokens import Statement, statement_of

_ARGUMENTS = {
    name: ("table", *function.arguments, "k") for function in FUNCTIONS for name in function.names
}


@dataclass(frozen=True, slots=True)
class SearchCall:
    """A call.

    Attributes:
        table: that is searched; None if it is not given as text.
        start, end: of the characters between its parentheses.
        arguments: their texts, by position, the first of which names the table.
    """

    table: TableName | None
    start: int
    end: int
    arguments: tuple[str, ...]

    def text(self, table: str | None = None) -> str:
        """Its arguments, with another table's name if one is given."""
        first = self.arguments[:1] if table is None else (literal(table),)
        return ", ".join((*first, *self.arguments[1:]))


def search_calls(statement: Statement, parameters: Mapping[str, Any]) -> Iterator[SearchCall]:
    """The searches that stand in a statement, with the values of parameters written out.

    Raises InvalidCallError, with the place, for an argument that is named twice or that others
    stand after.
    """
    for place in range(1, len(statement) - 1):
        names = _ARGUMENTS.get(statement.tokens[place].name)
        if names is None or not statement.tokens[place].is_name:
            continue
        if statement.symbol(place + 1) != "(":
            continue
        first, after = place + 2, statement.closing(place + 1)
        parts = statement.split(first, after - 1)
        if not parts:
            continue
        arguments = _positional(statement, parts, names, parameters)
        tokens = statement_of(arguments[0]).tokens
        yield SearchCall(
            table_name(tokens[0].value) if [one.kind for one in tokens] == ["string"] else None,
            statement.tokens[first].start,
            statement.tokens[after - 2].end,
            tuple(arguments),
        )


def _positional(
    statement: Statement,
    parts: Sequence[tuple[int, int]],
    names: Sequence[str],
    parameters: Mapping[str, Any],
) -> list[str]:
    given: list[str] = []
    named: dict[str, str] = {}
    for first, last in parts:
        if statement.symbol(first + 1) != "=>":
            if named:
                raise statement.error("an argument without a name follows one with a name", first)
            given.append(_value(statement, first, last, parameters))
            continue
        name = statement.tokens[first].name
        if name in named or name in names[: len(given)]:
            raise statement.error("this argument is given twice", first)
        if first + 2 == last:
            raise statement.error("the value of this argument is missing", first)
        named[name] = _value(statement, first + 2, last, parameters)
    if not named:
        return given
    for name in names[len(given) :]:
        if name in named or name == "k":
            given.append(named.pop(name, str(DEFAULT_K)))
        else:
            raise statement.error(f"the argument {name} is missing", parts[0][0])
    if named and len(given) > len(names):
        raise statement.error("give options by name or as one struct, not both", parts[-1][0])
    if list(named) == ["options"]:
        given.append(named.pop("options"))
    if named:
        options = ", ".join(f"{literal(name)}, {value}" for name, value in named.items())
        given.append(f"named_struct({options})")
    return given


def _value(statement: Statement, first: int, last: int, parameters: Mapping[str, Any]) -> str:
    text, begin = "", statement.tokens[first].start
    for token in statement.tokens[first:last]:
        if token.kind == "placeholder" and token.value[1:] in parameters:
            value = value_literal(parameters[token.value[1:]], token.value)
            text += statement.text[begin : token.start] + value
            begin = token.end
    return text + statement.text[begin : statement.tokens[last - 1].end]


def value_literal(value: Any, name: str) -> str:
    """A value as SQL writes it: numbers, texts, lists of them, options by name."""
    if hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    elif hasattr(value, "as_py"):
        value = value.as_py()
    elif hasattr(value, "to_pylist"):
        value = value.to_pylist()
    if value is None:
        return "NULL"
    if isinstance(value, bool | Decimal):
        return str(value)
    if isinstance(value, int | float) and isfinite(value):
        return repr(value)
    if isinstance(value, str | date | time):
        return literal(str(value))
    if isinstance(value, Mapping):
        return literal(json.dumps(dict(value)))
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        return f"make_array({', '.join(value_literal(one, name) for one in value)})"
    raise InvalidCallError(f"{name} of a search can't be {value!r}, a {type(value).__name__}")
