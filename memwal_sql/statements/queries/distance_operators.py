"""The distance operators of pgvector, which DataFusion does not plan.

    SELECT id FROM t ORDER BY embedding <-> $q LIMIT 10

`a <-> b` is `array_distance(a, b)`, `a <=> b` is `cosine_distance(a, b)`, and `a <#> b` is
`0.0 - inner_product(a, b)`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa

from memwal_sql.arguments import is_number, shortened
from memwal_sql.session.table_functions import search_functions, whole_name
from memwal_sql.statements.queries.places import Edit
from memwal_sql.statements.queries.tokens import Statement, Token

# Operator -> what stands before and after its operands. `<->` and `<#>` are two symbols each.
_SPELLINGS = {
    "<->": ("array_distance(", ")"),
    "<#>": ("(0.0 - inner_product(", "))"),
    "<=>": ("cosine_distance(", ")"),
}
# Words that no operand begins with; a parenthesis or bracket after them is not theirs.
_NO_NAMES = frozenset(
    """ALL AND ANY AS ASC BETWEEN BY CASE DESC DISTINCT ELSE END EXCEPT FROM HAVING IN INTERSECT
    INTO IS JOIN LIKE LIMIT NOT OFFSET ON OR ORDER QUALIFY RETURNING SELECT SET THEN UNION USING
    VALUES WHEN WHERE WITH""".split()  # noqa: SIM905
)
# They bind more tightly than a distance in PostgreSQL.
_ARITHMETIC = frozenset("+-*/%^")
_OPENING = frozenset("([{")


def with_distances(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> Statement:
    """The statement with functions for the operators.

    `<=>` is DataFusion's equality with NULLs, too: it is a distance where an operand is seen to be
    a vector, as a list, a parameter with one, or a vector column of a table that is named.

    Raises InvalidCallError, with the place, for an operand that is no column, literal, parameter,
    call or parenthesis, for a text that is no vector, and for one that arithmetic stands beside.
    """
    after = 0
    while True:
        place, width = next(_operators(statement, after), (None, 0))
        if place is None:
            return statement
        operator = "".join(statement.symbol(place + n) for n in range(width))
        first, last = _before(statement, place), _end(statement, place + width)
        if first is None or last is None:
            if operator == "<=>":  # what DataFusion takes it for
                after = place + 1
                continue
            side = "before" if first is None else "after"
            raise statement.error(f"a distance needs a vector {side} its operator", place)
        found = (first, place), (place + width, last)
        if operator == "<=>" and not any(
            _is_vector(ctx, statement, *one, parameters) for one in found
        ):
            after = place + 1
            continue
        for beside in (first - 1, last):
            if beside >= 0 and statement.symbol(beside) in _ARITHMETIC:
                raise statement.error(
                    "put what the distance is of, or the distance, into parentheses", beside
                )
        opening, closing = _SPELLINGS[operator]
        spans = [(statement.tokens[p].start, statement.tokens[q - 1].end) for p, q in found]
        (start, stop), (begin, end) = spans
        edits = [
            Edit(start, start, opening),
            Edit(stop, begin, ", "),
            Edit(end, end, closing),
        ]
        for span, one in zip(spans, found, strict=True):
            vector = _written_vector(statement, *one, parameters)
            edits += [] if vector is None else [Edit(*span, vector)]
        statement = statement.edited(edits)
        after = first


def _operators(statement: Statement, start: int) -> Iterator[tuple[int, int]]:
    """The places from one on where an operator begins, and how many symbols it is."""
    for place in range(start, len(statement)):
        symbol = statement.symbol(place)
        if symbol in _SPELLINGS:
            yield place, 1
        elif (
            symbol + statement.symbol(place + 1) in _SPELLINGS
            and statement.tokens[place].end == statement.tokens[place + 1].start
        ):
            yield place, 2


def _before(statement: Statement, end: int) -> int | None:
    """The place where the longest operand begins that ends before one; None if none does."""
    found = None
    for start in range(end - 1, -1, -1):
        if statement.symbol(start) in (",", ";") and found is not None:
            break
        stop = _end(statement, start)
        if stop == end:
            found = start
        elif stop is not None and stop > end:
            break  # what it stands in
    return found


def _end(statement: Statement, start: int) -> int | None:
    """The place after the longest operand that begins at one; None if none does."""
    if start >= len(statement):
        return None
    token = statement.tokens[start]
    place = start + 1
    if token.kind == "symbol":
        if token.value not in _OPENING:
            return None
        place = statement.closing(start)
    elif token.keyword in _NO_NAMES:
        return None
    elif token.is_name:
        while statement.symbol(place) == "." and place + 1 < len(statement):
            place += 2
        if statement.symbol(place) == "(":
            place = statement.closing(place)
    while True:
        if statement.symbol(place) == "[":
            place = statement.closing(place)
        elif statement.symbol(place) == "::":
            place += 2
            if statement.symbol(place) == "(":
                place = statement.closing(place)
        else:
            return place


def _written_vector(
    statement: Statement, start: int, stop: int, parameters: Mapping[str, Any]
) -> str | None:
    """The list that an operand stands for which is a vector as text, as pgvector writes them; None
    for another operand. Raises InvalidCallError, with the place, for another text."""
    token = statement.tokens[start]
    whole = stop == start + 1 or (
        statement.symbol(start + 1) == "::" and statement.keyword(start + 2) == "VECTOR"
    )
    text = _parameter(token, parameters) if token.kind == "placeholder" else token.value
    if token.kind not in ("string", "placeholder") or not whole or not isinstance(text, str):
        return None
    try:
        elements = json.loads(text)
        if isinstance(elements, list) and all(map(is_number, elements)):
            numbers = json.dumps([float(one) for one in elements], allow_nan=False)
            return f"make_array({numbers[1:-1]})"
    # JSON that is none or nests without end, infinities, and whole numbers above all floats.
    except (ValueError, OverflowError, RecursionError):
        pass
    raise statement.error(f"{shortened(text)!r} is no vector, as '[0.5, 1]' is", start)


def _parameter(token: Token, parameters: Mapping[str, Any]) -> Any:
    value = parameters.get(token.value[1:])
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _is_vector(
    ctx: datafusion.SessionContext,
    statement: Statement,
    start: int,
    stop: int,
    parameters: Mapping[str, Any],
) -> bool:
    first, last = statement.tokens[start], statement.tokens[stop - 1]
    if first.kind == "placeholder":
        return _is_list(parameters.get(first.value[1:]))
    if first.kind == "string":
        return first.value.lstrip().startswith("[")
    if statement.symbol(start) == "[" or first.keyword == "ARRAY":
        return True
    return last.is_name and last.name in _vector_columns(ctx, statement)


def _is_list(value: Any) -> bool:
    if isinstance(value, pa.Scalar):
        return isinstance(value, pa.ListScalar | pa.FixedSizeListScalar)
    if isinstance(value, Sequence):
        return not isinstance(value, str | bytes)
    return isinstance(value, np.ndarray | pa.Array | pa.ChunkedArray)


def _vector_columns(ctx: datafusion.SessionContext, statement: Statement) -> set[str]:
    """The vector columns of all tables that are named."""
    functions, found = search_functions(ctx), set()
    for name in {token.name for token in statement.tokens if token.is_name}:
        table = functions.table(whole_name([name]), ctx)
        if table is not None:
            fields = table[0].schema
            found |= {one.name for one in fields if pa.types.is_fixed_size_list(one.type)}
    return found
