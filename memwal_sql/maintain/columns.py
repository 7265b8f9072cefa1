"""Columns of the base table: added, dropped, renamed, made nullable, widened, given a default.

Rows that are in logs, in memory and in generations go by field id, so that a commit of the base
changes them all. Lance numbers a new column from the largest id that it finds; that of a column
that was dropped may be gone from there, while rows in front still have it. So dropping notes the
largest id in the metadata of the schema, and adding begins above it. Lance's own change of a type
gives the column another id, so it is written again here, under its id.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

from exec_nodes.evolution.widen import widens
from exec_nodes.lance.fragments import fragments_of_task, overlaid_fields
from exec_nodes.lance.indexes import indexes_of
from exec_nodes.lance.reading import batches_of, written
from exec_nodes.lance.scan import every_value
from memwal_sql.errors import InvalidCallError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.details import dataset_at, latest_dataset, maintenance
from memwal_sql.state.context import TableContext
from memwal_sql.state.defaults import DEFAULT_KEY, with_default
from memwal_sql.state.schema import check_schema, logical_schema, primary_key_of
from memwal_sql.storage.base.commits import base_commit
from memwal_sql.storage.base.field_ids import field_ids, with_columns, with_marks
from memwal_sql.storage.retries import over_conflicts
from memwal_sql.write.conditional.new_columns import NewColumns

_log = life_log(__name__)

_LARGEST_ID = "memwal_sql:max_field_id"
_OFFSET = 0xFFFFFFFF  # of a row's address, that within its fragment
_ANY_SIZE = 1 << 50
_GONE = -2  # Lance's id of a field of a file that another file has


def add_columns(context: TableContext, added: pa.Schema) -> None:
    """Add columns after the others, null in all rows."""

    def commit() -> None:
        with maintenance(context, f"add_columns {added.names}"):
            dataset = latest_dataset(context)
            first_id = _first_id(dataset, added)
            fragments = [fragment.metadata for fragment in dataset.get_fragments()]
            _add(context, dataset, added, first_id, fragments)

    over_conflicts(commit, context.uri)


@dataclass(frozen=True, slots=True)
class ColumnShare:
    """The share of the task with this number, of so many: of the files of new columns, given by
    their expressions, whose fields have the ids from `first_id` on. It pickles."""

    version: int
    columns: tuple[tuple[str, str], ...]
    first_id: int
    number: int
    tasks: int


def add_computed(
    context: TableContext,
    new: NewColumns,
    merge: Callable[[], object],
    check: Callable[[Any], None],
    texts: Mapping[str, str],
    run: Callable[[Sequence[ColumnShare]], Sequence[list[FragmentMetadata]]],
    tasks: int,
) -> None:
    """Add columns as they are computed of the base table's rows, by the expressions `texts`.

    `merge` is called before, and `check` with the version that they are added to; it raises
    ConflictError to begin again. `run` calls `computed` for the shares of so many tasks at most.
    """

    def commit() -> None:
        merge()
        with maintenance(context, f"add_columns {new.schema.names}"):
            dataset = latest_dataset(context)
            check(dataset)
            first_id = _first_id(dataset, new.schema)
            most = min(tasks, len(dataset.get_fragments()))
            shares = [
                ColumnShare(dataset.version, tuple(texts.items()), first_id, number, most)
                for number in range(most)
            ]
            fragments = sorted(chain(*run(shares)), key=lambda each: each.id)
            _add(context, dataset, new.schema, first_id, fragments)

    over_conflicts(commit, context.uri)


def computed(context: TableContext, new: NewColumns, share: ColumnShare) -> list[FragmentMetadata]:
    """The fragments of one task's share with files of the new columns, which nobody sees yet."""
    dataset = dataset_at(context, share.version)
    fragments = fragments_of_task(dataset, share.number, share.tasks)
    return [_computed(context, dataset, fragment, new, share.first_id) for fragment in fragments]


def widen_column(context: TableContext, name: str, kind: pa.DataType) -> None:
    """Give a column a wider type. Rows in front keep theirs, and are cast when they are read."""

    def commit() -> None:
        with maintenance(context, f"set_type {name}"):
            dataset = latest_dataset(context)
            check_alterable(dataset, [name])
            if dataset.schema.field(name).type == kind:
                return
            field_id = field_ids(dataset)[name]
            field = _wider(dataset, name, kind, field_id)
            columns = pa.schema([field.remove_metadata()])

            def rows(fragment: Any) -> Iterator[pa.RecordBatch]:
                for values in every_value(dataset, columns.field(0), [fragment]):
                    yield pa.RecordBatch.from_arrays([values], schema=columns)

            fragments = [
                _with_columns(context, dataset, fragment, columns, rows(fragment), field_id)
                for fragment in dataset.get_fragments()
            ]
            schema = with_marks(dataset.lance_schema, pa.schema([field], dataset.schema.metadata))
            _commit(context, dataset, lance.LanceOperation.Merge(fragments, schema))

    over_conflicts(commit, context.uri)
    _log.info("changed %s: column %r is %s", context.uri, name, kind)


