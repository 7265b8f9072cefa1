"""The distance operators of pgvector, which DataFusion does not plan.

    SELECT id FROM t ORDER BY embedding <-> $q LIMIT 10

`a <-> b` is `array_distance(a, b)`, `a <=> b` is `cosine_distance(a, b)`, and `a <#> b` is
`0.0 - inner_product(a, b)`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa

from memwal_native.syntax import Operand, SqlParser
from memwal_sql.arguments import is_number, shortened
from memwal_sql.session.registered import whole_name
from memwal_sql.session.session import session_of
from memwal_sql.statements.queries.parsed import Text
from memwal_sql.statements.queries.places import Edit, edited
from memwal_sql.statements.queries.planning import parser_of

# Operator -> text before its operands, and text after them.
_SPELLINGS = {
    "<->": ("array_distance(", ")"),
    "<#>": ("(0.0 - inner_product(", "))"),
    "<=>": ("cosine_distance(", ")"),
}


def with_distances(
    ctx: datafusion.SessionContext, text: str, parameters: Mapping[str, Any]
) -> Text:
    """A text in which functions replace the operators, which bind less tightly than arithmetic.

    `<=>` is also DataFusion's equality with NULLs. It is a distance if an operand is visibly a
    vector: a list, a parameter with a list, or a vector column of a table of the session.

    Raises InvalidCallError, with the place, for a missing operand, and for a text that is not a
    vector.
    """
    source = Text(text, text)
    if not any(operator in text for operator in _SPELLINGS):
        return source
    with source.parser_errors():
        distances = parser_of(ctx).distances(text)
    edits: list[Edit] = []
    for distance in distances:
        left, right, operator = distance.left, distance.right, distance.operator
        is_equality = operator == "<=>" and not any(
            side is not None and _is_vector(ctx, text, side, parameters) for side in (left, right)
        )
        if is_equality:
            continue
        if left is None or right is None:
            side = "before" if left is None else "after"
            raise source.error(f"a distance needs a vector {side} its operator", distance.start)
        opening, closing = _SPELLINGS[operator]
        edits += [
            Edit(left.part.start, left.part.start, opening),
            Edit(left.part.end, right.part.start, ", "),
            Edit(right.part.end, right.part.end, closing),
        ]
        for operand in (left, right):
            vector = _written_vector(source, operand, parameters)
            if vector is not None:
                edits.append(Edit(operand.part.start, operand.part.end, vector))
    return Text(edited(text, edits), text, edits)


def _written_vector(source: Text, operand: Operand, parameters: Mapping[str, Any]) -> str | None:
    """The list for an operand that is a vector as text, as pgvector writes them; None for another
    operand. Raises InvalidCallError, with the place, for another text."""
    text = _parameter(operand, parameters) if operand.kind == "parameter" else operand.value
    if operand.kind not in ("text", "parameter") or not isinstance(text, str):
        return None
    try:
        elements = json.loads(text)
        if isinstance(elements, list) and all(map(is_number, elements)):
            numbers = json.dumps([float(element) for element in elements], allow_nan=False)
            return f"make_array({numbers[1:-1]})"
    # JSON that is invalid or nests too deep, infinities, and whole numbers above all floats.
    except (ValueError, OverflowError, RecursionError):
        pass
    message = f"{shortened(text)!r} is not a vector, such as '[0.5, 1]'"
    raise source.error(message, operand.part.start)


def _parameter(operand: Operand, parameters: Mapping[str, Any]) -> Any:
    value = parameters.get(operand.value[1:])
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _is_vector(
    ctx: datafusion.SessionContext, text: str, operand: Operand, parameters: Mapping[str, Any]
) -> bool:
    if operand.kind == "parameter":
        return _is_list(parameters.get(operand.value[1:]))
    if operand.kind == "text":
        return operand.value.lstrip().startswith("[")
    if operand.kind == "column":
        return operand.value in _vector_columns(ctx, text)
    return operand.kind == "list"


def _is_list(value: Any) -> bool:
    if isinstance(value, pa.Scalar):
        return isinstance(value, pa.ListScalar | pa.FixedSizeListScalar)
    if isinstance(value, Sequence):
        return not isinstance(value, str | bytes)
    return isinstance(value, np.ndarray | pa.Array | pa.ChunkedArray)


def _vector_columns(ctx: datafusion.SessionContext, text: str) -> set[str]:
    """The vector columns of all tables named in a text."""
    session, columns = session_of(ctx), set()
    for _, name, _, _ in SqlParser.tokens(text):
        table = session.table(whole_name([name]), ctx)
        if table is not None:
            fields = table[0].schema
            columns |= {f.name for f in fields if pa.types.is_fixed_size_list(f.type)}
    return columns
