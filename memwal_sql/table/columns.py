"""Changes of a table's columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import pyarrow as pa
from lance.fragment import FragmentMetadata

from exec_nodes.arrow.arrays import is_json
from exec_nodes.arrow.python_values import exact_values
from exec_nodes.arrow.text_columns import column_of
from exec_nodes.keys.keys import one_array
from exec_nodes.lance.indexes import indexes_of
from memwal_sql.arguments import name_list
from memwal_sql.errors import ConflictError, InvalidCallError, MemWalError, UnsupportedError
from memwal_sql.index.create import forget_indexes
from memwal_sql.maintain.columns import (
    ColumnShare,
    add_columns,
    add_computed,
    check_alterable,
    computed,
    drop_columns,
    make_nullable,
    rename_column,
    set_default,
    widen_column,
)
from memwal_sql.maintain.details import details_of, latest_dataset
from memwal_sql.state.open_writers import open_table_writers
from memwal_sql.storage.base.commits import half_done
from memwal_sql.storage.region.manifest import RegionStatus
from memwal_sql.table.flushing import FlushedTable
from memwal_sql.write.conditional.new_columns import NewColumns
from memwal_sql.write.ingest.json_texts import stored_json
from memwal_sql.write.router import active_spec

Added: TypeAlias = pa.Field | pa.Schema | Iterable[pa.Field] | Mapping[str, str]


class AlteredTable(FlushedTable):
    """Adds, drops, renames and widens columns.

    Rows follow their columns wherever they are: in the base table, in generations, in logs and in
    memory. An open writer keeps the columns it was opened with in the regions that it has: its rows
    have nulls in added columns, and its values of dropped columns are not read. It claims no other
    region, as others may have written columns there that it does not know: ReopenError.
    """

    def add_columns(self, columns: Added) -> None:
        """Add columns at the end.

        Args:
            columns: fields, which are null in every row; or SQL expressions over the row by name,
                such as `{"total": "price * quantity"}`, whose values each existing row gets. For
                expressions all rows are flushed and merged first, and all regions are claimed
                afterwards: open writers get ReopenError then, and rows that were written meanwhile
                have nulls. Later rows have the values that they are written with.

        Raises InvalidCallError before anything is changed for names that are taken, fields that are
        not nullable and texts that are not expressions over the row; RetryError when other commits
        of the base table kept coming in between; UnsupportedError for expressions with manual
        regions.
        """
        self._check_writable("change columns")
        if not isinstance(columns, Mapping):
            add_columns(self._context, _fields(columns))
            return self._see_columns()
        return self.add_columns_in_tasks(
            columns, lambda shares: list(map(self.compute_columns, shares)), 1
        )

    def add_columns_in_tasks(
        self,
        columns: Mapping[str, str],
        run: Callable[[Sequence[ColumnShare]], Sequence[list[FragmentMetadata]]],
        tasks: int,
    ) -> None:
        """Add columns of SQL expressions as `add_columns` does, computed by so many tasks at most:
        `run` calls `compute_columns` for each share, on handles of this table in any processes."""
        self._check_writable("change columns")
        if not isinstance(columns, Mapping):
            raise InvalidCallError(
                f"columns={columns!r}: tasks compute SQL expressions by name, such as "
                '{"total": "price * quantity"}; for columns without values call table.add_columns'
            )
        if active_spec(self._tracker.latest().info) is None:
            raise UnsupportedError(
                "manual regions can't be claimed for a computed column: add it as a field, and set "
                "it by update(...) with a writer of each region"
            )
        new = NewColumns(self.schema, columns)
        self.flush()
        flushed = {m.region_id: m.current_generation - 1 for m in self._manifests()}

        def check(dataset: Any) -> None:
            # Beside a steady writer there are always newer ones.
            merged = details_of(self._context, dataset).merged_generations
            if any(merged.get(region, 0) < last for region, last in flushed.items()):
                raise ConflictError("rows that were there before are not merged")

        add_computed(self._context, new, self.merge, check, columns, run, tasks)
        with half_done(
            f"{new.schema.names} are added, but writers that are open may still put nulls over "
            "their values: close these writers, and open new ones"
        ):
            self._stop_writers()
        self._see_columns()

    def compute_columns(self, share: ColumnShare) -> list[FragmentMetadata]:
        """Do the work of one task."""
        self._check_writable("change columns")
        return computed(self._context, NewColumns(self.schema, dict(share.columns)), share)

    def drop_columns(self, names: str | Iterable[str]) -> None:
        """Drop columns together with their indexes. Raises InvalidCallError for unknown names, and
        for columns of the primary key."""
        self._check_writable("change columns")
        column_names = [names] if isinstance(names, str) else name_list("names", names)
        dataset = latest_dataset(self._context)
        check_alterable(dataset, column_names)
        if not column_names:
            raise InvalidCallError("names=[]: name the columns to drop")
        indexes = indexes_of(dataset)
        theirs = {
            index.name
            for index in indexes
            if set(map(column_of, index.field_names)) & set(column_names)
        }
        drop_columns(self._context, column_names)
        if theirs:
            self._forget(sorted(theirs))
        self._see_columns()

    def rename_column(self, name: str, new: str) -> None:
        """Rename a column; its indexes follow. Raises InvalidCallError for an unknown name, a new
        name that is taken, and a column of the primary key."""
        self._check_writable("change columns")
        rename_column(self._context, name, new)
        self._see_columns()

    def set_nullable(self, name: str, nullable: bool = True) -> None:
        """Make a column nullable.

        Raises InvalidCallError for an unknown name and a column of the primary key, and
        UnsupportedError for `nullable=False`, as open writers may write nulls.
        """
        self._check_writable("change columns")
        if not nullable:
            raise UnsupportedError(
                f"column {name!r} can't be made required: open writers, here or elsewhere, may"
                " still write nulls"
            )
        make_nullable(self._context, name)
        self._see_columns()

    def set_type(self, name: str, kind: pa.DataType) -> None:
        """Widen a column's type: integers to wider ones, floats to wider ones, decimals to those
        with as many digits or more before and after the point. The column is written again in the
        base table; rows of open writers keep the old type, and are cast when they are read.

        Raises InvalidCallError for an unknown name, any other type, a column of the primary key,
        and one with an index: drop that first.
        """
        self._check_writable("change columns")
        if not isinstance(kind, pa.DataType):
            raise InvalidCallError(f"kind={kind!r} must be a type of Arrow, such as pa.int64()")
        widen_column(self._context, name, kind)
        self._see_columns()

    def set_default(self, name: str, value: Any) -> None:
        """Give a column a default, or none by `value=None`: the value of new rows that lack the
        column, when `upsert`, `insert` and statements of `mw.sql` write them. Open writers keep the
        default that they were opened with.

        It is in the field's metadata, as a text under `memwal_sql:default`. Raises InvalidCallError
        for an unknown name, a column of the primary key, and a value that is not of its type or has
        no text, such as a list.
        """
        self._check_writable("change columns")
        values = pa.array([value]) if isinstance(value, pa.Scalar) else [value]

        def scalar(field: pa.Field) -> pa.Scalar:
            value = one_array(exact_values(values, field))
            return (stored_json(value, field.name) if is_json(field.type) else value)[0]

        set_default(self._context, name, scalar)
        self._see_columns()

    def _stop_writers(self) -> None:
        """Take the regions of writers that lack columns which rows have a value in by now. None of
        them claims a region again."""
        for writer in open_table_writers(self._context.identity):
            with suppress(MemWalError):  # its next call says so
                writer.land()
        alive = [m for m in self._manifests() if m.status is not RegionStatus.SEALED]
        self.publisher().take_regions(alive)

    def _see_columns(self) -> None:
        self._afterwards("reading the changed columns", self.refresh)

    def _forget(self, indexes: Sequence[str]) -> None:
        """Remove the notes of dropped indexes; a failure here does not undo the drop."""
        what = f"the note that the indexes {indexes} are gone"
        self._afterwards(what, lambda: forget_indexes(self._context, indexes))


def _fields(columns: pa.Field | pa.Schema | Iterable[pa.Field]) -> pa.Schema:
    sequence = [columns] if isinstance(columns, pa.Field) else columns
    fields = (
        list(sequence) if isinstance(sequence, Iterable) and not isinstance(sequence, str) else []
    )
    if not fields or not all(isinstance(field, pa.Field) for field in fields):
        raise InvalidCallError(
            f"columns={columns!r} must be Arrow fields, such as pa.field('n', pa.int64()), or SQL "
            "expressions by name"
        )
    return pa.schema(fields)
