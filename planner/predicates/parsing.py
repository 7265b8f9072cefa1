"""Predicates: the SQL text of one filter as a small tree.

DataFusion hands filters over as text (its unparser's), qualified (`t.id = 3`) or not. What is not
one of the shapes below is `Other`: nobody may conclude anything from it. Identifiers follow
DataFusion: unquoted ones are lower case.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import sqlglot
from sqlglot import expressions as exp

from planner.predicates.nodes import (
    And,
    Compare,
    Constant,
    Distinct,
    In,
    IsNull,
    Like,
    Literal,
    Not,
    Number,
    Operand,
    Or,
    Other,
    Predicate,
    Truth,
    Typed,
)

_FLIPPED = {"=": "=", "<>": "<>", "<": ">", ">": "<", "<=": ">=", ">=": "<="}

_COLUMN = r"""(?: ([a-z_][a-z0-9_]*) | "([^"]+)" ) \s* """
_SIMPLE = re.compile(
    r"""\s*(\()?\s*"""
    + _COLUMN
    + r"""(=|<>|<=|>=|<|>) \s*
    (?: (-?\d+(?:\.\d+)?) | '([^'\\]*)' ) \s*
    (\))?\s*""",
    re.VERBOSE | re.ASCII,
)
_NUMBERS = re.compile(_COLUMN + r"IN \s \( (-?\d+ (?: ,\s -?\d+ )*) \)", re.VERBOSE | re.ASCII)


@lru_cache(maxsize=4096)
def parse(sql: str) -> Predicate:
    """The predicate that `sql` says; `Other` when it can't be read. Never raises.

    A comparison of a column with a number or a text takes a few microseconds, other conditions
    around a hundred; results are cached by text.
    """
    match = _SIMPLE.fullmatch(sql)
    if match and (match[1] is None) == (match[7] is None):
        _, plain, quoted, op, number, text, _ = match.groups()
        return Compare(Operand(plain or quoted), op, text if number is None else Number(number))
    if match := _NUMBERS.fullmatch(sql):
        numbers = tuple(map(Number, match[3].split(", ")))
        return In(Operand(match[1] or match[2]), numbers)
    try:
        return _convert(sqlglot.parse_one(sql, dialect="postgres"))
    except (sqlglot.errors.SqlglotError, RecursionError):
        return Other(None)


def columns_of(sql: str) -> frozenset[str] | None:
    """The columns that the filter reads; None when that is not known.

    A float that the unparser writes as a bare `inf` looks like a column: check against a schema.
    """
    names: set[str] = set()
    for leaf in _leaves(parse(sql)):
        if isinstance(leaf, Other):
            if leaf.columns is None:
                return None
            names.update(leaf.columns)
        elif not isinstance(leaf, Constant):
            if leaf.operand.qualifiers:
                # A table's column or a struct's field: only a schema could tell.
                return None
            names.add(leaf.operand.column)
    return frozenset(names)


def _leaves(
    predicate: Predicate,
) -> Iterator[Compare | Distinct | In | IsNull | Like | Constant | Other]:
    if isinstance(predicate, And | Or):
        for argument in predicate.arguments:
            yield from _leaves(argument)
    elif isinstance(predicate, Not | Truth):
        yield from _leaves(predicate.argument)
    else:
        yield predicate


# A part that is not named here would change the meaning (ESCAPE, SYMMETRIC, a subquery).
_KNOWN_PARTS = frozenset(
    ("this", "expression", "expressions", "low", "high", "negate", "to", "table", "db", "catalog")
)


def _convert(node: exp.Expr) -> Predicate:
    while isinstance(node, exp.Paren):
        node = node.this
    if not {name for name, value in node.args.items() if value} <= _KNOWN_PARTS:
        return _other(node)
    converted = _connective(node) or _condition(node)
    if converted is None:
        return _other(node)
    # IS NOT NULL and NOT LIKE are flags of their nodes, IS NOT TRUE and NOT IN are not.
    return Not(converted) if node.args.get("negate") else converted


def _connective(node: exp.Expr) -> Predicate | None:
    if isinstance(node, exp.And | exp.Or):
        kind = And if isinstance(node, exp.And) else Or
        arguments: list[Predicate] = []
        pending: list[exp.Expr] = [node]
        # A loop, because a chain of a thousand ORs nests a thousand deep.
        while pending:
            part = pending.pop().unnest()
            if isinstance(part, exp.And if kind is And else exp.Or):
                pending += [part.right, part.left]
            else:
                arguments.append(_convert(part))
        return kind(tuple(arguments))
    if isinstance(node, exp.Not):
        return Not(_convert(node.this))
    if isinstance(node, exp.Boolean):
        return Constant(bool(node.this))
    if isinstance(node, exp.Null):
        return Constant(None)
    return None