def set_default(context: TableContext, name: str, value: Callable[[pa.Field], pa.Scalar]) -> None:
    """Give a column the default that `value` makes for it, or none if that is null."""

    def commit() -> None:
        with maintenance(context, f"set_default {name}"):
            dataset = latest_dataset(context)
            check_alterable(dataset, [name])
            field = dataset.schema.field(name)
            field = with_default(field, value(field))
            if not field.equals(dataset.schema.field(name), check_metadata=True):
                marked = pa.schema([field], dataset.schema.metadata)
                schema = with_marks(dataset.lance_schema, marked)
                _commit(context, dataset, lance.LanceOperation.Project(schema))

    over_conflicts(commit, context.uri)
    _log.info("changed %s: another default of column %r", context.uri, name)


def _add(
    context: TableContext,
    dataset: Any,
    added: pa.Schema,
    first_id: int,
    fragments: Sequence[FragmentMetadata],
) -> None:
    schema = with_columns(dataset.lance_schema, added, first_id)
    _commit(context, dataset, lance.LanceOperation.Merge(fragments, schema))
    _log.info("changed %s: added columns %s", context.uri, added.names)


def _commit(context: TableContext, dataset: Any, operation: Any) -> None:
    with base_commit(context.uri, "the columns"):
        lance.LanceDataset.commit(dataset, operation, read_version=dataset.version, max_retries=0)


def drop_columns(context: TableContext, names: Sequence[str]) -> None:
    """Drop columns; Lance drops their indexes with them."""

    def commit() -> None:
        with maintenance(context, f"drop_columns {list(names)}"):
            dataset = latest_dataset(context)
            check_alterable(dataset, names)
            largest = dataset.max_field_id
            if largest > _noted(dataset):
                with base_commit(context.uri, "the columns"):
                    dataset.update_schema_metadata({_LARGEST_ID: str(largest)})
            with base_commit(context.uri, "the columns"):
                dataset.drop_columns(list(names))

    over_conflicts(commit, context.uri)
    _log.info("changed %s: dropped columns %s", context.uri, list(names))


def rename_column(context: TableContext, name: str, new: str) -> None:
    """Give a column another name."""

    def commit() -> None:
        with maintenance(context, f"rename_column {name}"):
            dataset = latest_dataset(context)
            check_alterable(dataset, [name])
            field = dataset.schema.field(name).with_name(new)
            place = dataset.schema.get_field_index(name)
            _check_whole(dataset, dataset.schema.set(place, field))
            with base_commit(context.uri, "the columns"):
                dataset.alter_columns({"path": name, "name": new})

    over_conflicts(commit, context.uri)
    _log.info("changed %s: renamed column %r to %r", context.uri, name, new)


def make_nullable(context: TableContext, name: str) -> None:
    """Let a column have nulls."""

    def commit() -> None:
        with maintenance(context, f"make_nullable {name}"):
            dataset = latest_dataset(context)
            check_alterable(dataset, [name])
            if not dataset.schema.field(name).nullable:
                with base_commit(context.uri, "the columns"):
                    dataset.alter_columns({"path": name, "nullable": True})

    over_conflicts(commit, context.uri)
    _log.info("changed %s: column %r may have nulls", context.uri, name)


def check_alterable(dataset: Any, names: Sequence[str]) -> None:
    """Raise InvalidCallError for unknown columns, and for columns of the primary key."""
    unknown = [name for name in names if name not in dataset.schema.names]
    if unknown:
        raise InvalidCallError(f"the table has no columns {unknown}; it has {dataset.schema.names}")
    keys = [name for name in names if name in primary_key_of(dataset.schema)]
    if keys:
        raise InvalidCallError(
            f"{keys} are columns of the primary key, which rows are found and divided by: they "
            "can't be changed; make a new table and write the rows into it"
        )


def check_wider(field: pa.Field, kind: pa.DataType) -> None:
    """Raise InvalidCallError unless a column may get a type, which may be its own."""
    if kind != field.type and not widens(field.type, kind):
        raise InvalidCallError(
            f"column {field.name!r} is {field.type}, and can't become {kind}: only integers become "
            "wider integers, floats wider floats, and decimals those with as many digits or more "
            "before and after the point; else add a column, set it by update(...), and drop this"
        )


