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
from memwal_sql.maintain import columns as base_columns
from memwal_sql.maintain.columns import ColumnShare
from memwal_sql.maintain.details import details_of, latest_dataset
from memwal_sql.state.open_writers import open_table_writers
from memwal_sql.storage.base.commits import half_done
from memwal_sql.storage.region.manifest import RegionStatus
from memwal_sql.table.flushing import flush
from memwal_sql.table.handle import TableHandle
from memwal_sql.table.maintaining import merge
from memwal_sql.table.staging import publisher
from memwal_sql.write.conditional.new_columns import NewColumns
from memwal_sql.write.ingest.json_texts import stored_json
from memwal_sql.write.router import active_spec

Added: TypeAlias = pa.Field | pa.Schema | Iterable[pa.Field] | Mapping[str, str]


def add_columns(table: TableHandle, columns: Added) -> None:
    """See `Table.add_columns`."""
    if isinstance(columns, Mapping):
        return add_columns_in_tasks(
            table, columns, lambda shares: [compute_columns(table, share) for share in shares], 1
        )
    table.check_writable("change columns")
    base_columns.add_columns(table.context, _fields(columns))
    return _see_columns(table)


def add_columns_in_tasks(
    table: TableHandle,
    columns: Mapping[str, str],
    run: Callable[[Sequence[ColumnShare]], Sequence[list[FragmentMetadata]]],
    tasks: int,
) -> None:
    """See `Table.add_columns_in_tasks`."""
    table.check_writable("change columns")
    if not isinstance(columns, Mapping):
        raise InvalidCallError(
            f"columns={columns!r}: tasks compute SQL expressions by name, such as "
            '{"total": "price * quantity"}; for columns without values call table.add_columns'
        )
    if active_spec(table.tracker.latest().info) is None:
        raise UnsupportedError(
            "manual regions can't be claimed for a computed column: add it as a field, and set "
            "it by update(...) with a writer of each region"
        )
    new = NewColumns(table.schema, columns)
    flush(table)
    flushed = {m.region_id: m.current_generation - 1 for m in table.manifests()}

    def check(dataset: Any) -> None:
        # While a writer keeps writing, there are always newer generations.
        merged = details_of(table.context, dataset).merged_generations
        if any(merged.get(region, 0) < last for region, last in flushed.items()):
            raise ConflictError("rows that were there before are not merged")

    base_columns.add_computed(table.context, new, lambda: merge(table), check, columns, run, tasks)
    with half_done(
        f"{new.schema.names} are added, but writers that are open may still put nulls over "
        "their values: close these writers, and open new ones"
    ):
        _stop_writers(table)
    _see_columns(table)


def compute_columns(table: TableHandle, share: ColumnShare) -> list[FragmentMetadata]:
    """See `Table.compute_columns`."""
    table.check_writable("change columns")
    return base_columns.computed(
        table.context, NewColumns(table.schema, dict(share.columns)), share
    )


def drop_columns(table: TableHandle, names: str | Iterable[str]) -> None:
    """See `Table.drop_columns`."""
    table.check_writable("change columns")
    column_names = [names] if isinstance(names, str) else name_list("names", names)
    dataset = latest_dataset(table.context)
    base_columns.check_alterable(dataset, column_names)
    if not column_names:
        raise InvalidCallError("names=[]: name the columns to drop")
    theirs = sorted(
        {
            index.name
            for index in indexes_of(dataset)
            if set(map(column_of, index.field_names)) & set(column_names)
        }
    )
    base_columns.drop_columns(table.context, column_names)
    if theirs:  # a failure here does not undo the drop
        what = f"the note that the indexes {theirs} are gone"
        table.afterwards(what, lambda: forget_indexes(table.context, theirs))
    _see_columns(table)


def rename_column(table: TableHandle, name: str, new: str) -> None:
    """See `Table.rename_column`."""
    table.check_writable("change columns")
    base_columns.rename_column(table.context, name, new)
    _see_columns(table)


def set_nullable(table: TableHandle, name: str, nullable: bool) -> None:
    """See `Table.set_nullable`."""
    table.check_writable("change columns")
    if not nullable:
        raise UnsupportedError(
            f"column {name!r} can't be made required: open writers, here or elsewhere, may"
            " still write nulls"
        )
    base_columns.make_nullable(table.context, name)
    _see_columns(table)


def set_type(table: TableHandle, name: str, kind: pa.DataType) -> None:
    """See `Table.set_type`."""
    table.check_writable("change columns")
    if not isinstance(kind, pa.DataType):
        raise InvalidCallError(f"kind={kind!r} must be a type of Arrow, such as pa.int64()")
    base_columns.widen_column(table.context, name, kind)
    _see_columns(table)


def set_default(table: TableHandle, name: str, value: Any) -> None:
    """See `Table.set_default`."""
    table.check_writable("change columns")
    values = pa.array([value]) if isinstance(value, pa.Scalar) else [value]

    def scalar(field: pa.Field) -> pa.Scalar:
        value = one_array(exact_values(values, field))
        return (stored_json(value, field.name) if is_json(field.type) else value)[0]

    base_columns.set_default(table.context, name, scalar)
    _see_columns(table)


def _stop_writers(table: TableHandle) -> None:
    """Take the regions of writers that lack columns which rows have a value in by now. None of
    them claims a region again."""
    for writer in open_table_writers(table.context.identity):
        with suppress(MemWalError):  # its next call says so
            writer.land()
    alive = [m for m in table.manifests() if m.status is not RegionStatus.SEALED]
    publisher(table).take_regions(alive)


def _see_columns(table: TableHandle) -> None:
    table.afterwards("reading the changed columns", table.refresh)


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
