"""The searches of a statement: named arguments and parameters, which DataFusion's table functions
do not take.

    SELECT * FROM vector_search('t', 'embedding', $q, k => 5, nprobes => 20)
"""

import json
from collections.abc import Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from math import isfinite
from typing import Any

from memwal_native.syntax import Argument, Search
from memwal_sql.arguments import literal
from memwal_sql.errors import InvalidCallError
from memwal_sql.search.options import DEFAULT_K
from memwal_sql.session.registered import TableName, table_name
from memwal_sql.session.table_functions import FUNCTIONS
from memwal_sql.statements.queries.parsed import Text
from memwal_sql.statements.queries.places import Edit, edited

_ARGUMENTS = {
    name: ("table", *function.arguments, "k") for function in FUNCTIONS for name in function.names
}


def searched_table(call: Search) -> TableName | None:
    """The searched table; None if it is not given as text."""
    name = call.arguments[0].string
    return None if name is None else table_name(name)


def arguments_of(
    source: Text, call: Search, parameters: Mapping[str, Any], table: str | None = None
) -> str:
    """The arguments of a search by position, with parameters replaced by their values, and with
    another table's name if one is given.

    Raises InvalidCallError, with the place, for an argument that is given twice, that follows a
    named one without a name, or that is missing.
    """
    names = _ARGUMENTS[call.name]
    positional: list[str] = []
    named: dict[str, str] = {}
    for argument in call.arguments:
        text, at = _value(argument, parameters), argument.start
        if argument.name is None:
            if named:
                raise source.error("a positional argument can't follow a named one", at)
            positional.append(text)
            continue
        if argument.name in named or argument.name in names[: len(positional)]:
            raise source.error("this argument is given twice", at)
        named[argument.name] = text
    if named:
        positional = _positional(source, call, names, positional, named)
    if table is not None:
        positional[0] = literal(table)
    return ", ".join(positional)


def _positional(
    source: Text, call: Search, names: Sequence[str], positional: list[str], named: dict[str, str]
) -> list[str]:
    for name in names[len(positional) :]:
        if name in named or name == "k":
            positional.append(named.pop(name, str(DEFAULT_K)))
        else:
            raise source.error(f"the argument {name} is missing", call.start)
    if named and len(positional) > len(names):
        message = "give options by name or as one struct, but not both"
        raise source.error(message, call.arguments[-1].start)
    if list(named) == ["options"]:
        positional.append(named.pop("options"))
    if named:
        options = ", ".join(f"{literal(name)}, {value}" for name, value in named.items())
        positional.append(f"named_struct({options})")
    return positional


def _value(argument: Argument, parameters: Mapping[str, Any]) -> str:
    edits = [
        Edit(start, end, value_literal(parameters[name[1:]], name))
        for name, start, end in argument.parameters
        if name[1:] in parameters
    ]
    return edited(argument.text, edits)


def value_literal(value: Any, name: str) -> str:
    """A value as SQL text: numbers, texts, lists of them, options by name."""
    if hasattr(value, "tolist"):  # numpy
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
        return f"make_array({', '.join(value_literal(element, name) for element in value)})"
    raise InvalidCallError(f"{name} of a search can't be {value!r}, a {type(value).__name__}")
