"""The three searches of a table, checked against its columns and ready to be planned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.arrays import is_variable_list
from exec_nodes.arrow.text_columns import text_paths
from exec_nodes.base.columns import DISTANCE_FIELD, QUERY_INDEX_FIELD, SCORE_FIELD
from exec_nodes.fuse_exec import RELEVANCE_FIELD
from exec_nodes.take_exec import TakeExec
from exec_nodes.text.query.parse import parse_query
from exec_nodes.text.scoring.resolve import Resolved
from memwal_sql.arguments import is_number, is_whole, shortened
from memwal_sql.errors import InvalidCallError
from memwal_sql.search.options import TextOptions, VectorOptions
from planner.model import Snapshot
from planner.predicates.condition import Condition
from planner.search.full_text import TextQuery, plan_full_text_search
from planner.search.hybrid import HybridQuery, plan_hybrid_search
from planner.search.vector import VectorQuery, check_dimension, plan_vector_search

Columns = tuple[str, ...]
Filters = tuple[Condition, ...]


VECTOR_OPTIONS = tuple(VectorOptions.__annotations__)
TEXT_OPTIONS = tuple(TextOptions.__annotations__)
FUSION_OPTIONS = ("candidates", "vector_weight", "text_weight", "rrf_k")
_MOST_ROWS = 2**40

_FUSION_NUMBERS = ("vector_weight", "text_weight", "rrf_k")
_SWITCHES = ("exact", "plain")


def checked_options(options: Mapping[str, Any], allowed: Iterable[str]) -> dict[str, Any]:
    """The options that are not None.

    Raises InvalidCallError for unknown names, and for values of another type where the planner
    does not look at them.
    """
    allowed = tuple(allowed)
    unknown = sorted(set(options) - set(allowed))
    if unknown:
        raise InvalidCallError(f"unknown options {unknown}; there are {list(allowed)}")
    set_options = {name: value for name, value in options.items() if value is not None}
    for name, value in set_options.items():
        if name == "candidates":
            set_options[name] = checked_count(value, name)
        if name in _FUSION_NUMBERS and not is_number(value):
            raise InvalidCallError(f"{name}={value!r} must be a number")
        if name in _SWITCHES and not isinstance(value, bool):
            raise InvalidCallError(f"{name}={value!r} must be true or false")
    return set_options


def checked_count(rows: Any, name: str = "k") -> int:
    """How many rows are asked for, at most as many as a table can have. Raises InvalidCallError
    unless it is a number of rows."""
    if not is_whole(rows, least=1):
        raise InvalidCallError(f"{name}={rows!r} must be a whole number of rows, 1 or more")
    return min(int(rows), _MOST_ROWS)


class SearchPlan(Protocol):
    """Plans a search; see `Search`."""

    def __call__(
        self,
        columns: Columns,
        filters: Filters,
        snapshot: Snapshot,
        weights: Resolved | None = None,
    ) -> TakeExec: ...


@dataclass(frozen=True)
class Search:
    """A search of one table.

    Attributes:
        added: the columns that it yields after the requested ones.
        counts_all: whether rows that the filters exclude matter too, for the statistics of scores:
            then no region may be left out of the snapshot.
        plan: its plan for columns to return, filters that rows must meet before they are ranked,
            and a snapshot; of a part of a table it takes the weights of the whole.
    """

    added: pa.Schema
    counts_all: bool
    plan: SearchPlan


def vector_search(
    schema: pa.Schema, column: str, query: Any, k: Any, options: Mapping[str, Any]
) -> Search:
    """The `k` nearest rows to one vector, or to each of several; see `Table.vector_search`."""
    vector_query = _vector_query(schema, column, query, k, checked_options(options, VECTOR_OPTIONS))
    batch = [QUERY_INDEX_FIELD] if vector_query.queries > 1 else []
    added = _added(schema, DISTANCE_FIELD, *batch)

    def plan(
        columns: Columns, filters: Filters, snapshot: Snapshot, weights: Resolved | None = None
    ) -> TakeExec:
        del weights  # a distance depends on one row alone
        return plan_vector_search(replace(vector_query, columns=columns, filters=filters), snapshot)

    return Search(added, False, plan)


def full_text_search(
    schema: pa.Schema, column: str | Sequence[str], query: Any, k: Any, options: Mapping[str, Any]
) -> Search:
    """The `k` best texts; see `Table.full_text_search`."""
    names = _names(schema, column)
    text_query = _text_query(schema, names, query, k, checked_options(options, TEXT_OPTIONS))
    added = _added(schema, SCORE_FIELD)

    def plan(
        columns: Columns, filters: Filters, snapshot: Snapshot, weights: Resolved | None = None
    ) -> TakeExec:
        query = replace(text_query, columns=columns, filters=filters, weights=weights)
        return plan_full_text_search(query, snapshot)

    return Search(added, True, plan)


def hybrid_search(
    schema: pa.Schema,
    vector_column: str,
    vector: Any,
    text_column: str | Sequence[str],
    text: Any,
    k: Any,
    options: Mapping[str, Any],
    *,
    whole: bool = False,
) -> Search:
    """The `k` rows that do best in both searches together, or the `whole` of both rankings; see
    `Table.hybrid_search`."""
    every = (*VECTOR_OPTIONS, *TEXT_OPTIONS, *FUSION_OPTIONS)
    set_options, names = checked_options(options, every), _names(schema, text_column)

    def of(names: Sequence[str]) -> dict[str, Any]:
        return {name: set_options[name] for name in names if name in set_options}

    fusion = of(FUSION_OPTIONS)
    constant = {"constant": fusion.pop("rrf_k")} if "rrf_k" in fusion else {}
    hybrid_query = HybridQuery(
        _vector_query(schema, vector_column, vector, k, of(VECTOR_OPTIONS)),
        _text_query(schema, names, text, k, of(TEXT_OPTIONS)),
        checked_count(k),
        (),
        whole=whole,
        **fusion,
        **constant,
    )
    ranks = (DISTANCE_FIELD.with_nullable(True), SCORE_FIELD.with_nullable(True))
    added = _added(schema, *ranks, RELEVANCE_FIELD)

    def plan(
        columns: Columns, filters: Filters, snapshot: Snapshot, weights: Resolved | None = None
    ) -> TakeExec:
        text = replace(hybrid_query.text, weights=weights)
        query = replace(hybrid_query, text=text, columns=columns, filters=filters)
        return plan_hybrid_search(query, snapshot)

    return Search(added, True, plan)


def _vector_query(
    schema: pa.Schema, column: str, query: Any, k: Any, options: Mapping[str, Any]
) -> VectorQuery:
    late, vectors = is_variable_list(_field(schema, column).type), query_vectors(query)
    vector_query = VectorQuery(column, vectors, checked_count(k), (), late=late, **options)
    check_dimension(vector_query, schema)
    return vector_query


def _text_query(
    schema: pa.Schema, columns: Columns, query: Any, k: Any, options: Mapping[str, Any]
) -> TextQuery:
    texts = text_paths(schema)
    for name in columns:
        if name not in texts:
            kind = _field(schema, name).type
            raise InvalidCallError(f"column {name!r} is {kind}; there are texts in {texts}")
    options = dict(options)
    plain = options.pop("plain", False)
    if plain and not isinstance(query, str):
        raise InvalidCallError(f"plain=True is for words as a text, not {shortened(repr(query))}")
    if len(columns) == 1:
        if plain:
            query, options = {"match": {"query": query, **options}}, {}
        expression = parse_query(query, columns[0], texts, options)
    elif plain or (isinstance(query, str) and not query.lstrip().startswith("{")):
        form = {"multi_match": {"query": query, "columns": columns, **options}}
        expression = parse_query(form, None, texts)
    else:
        raise InvalidCallError(
            f"the columns {columns} can be searched together for a text only: name them inside "
            "the query"
        )
    return TextQuery(expression, checked_count(k), ())


def _names(schema: pa.Schema, column: Any) -> Columns:
    if isinstance(column, str):
        return (column,)
    if isinstance(column, bytes | Mapping) or not isinstance(column, Iterable):
        raise _no_column(schema, column)
    return tuple(column)


def _field(schema: pa.Schema, column: Any) -> pa.Field:
    if not isinstance(column, str) or column not in schema.names:
        raise _no_column(schema, column)
    return schema.field(column)


def _no_column(schema: pa.Schema, column: Any) -> InvalidCallError:
    return InvalidCallError(f"{column!r} is not a column of the table; it has {schema.names}")


def _added(schema: pa.Schema, *fields: pa.Field) -> pa.Schema:
    clashing = [field.name for field in fields if field.name in schema.names]
    if clashing:
        raise InvalidCallError(
            f"the search adds the columns {clashing}, and the table has them already: rename those"
        )
    return pa.schema(fields)


def query_vectors(value: Any) -> npt.NDArray[Any]:
    """(queries, dimension): one vector, or several as the rows of a matrix or a list of lists.

    Raises InvalidCallError for values that are not numbers, and for nulls.
    """
    vector = value
    if isinstance(vector, pa.ChunkedArray | pa.Array):
        vector = vector.to_pylist()
    elif isinstance(vector, pa.Scalar):
        vector = vector.as_py()
    if isinstance(vector, bytes):
        vector = np.frombuffer(vector, np.uint8)
    null = None
    try:
        numbers = np.asarray(vector)
        if numbers.dtype.kind == "O":  # nulls, decimals, or lists of different lengths
            null = _first_null(numbers)
            numbers = np.asarray(vector, np.float64)
    except (ValueError, TypeError) as error:
        raise _unusable(value) from error
    if null is not None:
        raise InvalidCallError(f"{null} is null: a vector to search for has a number everywhere")
    if numbers.dtype.kind not in "iuf" or numbers.ndim not in (1, 2) or not numbers.size:
        raise _unusable(value)
    return np.atleast_2d(numbers)


def _first_null(elements: npt.NDArray[np.object_]) -> str | None:
    """Where the first null is among the elements of one query or several."""
    for place, element in np.ndenumerate(elements):
        if element is None and place:
            query = f"query {place[0]}" if len(place) > 1 else "the query"
            return f"element {place[-1]} of {query}"
    return None


def _unusable(value: Any) -> InvalidCallError:
    return InvalidCallError(
        f"the query {shortened(repr(value))} is not a vector: give a list of numbers, or a list of "
        "such lists for several queries at once"
    )
