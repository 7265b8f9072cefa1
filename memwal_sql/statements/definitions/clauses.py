"""What stands behind the columns of CREATE TABLE: format, regions, place, options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memwal_sql.session.table_options import FORMAT
from memwal_sql.statements.queries.tokens import Statement

_PREFIX = f"{FORMAT.lower()}."
_OPTIONS = ("OPTIONS", "WITH", "TBLPROPERTIES")


@dataclass(slots=True)
class Clauses:
    """Clauses of CREATE TABLE.

    Attributes:
        regions: as text of region fields.
        query: the place where a query begins; None without AS.
        unknown: the place of a clause that no table here has; what follows is not read.
    """

    regions: str | None = None
    location: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    query: int | None = None
    unknown: int | None = None


def are_ours(statement: Statement, place: int, *, external: bool) -> bool:
    """Whether the clauses from a place on are of a table of ours, by format or, but for external
    tables, by LOCATION. Of others, DataFusion alone knows what may stand where."""
    for at in statement.top(place, len(statement)):
        if statement.keyword(at) == "AS" and statement.keyword(at - 1) != "STORED":
            break
        if statement.has(at, f"STORED AS {FORMAT}") or statement.has(at, f"USING {FORMAT}"):
            return True
        if statement.keyword(at) == "LOCATION" and not external:
            return True
    return False


def clauses_of(statement: Statement, place: int, parameters: Mapping[str, Any]) -> Clauses:
    """The clauses from a place on.

    Raises InvalidCallError, with the place, for a clause that is given twice or has no value.
    """
    found = Clauses()
    seen: set[str] = set()
    while place < len(statement):
        at, word = place, statement.keyword(place)
        if word == "AS":
            found.query = place + 1
            break
        if word in seen:
            raise statement.error("this clause is given twice", at)
        seen.add(word)
        if word == "USING" or statement.has(place, "STORED AS"):
            place += 2 if word == "STORED" else 1
            if statement.keyword(place) != FORMAT:
                found.unknown = place
                break
            place += 1
        elif word == "LOCATION":
            found.location = text_at(statement, place + 1, parameters)
            place += 2
        elif statement.has(place, "PARTITIONED BY") and statement.symbol(place + 2) == "(":
            after = statement.closing(place + 2)
            found.regions = _regions(statement, place + 3, after - 1)
            place = after
        elif word in _OPTIONS and statement.symbol(place + 1) == "(":
            after = statement.closing(place + 1)
            for first, last in statement.split(place + 2, after - 1):
                name, value = _option(statement, first, last, parameters)
                if name in found.options:
                    raise statement.error("this option is given twice", first)
                found.options[name] = value
            place = after
        else:
            found.unknown = place
            break
    return found


def text_at(statement: Statement, place: int, parameters: Mapping[str, Any]) -> str:
    """The text at a place: a string, or a parameter's value."""
    token = statement.tokens[place] if place < len(statement) else None
    if token is not None and token.kind == "string":
        return token.value
    if token is not None and token.kind == "placeholder" and token.value[1:] in parameters:
        return str(parameters[token.value[1:]])
    raise statement.error("a text in single quotes must stand here", place)


def _regions(statement: Statement, start: int, stop: int) -> str:
    """Region fields as text; a column by itself is a region for each of its values."""
    parts = []
    for first, last in statement.split(start, stop):
        text = statement.slice(first, last)
        parts.append(f"identity({text})" if last == first + 1 else text)
    return ", ".join(parts)


def _option(
    statement: Statement, first: int, last: int, parameters: Mapping[str, Any]
) -> tuple[str, str]:
    """`'name' 'value'`, `'name' = 'value'` or `name = 'value'`; names may have dots."""
    if statement.tokens[first].kind == "string":
        name, place = statement.tokens[first].value, first + 1
    else:
        parts, place = statement.table(first)
        name = ".".join(parts)
    if statement.symbol(place) == "=":
        place += 1
    if place + 1 != last:
        raise statement.error("an option is a name and a text", first)
    return name.lower().removeprefix(_PREFIX), text_at(statement, place, parameters)
