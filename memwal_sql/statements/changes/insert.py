"""INSERT: the rows of a query replace existing rows, or are added to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from exec_nodes.keys.keys import KeyBatch
from memwal_sql.arguments import quoted
from memwal_sql.errors import InvalidCallError
from memwal_sql.statements.changes.change import Change, MakeReading, counted
from memwal_sql.statements.changes.fitting import fitted
from memwal_sql.statements.changes.merge import MATCHED, NEW, Merge, On, When
from memwal_sql.statements.changes.reading import Reading
from memwal_sql.statements.changes.returning import Returning
from memwal_sql.statements.changes.row_actions import INSERT, UPDATE, RowAction, count_keys, keys_of
from memwal_sql.statements.changes.target import Target
from memwal_sql.statements.queries.places import Name
from memwal_sql.write.coordinator import Description

# The table behind `excluded`: the rows given. The names of its columns are not the table's.
_GIVEN = "memwal given"
GIVEN = quoted(_GIVEN)


@dataclass(frozen=True, slots=True)
class GivenRows:
    """The rows of an INSERT.

    Attributes:
        query: the query as written.
        columns: the columns of the table that it gives, in its order; None if its own names say so.
    """

    target: Target
    query: str
    columns: Sequence[str] | None

    def may_read_target(self, reading: Reading) -> bool:
        """Whether the rows may be computed from the table's own rows."""
        return reading.may_read_target(self.query)

    def result(self, reading: Reading) -> pa.Table:
        """The result of the query."""
        return reading.rows(self.query)

    def rows(self, reading: Reading) -> pa.Table:
        """The rows in these columns, in the table's types.

        Raises InvalidCallError for columns that the table does not have, for a missing key, and for
        a value that does not fit.
        """
        columns = self.target.columns
        result = self.result(reading)
        names = result.column_names if self.columns is None else list(self.columns)
        if len(names) != result.num_columns:
            raise InvalidCallError(
                f"the rows to insert have {result.num_columns} columns, and {len(names)} are "
                f"written: {names}"
            )
        present = frozenset(columns.names)
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise InvalidCallError(f"the columns {twice} are given twice")
        if unknown := [name for name in names if name not in present]:
            raise InvalidCallError(f"the table has no columns {unknown}: it has {columns.names}")
        if lacking := sorted(set(self.target.table.primary_key) - set(names)):
            raise InvalidCallError(f"the rows to insert lack the primary key columns {lacking}")
        pairs = zip(names, result.columns, strict=True)
        return pa.table({n: fitted(column, columns.field(n)) for n, column in pairs})

    def whole_rows(self, reading: Reading) -> pa.Table:
        """The same rows, with the default or null in the other columns."""
        rows = self.rows(reading)
        columns = {name: rows[name] for name in rows.column_names}
        return self.target.new_rows(columns, rows.num_rows)


class Upsert(Change):
    """Rows that replace those with the same keys."""

    def __init__(self, target: Target, returning: Returning | None, given: GivenRows) -> None:
        super().__init__(target, returning)
        self.given = given

    @property
    def query(self) -> str:
        """The query for the rows."""
        return self.given.query

    def actions(self, reading: Reading, keys: pa.Table | None) -> list[RowAction]:
        """The inserts: the last row of each key."""
        del keys
        rows = self.given.whole_rows(reading)
        return [RowAction(INSERT, one_a_key(self.target, rows, "last"), checks_keys=False)]

    def run(self, make: MakeReading, isolation: str, description: Description) -> pa.Table:
        """Write the rows, whatever exists. A query over the table itself is run again for rows that
        another writer changed meanwhile."""
        reading = make()
        if self.given.may_read_target(reading):
            return super().run(make, isolation, description)
        rows = self.given.whole_rows(reading)
        answer = self._answer(reading, rows)
        if not rows.num_rows:
            return answer
        result = self.target.table.insert(rows, self.target.columns, description)
        return answer if self.returning is not None else counted(answer, result)

    def _answer(self, reading: Reading, rows: pa.Table) -> pa.Table:
        if self.returning is None:
            return pa.table({"count": pa.array([count_keys(self.target, rows)], pa.uint64())})
        return self.returning.rows(
            reading, [RowAction(INSERT, one_a_key(self.target, rows, "last"))]
        )


class Overwrite(Upsert):
    """Rows that replace all rows."""

    def run(self, make: MakeReading, isolation: str, description: Description) -> pa.Table:
        """Write the rows; a query over the table sees all rows that are replaced. That is a job:
        it has no isolation, and no record with a description."""
        table = self.target.table
        answers: list[pa.Table] = []

        def read() -> pa.Table:
            reading = make()
            rows = one_a_key(self.target, self.given.whole_rows(reading), "last")
            answers.append(self._answer(reading, rows))
            return rows

        rows = read if self.given.may_read_target(make()) else read()
        table.refresh()
        if not table.schema.equals(self.target.columns):
            raise self.target.changed(table.schema)
        table.close()  # its writer for statements would be fenced
        table.replace_rows(rows)
        return answers[-1]


class InsertOver(Merge):
    """Rows that update some columns of rows with the same keys, or leave them alone."""

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
            keep: which of several rows with one key is taken, `"first"` or `"last"`; None makes
                several an error.
            matched: the clause for existing rows; None to set the columns given.
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
        """The query for the rows."""
        return self.given.query

    def counts(self, kinds: Counter[str]) -> dict[str, int]:
        """The number of all changes."""
        return {"count": kinds.total()}

    def source_and_whens(self, reading: Reading) -> tuple[pa.Table, Sequence[When]]:
        """The rows and the clauses."""
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
    """The first or the last row of each key, in order."""
    keys = KeyBatch(keys_of(target, [rows])).values
    numbered = list(enumerate(keys))
    chosen = {key: place for place, key in (numbered if keep == "last" else numbered[::-1])}
    if len(chosen) == len(keys):
        return rows
    return rows.take(pa.array(np.sort(np.fromiter(chosen.values(), np.int64, len(chosen)))))


def excluded_name(column: str) -> Name:
    """The name behind `excluded.column`: a column of the rows given."""
    return _GIVEN, f"{_GIVEN} {column}"


def excluded(column: str) -> str:
    """The same name as an expression."""
    return ".".join(map(quoted, excluded_name(column)))