def _computed(
    context: TableContext, dataset: Any, fragment: Any, new: NewColumns, first_id: int
) -> FragmentMetadata:
    """The fragment with new columns.

    Lance's own `add_columns` refuses this where a table has a log in front, for the rows in there.
    """

    def rows() -> Iterator[pa.RecordBatch]:
        """One value for each row that was written into the fragment, null for rows deleted
        since."""
        after = 0
        for batch in batches_of(fragment.scanner(columns=list(new.read), with_row_address=True)):
            places = (batch["_rowaddr"].to_numpy() & _OFFSET).astype(np.int64)
            if len(places):
                values = new.compute(batch)
                yield _spread(values, places - after, int(places[-1]) + 1 - after)
                after = int(places[-1]) + 1
        rest = pa.RecordBatch.from_pylist([], new.schema)
        yield _spread(rest, np.zeros(0, np.int64), fragment.physical_rows - after)

    return _with_columns(context, dataset, fragment, new.schema, rows(), first_id)


def _with_columns(
    context: TableContext,
    dataset: Any,
    fragment: Any,
    columns: pa.Schema,
    rows: Iterator[pa.RecordBatch],
    first_id: int,
) -> FragmentMetadata:
    """The fragment with a file of columns, whose fields have the ids from `first_id` on. `rows` are
    all that were written into it. Its other files lose fields of these ids."""
    metadata: FragmentMetadata = fragment.metadata
    with written(columns, rows) as stream:
        (made,) = write_fragments(
            stream,
            dataset.uri,
            schema=columns,
            mode="overwrite",  # of which nothing is committed: only files of new columns alone
            max_rows_per_file=metadata.physical_rows,
            max_bytes_per_file=_ANY_SIZE,
            data_storage_version=dataset.data_storage_version,
            storage_options=context.storage_options,
        )
    (file,) = made.files
    file.fields = [number + first_id for number in file.fields]
    for other in metadata.files:
        other.fields = [_GONE if number in file.fields else number for number in other.fields]
    return dataclasses.replace(metadata, files=[*metadata.files, file])


def _wider(dataset: Any, name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    """The column in a wider type. Raises InvalidCallError where it can't be."""
    field = dataset.schema.field(name)
    check_wider(field, kind)
    _check_whole(
        dataset, dataset.schema.set(dataset.schema.get_field_index(name), field.with_type(kind))
    )
    indexes = [index.name for index in indexes_of(dataset) if name in index.field_names]
    if indexes:
        raise InvalidCallError(
            f"column {name!r} has the indexes {indexes}, which are of {field.type}: drop them, and "
            "create them again afterwards"
        )
    if any(field_id in overlaid_fields(fragment) for fragment in dataset.get_fragments()):
        raise InvalidCallError(f"overlays replace values of column {name!r}: compact() first")
    return field.with_type(kind)


def _spread(rows: pa.RecordBatch, places: npt.NDArray[np.int64], length: int) -> pa.RecordBatch:
    """So many rows: the given values at their places, and nulls at all others."""
    order = np.full(length, -1, np.int64)
    order[places] = np.arange(len(places))
    chosen = pa.array(order, mask=order < 0)
    return pa.RecordBatch.from_arrays([c.take(chosen) for c in rows.columns], schema=rows.schema)


def _first_id(dataset: Any, added: pa.Schema) -> int:
    """The id of the first of new fields. Raises InvalidCallError where they can't be added."""
    _check_new(dataset, added)
    return max(int(dataset.max_field_id), _noted(dataset)) + 1


def _noted(dataset: Any) -> int:
    text = (dataset.schema.metadata or {}).get(_LARGEST_ID.encode(), b"-1")
    return int(text)


def _check_new(dataset: Any, added: pa.Schema) -> None:
    taken = sorted(set(added.names) & set(dataset.schema.names))
    if taken:
        raise InvalidCallError(f"the table has columns {taken} already")
    if defaults := [field.name for field in added if DEFAULT_KEY in (field.metadata or {})]:
        raise InvalidCallError(
            f"the new columns {defaults} would be null in the rows that are there, whatever their "
            "defaults: add them without, then set the default for new rows, and the others' values "
            "by update(...)"
        )
    required = [field.name for field in added if not field.nullable]
    if required:
        raise InvalidCallError(
            f"the new columns {required} are null in the rows that are there: make them nullable"
        )
    _check_whole(dataset, pa.schema([*dataset.schema, *added]))


def _check_whole(dataset: Any, schema: pa.Schema) -> None:
    check_schema(logical_schema(schema), primary_key_of(dataset.schema))
