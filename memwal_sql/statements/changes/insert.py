"""INSERT: rows of a query, over those that are there or beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa

from exec_nodes.keys.keys import KeyBatch
from memwal_sql.arguments import quoted
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.changes.acts import INSERT, UPDATE, Act, count_keys, keys_of
from memwal_sql.statements.changes.change import Change
from memwal_sql.statements.changes.fitting import fitted
from memwal_sql.statements.changes.merge import MATCHED, NEW, Merge, On, When
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.returning import Returning
from memwal_sql.statements.changes.target import Target
from memwal_sql.statements.queries.places import Name

# What `excluded` stands for: the rows given, whose columns have names that the table has none of.
_GIVEN = "memwal given"
GIVEN = quoted(_GIVEN)


@dataclass(frozen=True, slots=True)
class GivenRows:
    """The rows of an INSERT.

    Attributes:
        query: as it is written.
        columns: those of the table that it gives, in its order; None for those of its own names.
    """

    target: Target
    query: str
    columns: Sequence[str] | None

    def may_read_target(self, reading: Reading) -> bool:
        """Whether the rows may be made of those that the table has."""
        return reading.may_read_target(self.query)

    def result(self, reading: Reading) -> pa.Table:
        """The result of the query."""
        return reading.rows(self.query)

    def rows(self, reading: Reading) -> pa.Table:
        """The rows in these columns, in the table's types.

        Raises InvalidCallError for other columns than the table's, without its key, and for a value
        that does not fit.
        """
        columns = self.target.columns
        result = self.result(reading)
        names = result.column_names if self.columns is None else list(self.columns)
        if len(names) != result.num_columns:
            raise InvalidCallError(
                f"the rows to insert have {result.num_columns} columns, and {len(names)} are to be "
                f"written: {names}"
            )
        present = columns.names
        if wrong := [n for n, times in Counter(names).items() if times > 1 or n not in present]:
            raise InvalidCallError(f"the table has no columns {wrong}, or not twice: {present}")
        if lacking := sorted(set(self.target.table.primary_key) - set(names)):
            raise InvalidCallError(f"the rows to insert lack the primary key columns {lacking}")
        pairs = zip(names, result.columns, strict=True)
        return pa.table({n: fitted(column, columns.field(n)) for n, column in pairs})

    def whole_rows(self, reading: Reading) -> pa.Table:
        """The same with null in columns that it does not give."""
        schema = self.target.columns
        rows = self.rows(reading)
        given = set(rows.column_names)
        columns = [
            rows[f.name] if f.name in given else pa.nulls(rows.num_rows, f.type) for f in schema
        ]
        return pa.table(columns, schema=schema)


class Upsert(Change):
    """Rows that replace those with their keys."""

    def __init__(self, target: Target, returning: Returning | None, given: GivenRows) -> None:
        super().__init__(target, returning)
        self.given = given

    @property
    def query(self) -> str:
        """That of the rows."""
        return self.given.query

    def acts(self, reading: Reading, keys: pa.Table | None) -> list[Act]:
        """Inserts; of rows with one key the last."""
        del keys
        rows = self.given.whole_rows(reading)
        return [Act(INSERT, one_a_key(self.target, rows, "last"), replaces=True)]

    def run(self, ctx: datafusion.SessionContext, parameters: Mapping[str, Any]) -> pa.Table:
        """Write them, whatever is there; what the query made of the table's own rows is made again
        of those that somebody wrote meanwhile."""
        reading = Reading(ctx, parameters, self.target)
        if self.given.may_read_target(reading):
            return super().run(ctx, parameters)
        rows = self.given.whole_rows(reading)
        answer = self._answer(reading, rows)
        if rows.num_rows:
            self.target.table.insert(rows, self.target.columns)
        return answer

    def _answer(self, reading: Reading, rows: pa.Table) -> pa.Table:
        if self.returning is None:
            return pa.table({"count": pa.array([count_keys(self.target, rows)], pa.uint64())})
        return self.returning.rows(reading, [Act(INSERT, one_a_key(self.target, rows, "last"))])


class Overwrite(Upsert):
    """Rows that replace all."""

    def run(self, ctx: datafusion.SessionContext, parameters: Mapping[str, Any]) -> pa.Table:
        """Write them; a query that reads the table sees all that is replaced."""
        table = self.target.table
        answers: list[pa.Table] = []

        def read() -> pa.Table:
            reading = Reading(ctx, parameters, self.target)
            rows = one_a_key(self.target, self.given.whole_rows(reading), "last")
            answers.append(self._answer(reading, rows))
            return rows

        reads = self.given.may_read_target(Reading(ctx, parameters, self.target))
        rows = read if reads else read()
        table.refresh()
        if not table.schema.equals(self.target.columns):
            raise self.target.changed(table.schema)
        table.close()  # its writer for statements would be fenced too
        table.replace_rows(rows)
        return answers[-1]


class InsertOver(Merge):
    """Rows that meet others with their keys: some columns of these are written, or none."""

    def __init__(
        self,
        target: Target,
        returning: Returning | None,
        given: GivenRows,
        *,
        keep: str | None,
        matched: When | None,
    ) -> None:
        """
        Args:
            keep: which one of several rows with one key counts, `"first"` or `"last"`; None where
                that is an error.
            matched: what becomes of rows that are there; None for the values of the columns given.
        """
        key = {name: excluded(name) for name in target.table.primary_key}
        equal = (f"{target.qualifier}.{quoted(name)} = {text}" for name, text in key.items())
        on = On(" AND ".join(equal), key)
        whens = [] if matched is None else [matched]
        super().__init__(target, returning, given.query, GIVEN, on, whens)
        self.given = given
        self._keep = keep

    @property
    def query(self) -> str:
        """That of the rows."""
        return self.given.query

    def counts(self, kinds: Sequence[str]) -> dict[str, int]:
        """All."""
        return {"count": len(kinds)}

    def read(self, reading: Reading) -> tuple[pa.Table, Sequence[When]]:
        """The rows, and the clauses."""
        rows = self.given.rows(reading)
        if self._keep is not None:
            rows = one_a_key(self.target, rows, self._keep)
        values = {name: excluded(name) for name in rows.column_names}
        key = self.target.table.primary_key
        others = {name: text for name, text in values.items() if name not in key}
        matched = self.whens or [When(MATCHED, "", UPDATE, others)]
        source = rows.rename_columns([excluded_name(name)[1] for name in rows.column_names])
        return source, [When(NEW, "", INSERT, values), *matched]


def one_a_key(target: Target, rows: pa.Table, keep: str) -> pa.Table:
    """The first or the last row of each key, in their order."""
    keys = KeyBatch(keys_of(target, [rows])).values
    numbered = list(enumerate(keys))
    kept = {key: place for place, key in (numbered if keep == "last" else numbered[::-1])}
    if len(kept) == len(keys):
        return rows
    return rows.take(pa.array(np.sort(np.fromiter(kept.values(), np.int64, len(kept)))))


def excluded_name(column: str) -> Name:
    """What `excluded.column` stands for: a column of the row given."""
    return _GIVEN, f"{_GIVEN} {column}"


def excluded(column: str) -> str:
    """The same as an expression."""
    return ".".join(map(quoted, excluded_name(column)))
