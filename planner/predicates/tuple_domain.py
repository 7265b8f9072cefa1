"""Tuple domains: where the rows are that a predicate may keep.

A tuple domain gives a domain for some columns (any value for the others); a row that makes the
predicate true is in at least one of them. Made for pruning and for finding the keys of a lookup.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from exec_nodes.arrow.arrays import is_text
from exec_nodes.keys.keys import is_integral
from planner.predicates.domain import (
    ANYTHING,
    NOT_NULL,
    NOTHING,
    ONLY_NULL,
    Domain,
    Interval,
    domain_of,
)
from planner.predicates.expr import (
    NEGATED,
    And,
    Call,
    Compare,
    Constant,
    Distinct,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Operand,
    Or,
    Other,
    Predicate,
    Truth,
)
from planner.predicates.literals import InexactError, compared, points_of, python_values

TupleDomain: TypeAlias = Mapping[str, Domain]

# More tuple_domains than this are made coarser: pruning gets worse, never wrong.
_MOST_TUPLE_DOMAINS = 256

_EVERYWHERE: tuple[TupleDomain, ...] = ({},)

_MAX_KEYS = 1_000_000


def tuple_domains(
    predicate: Predicate, schema: pa.Schema, columns: Collection[str]
) -> tuple[TupleDomain, ...]:
    """Tuple domains over `columns` that hold every row for which `predicate` is true.

    None at all: no row can be. Conditions on columns beyond `columns` say nothing.
    """
    return _tuple_domains(predicate, True, _Scope(schema, frozenset(columns)))


@dataclass(frozen=True, slots=True)
class _Scope:
    """The columns of a table, and those that tuple domains are computed for."""

    schema: pa.Schema
    columns: frozenset[str]


def _tuple_domains(predicate: Predicate, want: bool, scope: _Scope) -> tuple[TupleDomain, ...]:
    """Tuple domains of the rows for which `predicate` is `want`; NULL is neither."""
    match predicate:
        case Not(argument):
            return _tuple_domains(argument, not want, scope)
        case And(arguments) | Or(arguments):
            parts = [_tuple_domains(argument, want, scope) for argument in arguments]
            return _all(parts) if isinstance(predicate, And) == want else _any(parts)
        case Truth(argument, value):
            # NOT TRUE means FALSE or NULL, and nothing is known about NULL.
            return _tuple_domains(argument, value, scope) if want else _EVERYWHERE
        case Constant(value):
            return _EVERYWHERE if value is want else ()
        case Call() | Other():
            return _EVERYWHERE
    return _leaf(predicate, want, scope)


def _leaf(
    leaf: Compare | Distinct | In | IsNull | Like, want: bool, scope: _Scope
) -> tuple[TupleDomain, ...]:
    column = leaf.operand.column
    if column not in scope.columns or scope.schema.get_field_index(column) < 0:
        return _EVERYWHERE
    try:
        domain = _domain(leaf, want, scope.schema.field(column).type)
    except InexactError:
        return _EVERYWHERE
    return () if domain.is_empty else ({column: domain},)


def _domain(leaf: Compare | Distinct | In | IsNull | Like, want: bool, kind: pa.DataType) -> Domain:
    match leaf:
        case Compare(operand, op, literal):
            return compared(kind, operand, op if want else NEGATED[op], literal)
        case IsNull(operand):
            if operand.casts:
                raise InexactError
            return ONLY_NULL if want else NOT_NULL
        case Distinct(operand, literal):
            return _distinct(operand, literal, want, kind)
        case In():
            return _in(leaf, want, kind)
        case Like():
            return _like(leaf, kind) if want else NOT_NULL


def _distinct(operand: Operand, literal: Literal, want: bool, kind: pa.DataType) -> Domain:
    if literal.value is None:
        return _domain(IsNull(operand), not want, kind)
    domain = compared(kind, operand, "<>" if want else "=", literal)
    return _join([domain, ONLY_NULL]) if want else domain


def _in(leaf: In, want: bool, kind: pa.DataType) -> Domain:
    literals = (Literal(leaf.type, value) for value in leaf.values)
    if not want:
        if None in leaf.values:
            return NOTHING
        domain = NOT_NULL
        # One "differs" for each value would make as many intervals; a few are worth it.
        for literal in literals if len(leaf.values) <= 16 else ():
            domain = domain.meet(compared(kind, leaf.operand, "<>", literal))
        return domain
    points = points_of(kind, leaf.operand, leaf.type, leaf.values)
    if points is not None:
        return Domain(frozenset(points))
    domains = [compared(kind, leaf.operand, "=", literal) for literal in literals]
    return domain_of(
        frozenset().union(*(d.points for d in domains)),
        (interval for d in domains for interval in d.intervals),
    )


def _like(like: Like, kind: pa.DataType) -> Domain:
    if not is_text(kind) or like.operand.casts:
        raise InexactError
    if like.any_case:
        return NOT_NULL
    prefix = ""
    for character in like.pattern:
        if character in "%_\\":
            return Domain(intervals=(starting_with(prefix),))
        prefix += character
    return Domain(frozenset((prefix,)))


def starting_with(prefix: str) -> Interval:
    """The texts that start with `prefix`."""
    for at in range(len(prefix) - 1, -1, -1):
        code = ord(prefix[at]) + 1
        if code == 0xD800:
            code = 0xE000
        if code <= 0x10FFFF:
            return Interval(prefix, prefix[:at] + chr(code), high_open=True)
    return Interval(prefix, None)


def _all(parts: Sequence[tuple[TupleDomain, ...]]) -> tuple[TupleDomain, ...]:
    """The tuple_domains of a conjunction, smallest parts first."""
    result = _EVERYWHERE
    for part in sorted(parts, key=len):
        if len(result) * len(part) > _MOST_TUPLE_DOMAINS:
            # Leaving a condition out keeps every row.
            continue
        met = (_intersect(a, b) for a in result for b in part)
        result = tuple(domains for domains in met if domains is not None)
    return result


def _intersect(a: TupleDomain, b: TupleDomain) -> TupleDomain | None:
    met = dict(a)
    for column, domain in b.items():
        met[column] = domain.meet(met[column]) if column in met else domain
        if met[column].is_empty:
            return None
    return met


def _any(parts: Sequence[tuple[TupleDomain, ...]]) -> tuple[TupleDomain, ...]:
    """The domains of a disjunction; domains over the same column become one."""
    single: dict[str, list[Domain]] = {}
    result: list[TupleDomain] = []
    for part in parts:
        for domains in part:
            if not domains:
                return _EVERYWHERE
            if len(domains) == 1:
                ((column, domain),) = domains.items()
                single.setdefault(column, []).append(domain)
            else:
                result.append(domains)
    result += [{column: _join(domains)} for column, domains in single.items()]
    return tuple(result) if len(result) <= _MOST_TUPLE_DOMAINS else (_hull(result),)


def _join(domains: Sequence[Domain]) -> Domain:
    return Domain(
        frozenset().union(*(d.points for d in domains)),
        tuple(dict.fromkeys(interval for d in domains for interval in d.intervals)),
        any(d.null for d in domains),
    )


def _hull(parts: Sequence[TupleDomain]) -> TupleDomain:
    """One around all."""
    columns = set(parts[0]).intersection(*parts)
    return {column: _join([domains[column] for domains in parts]) for column in sorted(columns)}


def key_equalities(
    filters: Sequence[Predicate], primary_key: Sequence[str], schema: pa.Schema
) -> list[tuple[object, ...]] | None:
    """Every key that a row kept by all `filters` can have, each once, as tuples in key order.

    None when the filters don't pin the key to some values. The filters may keep fewer rows than
    these keys have: apply them to the rows found. A value is what `pa.array(values, type)` takes
    for exactly this value of the column: int, str, bytes, bool, Decimal; temporal values are
    integers in the unit of the column.
    """
    if not filters:
        return None
    disjuncts = tuple_domains(And(tuple(filters)), schema, primary_key)
    keys: dict[tuple[object, ...], None] = {}
    for domains in disjuncts:
        values = [_values(domains, name, schema) for name in primary_key]
        columns = [v for v in values if v is not None]
        if len(columns) < len(values) or math.prod(map(len, columns)) > _MAX_KEYS:
            return None
        keys.update(dict.fromkeys(itertools.product(*columns)))
    return list(keys) or None


def key_span(
    filters: Sequence[Predicate], primary_key: Sequence[str], schema: pa.Schema
) -> tuple[int, int] | None:
    """The least and the highest key that a row kept by all `filters` can have, in the unit of the
    column; None without bounds, and where the key is not one column of integers or times."""
    if not filters or len(primary_key) > 1 or not is_integral(schema.field(primary_key[0]).type):
        return None
    bounds: list[tuple[int | None, int | None]] = []
    for domains in tuple_domains(And(tuple(filters)), schema, primary_key):
        domain = domains.get(primary_key[0], ANYTHING)
        bounds += [(point, point) for point in domain.points]
        bounds += [(interval.low, interval.high) for interval in domain.intervals]
    lows = [low for low, _ in bounds if low is not None]
    highs = [high for _, high in bounds if high is not None]
    return (min(lows), max(highs)) if len(lows) == len(highs) == len(bounds) > 0 else None


def _values(domains: TupleDomain, column: str, schema: pa.Schema) -> list[object] | None:
    domain = domains.get(column)
    if domain is None or not domain.is_finite:
        return None
    kind = schema.field(column).type
    points = sorted(domain.points)
    if pa.types.is_fixed_size_binary(kind):
        points = [point for point in points if len(point) == kind.byte_width]
    return python_values(points, kind)
