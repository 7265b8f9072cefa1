"""Spark's pushed filters as SQL conditions.

Spark applies every filter again, so a condition here may let too many rows through but never too
few. Floating point columns are left out: NaN is equal to itself in Spark alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from exec_nodes.kernels.literals import literals

_COMPARISONS: dict[type, str] = {
    EqualTo: "=",
    EqualNullSafe: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


def conditions(filters: Iterable[Filter], schema: pa.Schema) -> list[str]:
    """Conditions in DataFusion's dialect that every row kept by `filters` meets."""
    found = (_condition(one, schema) for one in filters)
    return [condition for condition in found if condition is not None]


def _condition(one: Filter, schema: pa.Schema) -> str | None:
    path: tuple[str, ...] = getattr(one, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    field = schema.field(path[0])
    name = '"' + field.name.replace('"', '""') + '"'
    if isinstance(one, IsNull):
        return f"{name} IS NULL"
    if isinstance(one, IsNotNull):
        return f"{name} IS NOT NULL"
    if pa.types.is_floating(field.type):
        return None
    if isinstance(one, StringStartsWith):
        return _prefix(name, one.value)
    if isinstance(one, In):
        values = _literals([v for v in one.value if v is not None], field.type)
        return f"{name} IN ({', '.join(values)})" if values else None
    operator = _COMPARISONS.get(type(one))
    value = getattr(one, "value", None)
    if operator is None or value is None:
        return None
    values = _literals([value], field.type)
    return f"{name} {operator} {values[0]}" if values else None


def _prefix(name: str, prefix: Any) -> str | None:
    if not isinstance(prefix, str) or any(sign in prefix for sign in "%_\\"):
        return None
    quoted = prefix.replace("'", "''")
    return f"{name} LIKE '{quoted}%'"


def _literals(values: list[Any], kind: pa.DataType) -> list[str] | None:
    try:
        texts = literals(pa.array(values, kind))
    except (pa.ArrowException, ValueError, TypeError, OverflowError, NotImplementedError):
        return None  # a value that the column can't hold, or a type without literals
    return None if texts is None else list(texts)
