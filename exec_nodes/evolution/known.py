"""Readers that go on with the columns that they know, after others were added or widened."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.base.errors import ReopenError
from exec_nodes.evolution.widen import Column, widens

NO_IDS: Mapping[str, int] = {}


def has_known(
    now: pa.Schema,
    known: pa.Schema,
    ids_now: Mapping[str, int] = NO_IDS,
    ids_known: Mapping[str, int] = NO_IDS,
) -> bool:
    """Whether a table with the columns `now` has the `known` ones, by name, and by field id where
    both have one: in their types or wider ones, and without nulls where there were none."""
    if ids_now == ids_known and now.equals(known):
        return True
    for field in known:
        place = now.get_field_index(field.name)
        if place < 0:
            return False
        own = ids_known.get(field.name)
        if own is not None and ids_now.get(field.name, own) != own:
            return False
        kind = now.field(place).type
        if kind != field.type and not widens(field.type, kind):
            return False
        if now.field(place).nullable and not field.nullable:
            return False
    return True


def widened_since(now: pa.Schema, known: pa.Schema) -> frozenset[str]:
    """The `known` columns that have another type now."""
    if now.equals(known):
        return frozenset()
    return frozenset(field.name for field in known if now.field(field.name).type != field.type)


def known_rows(batch: pa.RecordBatch, known: pa.Schema) -> pa.RecordBatch:
    """A batch of the known columns in their known types. Raises ReopenError for a value that is
    none of the type."""
    if batch.schema.types == known.types:
        return batch
    columns = [
        known_column(column, field) for column, field in zip(batch.columns, known, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=known)


def known_stream(rows: pa.RecordBatchReader, known: pa.Schema) -> pa.RecordBatchReader:
    """The same for a stream of batches."""
    if rows.schema.types == known.types:
        return rows
    return pa.RecordBatchReader.from_batches(known, (known_rows(batch, known) for batch in rows))


def stored_rows(batch: pa.RecordBatch, known: pa.Schema) -> pa.RecordBatch:
    """A batch of any columns, with the known ones among them in their known types."""
    if batch.schema.equals(known):
        return batch
    kinds = {field.name: field.type for field in known}
    if not any(widens(kinds.get(field.name, field.type), field.type) for field in batch.schema):
        return batch
    fields = [f.with_type(kinds.get(f.name, f.type)) for f in batch.schema]
    columns = [known_column(column, f) for column, f in zip(batch.columns, fields, strict=True)]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def known_column(column: Column, field: pa.Field) -> Column:
    """A column in its known type. Raises as `known_rows`."""
    if not widens(field.type, column.type):
        return column
    try:
        values = pc.cast(column, field.type)
    except pa.ArrowInvalid as error:
        raise _beyond(column, field) from error
    if pa.types.is_floating(field.type):
        same = pc.or_(pc.equal(pc.cast(values, column.type), column), pc.is_nan(column))
        if pc.all(same).as_py() is False:
            raise _beyond(column, field)
    return values


def _beyond(column: Column, field: pa.Field) -> ReopenError:
    return ReopenError(
        f"column {field.name!r} is {column.type} by now, was {field.type} when the table was "
        f"registered or the query made, and has values that {field.type} has not: register the "
        "table again, and make the query again"
    )
