"""PREPARE, EXECUTE and DEALLOCATE: statements that a session keeps, those of ours among them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import datafusion

from memwal_sql.errors import InvalidCallError
from memwal_sql.session.front.queries.planning import values
from memwal_sql.session.front.queries.tokens import Statement


@dataclass(frozen=True, slots=True)
class _Prepared:
    statement: Statement
    types: tuple[str, ...]


_sessions: WeakKeyDictionary[datafusion.SessionContext, dict[str, _Prepared]] = WeakKeyDictionary()


def prepare(ctx: datafusion.SessionContext, statement: Statement) -> None:
    """Keep the statement of `PREPARE name [(type, ...)] AS statement`.

    Raises InvalidCallError, with the place, for a name that is taken and for what is no statement.
    """
    name, place = _name(statement, 1)
    types: tuple[str, ...] = ()
    if statement.symbol(place) == "(":
        after = statement.closing(place)
        parts = statement.split(place + 1, after - 1)
        types, place = tuple(statement.slice(*part) for part in parts), after
    place = statement.expect(place, "AS")
    if place == len(statement):
        raise statement.error("a statement is missing", place)
    kept = _sessions.setdefault(ctx, {})
    if name in kept:
        raise statement.error(
            f"a statement of this name is prepared: DEALLOCATE {name} lets it go", 1
        )
    kept[name] = _Prepared(statement.part(place, len(statement)), types)


def executed(
    ctx: datafusion.SessionContext, statement: Statement, parameters: Mapping[str, Any]
) -> tuple[Statement, dict[str, Any]] | None:
    """The statement and the parameters of `EXECUTE name [(value, ...)]`: `$1` is the first value,
    in the type that PREPARE gives it. None for a name that is not known here.

    Raises InvalidCallError where there are more or fewer values than types.
    """
    name, place = _name(statement, 1)
    found = _sessions.get(ctx, {}).get(name)
    if found is None:
        return None
    given: list[str] = []
    if place < len(statement):
        if statement.symbol(place) != "(" or statement.closing(place) != len(statement):
            raise statement.error("values in parentheses must follow the name", place)
        parts = statement.split(place + 1, len(statement) - 1)
        given = [statement.slice(*part) for part in parts]
    if found.types:
        if len(given) != len(found.types):
            raise InvalidCallError(
                f"{name} takes {len(found.types)} values, and {len(given)} are given"
            )
        given = [f"CAST({one} AS {kind})" for one, kind in zip(given, found.types, strict=True)]
    numbered = {str(n): value for n, value in enumerate(values(ctx, given, parameters), 1)}
    return found.statement, {**parameters, **numbered}


def deallocate(ctx: datafusion.SessionContext, statement: Statement) -> bool:
    """Let go of the statement of `DEALLOCATE [PREPARE] name`, or of ALL; whether it was known."""
    place = 2 if statement.has(1, "PREPARE") and len(statement) > 2 else 1
    kept = _sessions.get(ctx, {})
    if statement.has(place, "ALL"):
        kept.clear()
        return True
    return kept.pop(_name(statement, place)[0], None) is not None


def _name(statement: Statement, place: int) -> tuple[str, int]:
    if place >= len(statement) or not statement.tokens[place].is_name:
        raise statement.error("the name of a prepared statement is missing", place)
    return statement.tokens[place].name, place + 1
