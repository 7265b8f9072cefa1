"""The small tree that a filter becomes; `memwal_native.Predicate.tree` builds it of these classes.

Trees are equal only if they mean the same, so that caches may use them as keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}

# Exactly a value of a type: temporal ones count the units of their type, decimals are unscaled, and
# floats the shortest texts that tell them from every other double, as 0.0 == -0.0 in Python.
Value: TypeAlias = bool | int | str | bytes | None


@dataclass(frozen=True, slots=True)
class Literal:
    """One value; None is NULL."""

    type: pa.DataType
    value: Value


@dataclass(frozen=True, slots=True)
class Operand:
    """A column, with the types it is cast to, innermost first: `CAST(id AS BIGINT)`."""

    column: str
    casts: tuple[pa.DataType, ...] = ()


@dataclass(frozen=True, slots=True)
class Compare:
    """`operand op literal`, op one of `= <> < <= > >=`."""

    operand: Operand
    op: str
    literal: Literal


@dataclass(frozen=True, slots=True)
class Distinct:
    """`operand IS DISTINCT FROM literal`, which is never NULL."""

    operand: Operand
    literal: Literal


@dataclass(frozen=True, slots=True)
class In:
    """`operand IN (values)`, which are all of one type."""

    operand: Operand
    type: pa.DataType
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """`operand IS NULL`."""

    operand: Operand


@dataclass(frozen=True, slots=True)
class Like:
    """`operand LIKE pattern`; with the backslash as escape character."""

    operand: Operand
    pattern: str
    any_case: bool


@dataclass(frozen=True, slots=True)
class Call:
    """`function(operand, literal)`: conclusions need knowledge of the function."""

    function: str
    operand: Operand
    literal: Literal


@dataclass(frozen=True, slots=True)
class Truth:
    """`argument IS TRUE` or `IS FALSE`, which is never NULL."""

    argument: Predicate
    value: bool


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Not:
    """`NOT argument`."""

    argument: Predicate


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more arguments."""

    arguments: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Any of two or more arguments."""

    arguments: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Other:
    """Any other condition, over these columns: nobody may conclude anything from it."""

    columns: tuple[str, ...]


UNKNOWN = Other(())

Predicate: TypeAlias = (
    Compare | Distinct | In | IsNull | Like | Call | Truth | Constant | Not | And | Or | Other
)
