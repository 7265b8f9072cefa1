"""ORDER BY a distance with LIMIT: only the rows that may be among the first are measured.

    SELECT id FROM t WHERE lang = 'en' ORDER BY embedding <-> $q LIMIT 10

The table yields these rows, found as by a search, and DataFusion sorts them.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import datafusion
import pyarrow as pa

from exec_nodes.vectors.nearest import Order
from memwal_native.syntax import DistanceOrder
from memwal_sql.arguments import is_number, is_whole
from memwal_sql.statements.queries.planning import scalars
from planner.search.nearest import Nearest

# The most rows that a search is asked for; more are sorted.
_MOST = 1 << 32


def nearest_of(
    ctx: datafusion.SessionContext,
    order: DistanceOrder,
    columns: pa.Schema,
    parameters: Mapping[str, Any],
    *,
    approximate: bool,
) -> Nearest | None:
    """The rows that a query needs of a table with these columns; None if it needs all of them, as
    a value is not one of a search, or a name does not mean what it seems to. `approximate`: an
    index may find them."""
    *qualifiers, column = order.column
    if qualifiers not in ([], [order.qualifier]) or column not in columns.names:
        return None
    kind, vector = columns.field(column).type, _vector(order, parameters)
    if not vector or not pa.types.is_fixed_size_list(kind) or kind.list_size != len(vector):
        return None
    limit, *offset = [_count(text, parameters) for text in order.counts]
    if not limit or None in offset or not _is_datafusion_s(ctx, order.function):
        return None
    k = limit + sum(filter(None, offset))
    if k > _MOST:
        return None
    sort = Order(exact=not approximate, nulls_first=order.nulls_first)
    return Nearest(column, order.metric, vector, k, sort, order.is_filtered)


def _vector(order: DistanceOrder, parameters: Mapping[str, Any]) -> Sequence[float]:
    """The numbers of the vector; empty for a parameter that is not a list of numbers."""
    if order.parameter is None:
        return order.vector
    name = order.parameter[1:]
    value = scalars({name: parameters.get(name)})[name].as_py()
    if not isinstance(value, list) or not all(map(is_number, value)):
        return ()
    return [float(number) for number in value]


def _count(text: str, parameters: Mapping[str, Any]) -> int | None:
    """LIMIT or OFFSET; None for a value that is not a whole number."""
    if text.isdecimal():
        return int(text)
    value: Any = parameters.get(text[1:])  # after a $
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    return int(value) if is_whole(value, 0) else None


def _is_datafusion_s(ctx: datafusion.SessionContext, function: str) -> bool:
    """Whether a session has DataFusion's function under this name: it refuses numbers, when they
    are planned, by the error of a new session. One of the user's is not called to find out."""
    return _refusal(ctx, function) == _refusal_of_new(function)


@cache
def _refusal_of_new(function: str) -> str:
    return _refusal(datafusion.SessionContext(), function)


def _refusal(ctx: datafusion.SessionContext, function: str) -> str:
    try:
        datafusion.SessionContext.sql(ctx, f"SELECT {function}(0, 0)")
    except Exception as error:  # DataFusion raises nothing more specific
        return str(error)
    return ""
