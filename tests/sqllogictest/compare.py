"""One file, over plain tables and over ours."""

from __future__ import annotations

import contextlib
import math
import re
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from memwal_native.syntax import SqlParser
from tests.sqllogictest.files import path_of
from tests.sqllogictest.records import Record, records
from tests.sqllogictest.sessions import Refusal, Session, ShadowSession

Answer = pa.Table | Refusal
# Their answers are about plans, names of files or the session, not about rows.
_PLANS = re.compile(r"\s*(EXPLAIN|SHOW|DESCRIBE|DESC)\b", re.IGNORECASE)
_ORDER = re.compile(r"ORDER\s+BY", re.IGNORECASE)
_ORDERS = 10


@dataclass
class Comparison:
    """What came of a file.

    Attributes:
        counts: of records, by what was found: `equal` (queries of tables), `without tables` (equal
            queries of none), `statements` (equal, too), `refused by both`, `about plans` (not run),
            `in no order` (DataFusion's own answer changes with the order of its rows), `different`.
        different: the records that differ, with both answers.
        shadowed: how many tables of ours were made.
        left: tables that could not be made, with the reason.
    """

    counts: Counter[str] = field(default_factory=Counter)
    different: dict[str, tuple[Record, Answer, Answer]] = field(default_factory=dict)
    shadowed: int = 0
    left: dict[str, str] = field(default_factory=dict)

    def told(self, expected: Set[str]) -> str:
        """What differs that is not expected to, and what is and does not."""
        lines = [f"{name} is equal now" for name in sorted(expected - self.different.keys())]
        for name in sorted(self.different.keys() - expected):
            record, plain, ours = self.different[name]
            shown = [one if isinstance(one, Refusal) else _shown(one) for one in (plain, ours)]
            lines.append(f"{name}: {record.sql}\n  plain: {shown[0]}\n  ours: {shown[1]}")
        return "\n".join(lines)


def compared(crate: Path, name: str, folder: Path, seed: str) -> Comparison:
    """Run a file of the crate, with the tables of ours in `folder`."""
    path = path_of(crate, name)
    result, todo = Comparison(), []
    for one in records(path):
        if _PLANS.match(one.sql):
            result.counts["about plans"] += 1
        else:
            todo.append(one)
    text = "\n".join(one.sql for one in todo)
    plain = _answers(todo, Session(text), crate)
    shadow = ShadowSession(text, folder, f"{seed}/{name}")
    ours = _answers(todo, shadow, crate)
    result.shadowed, result.left = shadow.shadowed, shadow.left
    differing = []
    for place, one in enumerate(todo):
        found = _kind(one, plain[place], ours[place])
        if found == "different":
            differing.append(place)
        else:
            result.counts[found] += 1
    for order in range(_ORDERS):
        if not differing:
            break
        other = _answers(todo, Session(text, order), crate)
        left = [place for place in differing if same(todo[place], plain[place], other[place])]
        result.counts["in no order"] += len(differing) - len(left)
        differing = left
    for place in differing:
        one = todo[place]
        result.counts["different"] += 1
        result.different[one.name] = (one, plain[place], ours[place])
    return result


def same(record: Record, left: Answer, right: Answer) -> bool:
    """Whether two answers are equal: as sequences where ORDER BY stands, else as multisets; what
    stands in parentheses, as the order of a window does, is no order of the answer."""
    if isinstance(left, Refusal) or isinstance(right, Refusal):
        return isinstance(left, Refusal) and isinstance(right, Refusal)
    if not record.is_query:
        return True
    is_ordered = not record.is_sorted and _ORDER.search(_outside_parentheses(record.sql))
    rows = [_shown(one) for one in (left, right)]
    if not is_ordered:
        rows = [sorted(one) for one in rows]
    return left.schema.types == right.schema.types and rows[0] == rows[1]


def _kind(record: Record, plain: Answer, ours: Answer) -> str:
    if not same(record, plain, ours):
        return "different"
    if isinstance(plain, Refusal):
        return "refused by both"
    if not record.is_query:
        return "statements"
    return "equal" if _has_tables(record.sql) else "without tables"


def _outside_parentheses(sql: str) -> str:
    less = re.sub(r"\([^()]*\)", "", sql)
    return less if less == sql else _outside_parentheses(less)


def _has_tables(sql: str) -> bool:
    try:
        return bool(SqlParser().query(sql, []).tables)
    except (ValueError, RecursionError):
        return False


def _answers(todo: Sequence[Record], session: Session, crate: Path) -> list[Answer]:
    for one in path_of(crate, "scratch").glob("**/*"):
        if one.is_file():
            one.unlink()
    with contextlib.closing(session), contextlib.chdir(crate):
        return [session.run(one) for one in todo]


def _shown(rows: pa.Table) -> list[str]:
    columns = [_values(column) for column in rows.columns]
    return list(map(repr, zip(*columns, strict=True))) if columns else ["()"] * len(rows)


def _values(column: pa.ChunkedArray) -> list[Any]:
    try:
        return list(map(_value, column.to_pylist()))
    except (ArithmeticError, ValueError):  # Python has no such dates or decimals
        return [str(column.slice(place, 1)) for place in range(len(column))]


def _value(value: Any) -> Any:
    """A value to compare by its text: sums of floats depend on the order of rows."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else f"{value:.9g}"
    if isinstance(value, dict):
        return {key: _value(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_value(one) for one in value]
    return value