_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


def _condition(node: exp.Expr) -> Predicate | None:
    if isinstance(node, exp.Binary) and type(node) in _COMPARISONS:
        return _comparison(node, _COMPARISONS[type(node)])
    if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
        operand, literal = _operand(node.left), _literal(node.right)
        if operand is None or literal is _NOT_LITERAL:
            return None
        distinct = Distinct(operand, literal)
        return distinct if isinstance(node, exp.NullSafeNEQ) else Not(distinct)
    if isinstance(node, exp.Is):
        return _is(node)
    operand = _operand(node)
    if operand is not None:
        return None if operand.casts else Compare(operand, "=", True)
    operand = _operand(node.this) if isinstance(node.this, exp.Expr) else None
    if operand is None:
        return None
    if isinstance(node, exp.In):
        literals = [_literal(item) for item in node.expressions]
        return None if _NOT_LITERAL in literals else In(operand, tuple(literals))
    if isinstance(node, exp.Between):
        low, high = _literal(node.args["low"]), _literal(node.args["high"])
        if _NOT_LITERAL in (low, high):
            return None
        return And((Compare(operand, ">=", low), Compare(operand, "<=", high)))
    if isinstance(node, exp.Like | exp.ILike):
        pattern = _literal(node.expression)
        if isinstance(pattern, str):
            return Like(operand, pattern, isinstance(node, exp.ILike))
    return None


def _comparison(node: exp.Binary, op: str) -> Predicate | None:
    operand, literal = _operand(node.left), _literal(node.right)
    if operand is None:
        operand, literal, op = _operand(node.right), _literal(node.left), _FLIPPED[op]
    if operand is None or literal is _NOT_LITERAL:
        return None
    return Compare(operand, op, literal)


def _is(node: exp.Is) -> Predicate | None:
    if isinstance(node.expression, exp.Null):
        operand = _operand(node.this)
        return None if operand is None else IsNull(operand)
    if isinstance(node.expression, exp.Boolean):
        return Truth(_convert(node.this), bool(node.expression.this))
    return None


def _other(node: exp.Expr) -> Other:
    if node.find(exp.Query, exp.Star):
        return Other(None)
    # The unparser writes the number NaN bare, and quotes a column of that name.
    columns = (c for c in node.find_all(exp.Column) if c.name != "NaN" or c.this.quoted)
    return Other(tuple(dict.fromkeys(map(_column_name, columns))))


def _operand(node: exp.Expr) -> Operand | None:
    casts: list[str] = []
    while isinstance(node, exp.Cast | exp.Paren) and not isinstance(node, exp.TryCast):
        if isinstance(node, exp.Cast):
            casts.append(node.to.sql())
        node = node.this
    if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
        return None
    *qualifiers, name = map(_name, node.parts)
    return Operand(name, tuple(reversed(casts)), tuple(qualifiers))


def _column_name(node: exp.Column) -> str:
    return _name(node.this)


def _name(identifier: exp.Expr) -> str:
    quoted = isinstance(identifier, exp.Identifier) and identifier.quoted
    return str(identifier.name if quoted else identifier.name.lower())


_NOT_LITERAL = Typed("", "")


def _literal(node: exp.Expr) -> Literal:
    """The literal, or `_NOT_LITERAL`."""
    negative = False
    while isinstance(node, exp.Paren | exp.Neg):
        negative ^= isinstance(node, exp.Neg)
        node = node.this
    if isinstance(node, exp.Literal) and not node.is_string:
        return Number(f"-{node.this}" if negative else str(node.this))
    if negative:
        return _NOT_LITERAL
    if isinstance(node, exp.Literal):
        return str(node.this)
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.HexString):
        return _hexadecimal(node)
    if isinstance(node, exp.Cast) and not isinstance(node, exp.TryCast):
        text = node.this
        if isinstance(text, exp.Literal) and text.is_string:
            return Typed(node.to.sql(), str(text.this))
    return _NOT_LITERAL


def _hexadecimal(node: exp.HexString) -> Literal:
    try:
        return bytes.fromhex(str(node.this))
    except ValueError:
        return _NOT_LITERAL
