"""The small tree that a filter's SQL text becomes: see `planner.predicates.parsing.parse`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeAlias

NEGATED = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written: `3`, `-1.50`, `1e10`."""

    text: str


@dataclass(frozen=True, slots=True)
class Typed:
    """A text with the type it is cast to: `CAST('2024-01-31' AS DATE)` is Typed("DATE", ...)."""

    kind: str
    text: str


# NULL, TRUE and FALSE, text, binary, numbers, and dates and the like.
Literal: TypeAlias = bool | str | bytes | Number | Typed | None


@dataclass(frozen=True, slots=True)
class Operand:
    """A column, with the types it is cast to, innermost first: `CAST(id AS BIGINT)`."""

    column: str
    casts: tuple[str, ...] = ()
    # What stands before the column: a table's name or, in the very same words, structs around it.
    qualifiers: tuple[str, ...] = field(default=(), compare=False)

    def is_column_of(self, names: Collection[str]) -> bool:
        """True for a column of the table that has these columns, false for a field of a struct."""
        return self.column in names and not any(part in names for part in self.qualifiers)


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
    """`operand IN (literals)`."""

    operand: Operand
    literals: tuple[Literal, ...]


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
    """Any other condition, over these columns (None: not known)."""

    columns: tuple[str, ...] | None


Predicate: TypeAlias = (
    Compare | Distinct | In | IsNull | Like | Truth | Constant | Not | And | Or | Other
)
