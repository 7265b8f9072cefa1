"""COPY FROM: the rows of files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import datafusion
import pyarrow as pa

from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.statements.changes.insert import GivenRows, InsertOver, Upsert
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.target import columns_at, target_at
from memwal_sql.statements.queries.tokens import Statement

# So that every column of a file of texts is read as text, and then as the table's type.
_TEXTS = {"CSV": "'format.schema_infer_max_rec' '0'"}
_OPTIONS = "[OPTIONS ('format.delimiter' ';', ...)]"
_FORM = (
    f"COPY is written COPY t [(columns)] FROM 'place' [STORED AS format] {_OPTIONS}, for files "
    "alone: `load` of the command line reads standard input"
)
_FORM_TO = (
    "COPY is written COPY t TO 'place' [STORED AS format] [PARTITIONED BY (columns)] "
    f"{_OPTIONS}, for files alone"
)
_AFTER_TO = ("STORED", "PARTITIONED", "OPTIONS")


@dataclass(frozen=True, slots=True)
class FileRows(GivenRows):
    """The rows of files; `query` is where they are, as an expression.

    Attributes:
        format: as STORED AS takes it; empty for that of the ending.
        options: as OPTIONS takes them.
    """

    format: str = ""
    options: str = ""

    def found(self, reading: Reading) -> pa.Table:
        """The rows in the columns of the files."""
        place = reading.value(self.query)
        if not isinstance(place, str) or not place:
            raise InvalidCallError(f"the place of files must be a text, not {place!r}")
        kind = self.format or PurePosixPath(place.rstrip("/")).suffix[1:].upper()
        if not kind:
            raise InvalidCallError(
                f"the ending of {place!r} says no format: STORED AS CSV, PARQUET, JSON, ARROW or "
                "AVRO does"
            )
        options = ", ".join(filter(None, [_TEXTS.get(kind, ""), self.options]))
        with reading.files(place, kind, options) as name:
            return reading.rows(f"SELECT * FROM {name}")


class CopyFrom(InsertOver):
    """Rows of files that replace those with their keys; columns that they lack stay."""

    @property
    def query(self) -> str:
        """Raises UnsupportedError."""
        raise UnsupportedError("COPY FROM reads its files when it runs, and has no plan before")

    def run(self, ctx: datafusion.SessionContext, parameters: Mapping[str, Any]) -> pa.Table:
        """Write them; rows that are there are read only where columns are to stay."""
        rows = self.given.rows(Reading(ctx, parameters, self.target))
        given = ReadRows(self.target, "", rows.column_names, rows)
        names = self.target.columns.names
        if set(rows.column_names) == set(names):
            return Upsert(self.target, None, given).run(ctx, parameters)
        return InsertOver(self.target, None, given, keep="last", matched=None).run(ctx, parameters)


@dataclass(frozen=True, slots=True)
class ReadRows(GivenRows):
    """Rows that were read before."""

    read: pa.Table

    def may_read_target(self, reading: Reading) -> bool:
        """They do not."""
        del reading
        return False

    def found(self, reading: Reading) -> pa.Table:
        """These."""
        del reading
        return self.read


def copy_from(
    ctx: datafusion.SessionContext, statement: Statement, ctes: Statement | None
) -> CopyFrom | None:
    """`COPY t [(columns)] FROM place [STORED AS format] [OPTIONS (...)]`, if it is about a table of
    ours.

    Raises InvalidCallError, with the place, for what it can't be.
    """
    if len(statement) == 1 or not statement.tokens[1].is_name:
        return None
    if statement.keyword(1) == "INTO" and statement.keyword(2) not in ("FROM", "TO", ""):
        raise statement.error(_FORM, 1)
    if statement.keyword(statement.table(1)[1]) == "TO":  # which changes nothing
        return None
    found = target_at(ctx, statement, 1, ctes)
    if found is None and statement.find("FROM") < statement.find("TO"):
        raise statement.error("the session has no MemWAL table of this name to COPY into", 1)
    if found is None:
        return None
    target, place = found
    columns = None
    if statement.symbol(place) == "(":
        columns, place = columns_at(statement, place, target)
    place = statement.expect(place, "FROM")
    end = statement.first(("STORED AS", "OPTIONS"), place)
    if place == end:
        raise statement.error("the place of files, as text, is missing", place)
    _check_place(statement, place, end)
    where, kind, options = statement.slice(place, end), "", ""
    if statement.has(end, "STORED AS"):
        kind, end = statement.keyword(end + 2), end + 3
        if not kind:
            raise statement.error("a format must follow, as in STORED AS CSV", end - 1)
    if statement.keyword(end) == "OPTIONS":
        if statement.symbol(end + 1) != "(":
            raise statement.error("options in parentheses must follow", end + 1)
        after = statement.closing(end + 1)
        options, end = statement.slice(end + 2, after - 1), after
    if end < len(statement):
        raise statement.error(_FORM, end)
    given = FileRows(target, where, columns, kind, options)
    return CopyFrom(target, None, given, keep="last", matched=None)


def _check_place(statement: Statement, start: int, stop: int) -> None:
    """Raise InvalidCallError, with the place, for what is no place of files, and behind one: other
    databases have other words there."""
    after_value = False
    for place in statement.top(start, stop):
        symbol, is_name = statement.symbol(place), statement.tokens[place].is_name
        is_type = statement.symbol(place - 1) == "::"
        is_call = is_name and statement.symbol(place + 1) == "("
        if symbol == "," or (symbol == "(" and after_value):
            raise statement.error(_FORM, place)
        if is_name and not is_type and (after_value or not is_call):
            raise statement.error(_FORM, place)
        after_value = not is_call and (not symbol or symbol == ")")


def check_copy_to(statement: Statement) -> None:
    """Raise InvalidCallError, with the place, for a COPY TO that is written otherwise than here."""
    place = statement.find("TO", 1) + 1
    if place >= len(statement):
        return
    if statement.tokens[place].kind != "string":
        raise statement.error(_FORM_TO, place)
    if place + 1 < len(statement) and statement.keyword(place + 1) not in _AFTER_TO:
        raise statement.error(_FORM_TO, place + 1)
