"""The queries of one statement that changes rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import datafusion
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import functions as f

from exec_nodes.keys.keys import KeyBatch, one_array
from memwal_sql.arguments import quoted
from memwal_sql.state.schema import stored_type
from memwal_sql.statements.changes.target import Target
from memwal_sql.statements.queries.parsed import Text, parsed_query
from memwal_sql.statements.queries.planning import (
    parser_of,
    planned,
    planning_errors,
)
from memwal_sql.statements.queries.query_frames import may_read, query_frame
from memwal_sql.statements.queries.schemas import in_memory
from memwal_sql.statements.queries.snapshots import SnapshotTable, StatementSnapshots
from memwal_sql.write.conditional.groups import MOST_TOGETHER

ROW_NAME = "memwal row"
"""The column with the number of a row, in tables in memory."""
ROW = quoted(ROW_NAME)
# Keys that a query is planned for; with more of them, its rows are read and compared. An UPDATE of
# 200,000 rows read all of them in 0.14 s, 500 listed ones in 0.29, 50,000 in 14.8 (busy cores).
_MOST_NEAR = 200


class Reading:
    """Queries with the parameters and the WITH clause of one statement. They read every table in
    one snapshot; that of the statement's own table is strong."""

    def __init__(
        self, ctx: datafusion.SessionContext, parameters: Mapping[str, Any], target: Target
    ) -> None:
        self.ctx = ctx
        self._parameters = parameters
        self._target = target
        self._snapshots = StatementSnapshots()

    def rows(self, query: str, keys: pa.Table | None = None) -> pa.Table:
        """The result of a query; given keys, only its rows with these keys."""
        is_near = keys is not None and keys.num_rows <= _MOST_NEAR
        target = self._target
        query = f"{target.ctes} {query}"
        answer = query_frame(self.ctx, query, self._parameters, target.strong, self._snapshots)
        with planning_errors():
            rows = _stored((_near(answer, keys) if is_near else answer).to_arrow_table())
        return rows if keys is None else with_keys(rows, keys)

    def types(self, expressions: Sequence[str]) -> dict[str, pa.DataType]:
        """The types of expressions without columns."""
        types = dict[str, pa.DataType]()
        for start in range(0, len(expressions), MOST_TOGETHER):
            some = expressions[start : start + MOST_TOGETHER]
            shown = ", ".join(f"({text}) AS c{place}" for place, text in enumerate(some))
            with planning_errors():
                row = planned(self.ctx, f"{self._target.ctes} SELECT {shown}", self._parameters)
                types.update(zip(some, row.schema().types, strict=True))
        return types

    def may_read_target(self, query: str) -> bool:
        """Whether a query may read the statement's own table."""
        query = f"{self._target.ctes} {query}"
        return may_read(self.ctx, query, self._parameters, self._target.table)

    def get(self, keys: pa.Table, others: Sequence[str]) -> pa.Table:
        """The rows of the statement's own table with these keys. They are read in the snapshot of
        its queries if one of these reads the table, or if one of the expressions `others`,
        evaluated later, may read any table."""
        target, tables, key = self._target, self._snapshots.tables, (self._target.name, None)
        if key not in tables and self._read_tables(others):
            state = self._snapshots.state(target.name, target.table)
            tables[key] = SnapshotTable(target.table, target.columns, target.changed, state)
        rows = tables.get(key, target.table).get(keys)
        if not rows.schema.equals(target.columns):
            raise target.changed(rows.schema)
        return rows

    def _read_tables(self, expressions: Sequence[str]) -> bool:
        text = f"SELECT {', '.join(expressions)}"
        return bool(parsed_query(parser_of(self.ctx), Text(text, text)).tables)

    @contextmanager
    def tables(self, **tables: pa.Table) -> Iterator[Mapping[str, str]]:
        """A context in which queries find these rows, with their numbers as a column `ROW`, under
        the names that it yields."""
        numbered = {name: with_numbers(rows) for name, rows in tables.items()}
        with in_memory(self.ctx, numbered) as names:
            yield names


def with_numbers(rows: pa.Table) -> pa.Table:
    """Rows with their positions as the column `ROW`."""
    return rows.append_column(ROW_NAME, pa.array(np.arange(rows.num_rows)))


def with_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows that have one of these keys."""
    return rows.filter(are_among(rows.select(keys.column_names).cast(keys.schema), keys))


def are_among(keys: pa.Table, others: pa.Table) -> pa.ChunkedArray:
    """For each key whether the others have it."""
    return pc.is_in(KeyBatch(keys).column, value_set=one_array(KeyBatch(others).column))


def _stored(rows: pa.Table) -> pa.Table:
    """Rows of DataFusion in the types that tables store; Arrow can't take rows of views."""
    fields = [field.with_type(stored_type(field.type)) for field in rows.schema]
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, fields, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _near(answer: datafusion.DataFrame, keys: pa.Table) -> datafusion.DataFrame:
    """The rows whose key columns each have a value that occurs in the keys; a superset."""
    for name in keys.column_names:
        values = [datafusion.lit(value) for value in keys[name].unique()]
        answer = answer.filter(f.in_list(datafusion.col(quoted(name)), values))
    return answer
