"""MERGE INTO as it is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import datafusion

from memwal_sql.arguments import quoted
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.changes.acts import DELETE, INSERT, UPDATE
from memwal_sql.statements.changes.merge import ALONE, MATCHED, NEW, Merge, On, When
from memwal_sql.statements.changes.returning import returning_at
from memwal_sql.statements.changes.target import Target, columns_at, target_at
from memwal_sql.statements.changes.update import assignments, lone_column, source_column
from memwal_sql.statements.queries.tokens import Statement

_SOURCE = "memwal source"
# Symbols that bind tighter than `=`, and those of operands; operators before what they are of.
_TIGHT = frozenset(("+", "-", "*", "/", "%", "||", "::", ".", "(", ")", "[", "]"))
_PREFIXES = frozenset(("NOT", "ANY", "ALL", "SOME"))
# What makes a query of a table.
_OF_QUERIES = frozenset(
    (
        *("WHERE", "GROUP", "HAVING", "QUALIFY", "ORDER", "LIMIT", "OFFSET", "FETCH"),
        *("UNION", "INTERSECT", "EXCEPT", "MINUS"),
        *("JOIN", "INNER", "LEFT", "RIGHT", "FULL", "CROSS", "NATURAL", "LATERAL"),
    )
)


def merge(
    ctx: datafusion.SessionContext, statement: Statement, ctes: Statement | None
) -> Merge | None:
    """The statement `MERGE INTO t [AS a] USING source [AS s] ON condition WHEN ...`, if it is about
    a table of ours.

    Raises InvalidCallError, with the place, for what it can't be.
    """
    place = 2 if statement.keyword(1) == "INTO" else 1
    found = target_at(ctx, statement, place, ctes, ("USING",))
    if found is None:
        return None
    target, place = found
    returning, end = returning_at(statement, place, target, merges=True)
    place = statement.expect(place, "USING")
    on = statement.find("ON", place, end)
    alias = quoted(_alias(statement, place, on) or _SOURCE)
    if alias == target.qualifier:
        raise statement.error("the source needs another name than the table: add AS s", place)
    starts = [at for at in _outside_case(statement, on, end) if statement.keyword(at) == "WHEN"]
    if not starts:
        raise statement.error("WHEN [NOT] MATCHED is missing", end)
    statement.expect(on, "ON")
    if on + 1 == starts[0]:
        raise statement.error("a condition is missing", on + 1)
    _check_source(statement, place, on)
    source = statement.slice(place, on)
    condition = _on(statement, on + 1, starts[0], target, alias)
    whens: list[When] = []
    for part in zip(starts, [*starts[1:], end], strict=True):
        when = _when(statement, *part, target, alias, condition)
        if any(one.of == when.of and not one.condition for one in whens):
            raise statement.error("an earlier WHEN takes all rows of this one", part[0])
        whens.append(when)
    return Merge(target, returning, source, alias, condition, whens)


def _check_source(statement: Statement, start: int, stop: int) -> None:
    """Raise InvalidCallError, with the place, where no table stands, or more than one."""
    if start == stop:
        raise statement.error("a table or a query in parentheses is missing", start)
    for place in statement.top(start, stop):
        if statement.symbol(place) == "," or statement.keyword(place) in _OF_QUERIES:
            raise statement.error("put the query that USING reads into parentheses", place)


def _alias(statement: Statement, start: int, end: int) -> str | None:
    """The name of the source's columns: the other name, which may have a list of columns after it,
    or that of the table or the function."""
    named = None
    if start < end and statement.tokens[start].is_name:
        named = statement.table(start)[0][-1]
    last = end - 1
    if statement.symbol(last) == ")":
        opening = next((p for p in range(start, end) if _closes(statement, p, end)), start)
        if opening == start or (statement.keyword(opening - 2) != "AS" and named is not None):
            return named
        last = opening - 1
    if last > start and statement.tokens[last].is_name and statement.symbol(last - 1) != ".":
        return statement.tokens[last].name
    return named


def _closes(statement: Statement, place: int, end: int) -> bool:
    return statement.symbol(place) == "(" and statement.closing(place) == end


def _outside_case(statement: Statement, start: int, stop: int) -> Iterator[int]:
    """The places outside of parentheses and of CASE ... END."""
    depth = 0
    for place in statement.top(start, stop):
        word = statement.keyword(place)
        if word == "CASE":
            depth += 1
        if depth == 0:
            yield place
        if word == "END":
            depth -= 1


def _on(statement: Statement, start: int, stop: int, target: Target, alias: str) -> On:
    text = f"({statement.slice(start, stop)})"
    while statement.symbol(start) == "(" and statement.closing(start) == stop:
        start, stop = start + 1, stop - 1
    ands = [p for p in _outside_case(statement, start, stop) if statement.keyword(p) == "AND"]
    if any(statement.keyword(p) in ("OR", "BETWEEN") for p in statement.top(start, stop)):
        return On(text, {}, covered=False)
    parts = list(zip([start, *(p + 1 for p in ands)], [*ands, stop], strict=True))
    key: dict[str, str] = {}
    for first, last in parts:
        equals = [p for p in statement.top(first, last) if statement.symbol(p) == "="]
        if len(equals) != 1:
            continue
        sides = [(first, equals[0]), (equals[0] + 1, last)]
        for side, other in (sides, sides[::-1]):
            column = lone_column(statement, *side)
            if column[:-1] == (target.name_of_columns,) and _is_of(statement, *other, alias):
                key[column[-1]] = source_column(statement, *other, alias)
    primary_key = target.table.primary_key
    if not set(primary_key) <= set(key):
        return On(text, {}, covered=False)
    return On(text, {name: key[name] for name in primary_key}, len(parts) == len(primary_key))


def _is_of(statement: Statement, start: int, stop: int, alias: str) -> bool:
    """Whether what stands on one side of a `=` is compared as a whole, and is over the source
    alone: of columns it has `s.column` only."""
    if not _binds_tighter(statement, start, stop):
        return False
    place = start
    while place < stop:
        if statement.tokens[place].is_name:
            parts, place = statement.table(place)
            is_call = statement.symbol(place) == "(" and parts[-1] != "select"
            if not is_call and (len(parts) == 1 or quoted(parts[0]) != alias):
                return False
        else:
            place += 1
    return start < stop


def _binds_tighter(statement: Statement, start: int, stop: int) -> bool:
    """Whether outside of parentheses all operators bind tighter than `=`: none is a word."""
    for place in statement.top(start, stop):
        if statement.tokens[place].kind == "symbol":
            tight = statement.symbol(place) in _TIGHT
        else:
            is_operand = place == start or statement.symbol(place - 1) not in ("", ")", "]")
            tight = is_operand and statement.keyword(place) not in _PREFIXES
        if not tight:
            return False
    return True


def _when(statement: Statement, start: int, stop: int, target: Target, alias: str, on: On) -> When:
    """`WHEN [NOT] MATCHED [BY SOURCE | BY TARGET] [AND condition] THEN ...`."""
    place, of = start + 1, MATCHED
    if statement.keyword(place) == "NOT":
        place, of = place + 1, NEW
    place = statement.expect(place, "MATCHED")
    if of == NEW and statement.has(place, "BY SOURCE"):
        place, of = place + 2, ALONE
    elif of == NEW and statement.has(place, "BY TARGET"):
        place += 2
    words = (p for p in _outside_case(statement, place, stop) if statement.keyword(p) == "THEN")
    then = next(words, stop)
    condition = ""
    if place < then:
        place = statement.expect(place, "AND")
        if place == then:
            raise statement.error("a condition is missing", place)
        condition = f"({statement.slice(place, then)})"
    place = statement.expect(then, "THEN")
    if statement.has(place, "DO NOTHING") and place + 2 == stop:
        return When(of, condition, "")
    word = statement.keyword(place)
    if word not in _ACTS.get(of, ()):
        raise statement.error(f"{' or '.join(_ACTS[of])} must stand here", place)
    if word == DELETE:
        if place + 1 < stop:
            raise statement.error("the next WHEN must stand here", place + 1)
        return When(of, condition, DELETE)
    if word == UPDATE:
        values = _updated(statement, place, stop, target, alias, on)
    else:
        values = _inserted(statement, place, stop, target, alias)
    star = statement.symbol(stop - 1) == "*" and statement.keyword(stop - 2) in ("SET", INSERT)
    lacking = partial(_lacking, statement, stop - 1) if star else None
    return When(of, condition, word, values, lacking)


_ACTS = {MATCHED: (UPDATE, DELETE), NEW: (INSERT,), ALONE: (UPDATE, DELETE)}


def _updated(
    statement: Statement, place: int, stop: int, target: Target, alias: str, on: On
) -> dict[str, str]:
    place = statement.expect(place, "UPDATE SET")
    if statement.symbol(place) == "*" and place + 1 == stop:
        values = _same_names(target, alias)
    else:
        values = assignments(statement, place, stop, target, alias)
    return {name: text for name, text in values.items() if on.key.get(name) != text}


def _inserted(
    statement: Statement, place: int, stop: int, target: Target, alias: str
) -> dict[str, str]:
    place += 1
    if statement.symbol(place) == "*" and place + 1 == stop:
        return _same_names(target, alias)
    names = target.columns.names
    if statement.symbol(place) == "(":
        names, place = columns_at(statement, place, target)
    place = statement.expect(place, "VALUES")
    if statement.symbol(place) != "(" or statement.closing(place) != stop:
        raise statement.error("one row of values in parentheses must follow", place)
    parts = statement.split(place + 1, stop - 1)
    if len(parts) != len(names):
        raise statement.error(f"there are {len(parts)} values for {len(names)} columns", place)
    texts = (source_column(statement, *part, alias) for part in parts)
    return dict(zip(names, texts, strict=True))


def _lacking(statement: Statement, place: int, names: Sequence[str]) -> InvalidCallError:
    """The error of a `*` at a place, for columns that the source has not."""
    return statement.error(
        f"the source lacks the columns {list(names)} of the table: name those to write, as in "
        "UPDATE SET a = s.a, or INSERT (a) VALUES (s.a)",
        place,
    )


def _same_names(target: Target, alias: str) -> dict[str, str]:
    return {name: f"{alias}.{quoted(name)}" for name in target.columns.names}
