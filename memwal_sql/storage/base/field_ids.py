"""Lance field ids: a flushed generation's columns carry those of the base table.

Lance numbers the fields of a new table by their position. A base table that lost or gained columns
has other numbers, and a generation is read by id, so its schema is built from the base's
(protocol rule 2). `_tombstone` gets the next id, as native code does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from lance import LanceDataset
from lance.schema import LanceSchema

from memwal_sql.storage.proto_gen import lance_table_pb2 as pb


def generation_schema(base: LanceSchema, schema: pa.Schema) -> LanceSchema:
    """`schema`, the base's columns in their order and `_tombstone`, with the ids of `base`.

    Columns that `base` does not have, `_tombstone` among them, get new ids.
    """
    written = LanceSchema.from_pyarrow(schema)
    restore, metadata, fields = _parts(written)
    path_ids = _ids(base)
    next_id = max(path_ids.values(), default=-1) + 1
    ids: dict[int, int] = {}
    renumbered = []
    for path, message in _fields(fields):
        if path not in path_ids:
            path_ids[path], next_id = next_id, next_id + 1
        ids[message.id] = path_ids[path]
        message.id = path_ids[path]
        message.parent_id = ids.get(message.parent_id, message.parent_id)
        renumbered.append(message.SerializeToString())
    return restore(metadata, *renumbered)


def with_columns(base: LanceSchema, added: pa.Schema, first_id: int) -> LanceSchema:
    """`base` and the columns of `added` after its own, whose fields have the ids from `first_id`
    on, as Lance would number them."""
    restore, metadata, fields = _parts(base)
    _, _, new = _parts(LanceSchema.from_pyarrow(added))
    renumbered = []
    for _, message in _fields(new):
        message.id += first_id
        message.parent_id += first_id if message.parent_id >= 0 else 0
        renumbered.append(message.SerializeToString())
    return restore(metadata, *fields, *renumbered)


def with_marks(base: LanceSchema, marked: pa.Schema) -> LanceSchema:
    """`base` with the metadata of `marked`, and with its columns in the place of those that have
    their names; these keep their ids. They have no fields inside."""
    restore, _, fields = _parts(base)
    _, metadata, new = _parts(LanceSchema.from_pyarrow(marked))
    new_fields = dict(_fields(new))
    encoded = []
    for data, (path, message) in zip(fields, _fields(fields), strict=True):
        if path in new_fields:
            new_fields[path].id, new_fields[path].parent_id = message.id, message.parent_id
            data = new_fields[path].SerializeToString()
        encoded.append(data)
    return restore(metadata, *encoded)


def _ids(schema: LanceSchema) -> dict[tuple[str, ...], int]:
    """Field ids by the names that lead to them, nested fields after their parents."""
    _, _, fields = _parts(schema)
    return {path: message.id for path, message in _fields(fields)}


def _parts(schema: LanceSchema) -> tuple[Callable[..., LanceSchema], str, list[bytes]]:
    """How to make a schema again, its metadata, and its fields as protobuf messages."""
    # What pickling gives is the only way from Python to choose ids.
    reduced: Any = schema.__reduce__()
    restore, (metadata, *fields) = reduced
    return restore, metadata, fields


def _fields(encoded: list[bytes]) -> Iterator[tuple[tuple[str, ...], pb.SchemaField]]:
    paths: dict[int, tuple[str, ...]] = {}
    for data in encoded:
        message = pb.SchemaField.FromString(data)
        path = (*paths.get(message.parent_id, ()), message.name)
        paths[message.id] = path
        yield path, message


def field_ids(base: LanceDataset) -> dict[str, int]:
    """The ids of a dataset's top-level columns by name."""
    return {field.name(): field.id() for field in base.lance_schema.fields()}
