"""A generation under the names that the base table's columns have now.

Columns are the same where their field ids are (protocol rule 2). Names tell as much unless a column
of the base was renamed, or dropped and added again, since the generation was written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import lance
import pyarrow as pa

from exec_nodes.sources.source import TOMBSTONE

FieldIds = Mapping[str, int]
FIELD_ID_KEY = b"lance:field_id"


def under_names_of(dataset: Any, base: FieldIds) -> Any:
    """`dataset` with the names of the base table's columns, whose field ids are `base`.

    That is the dataset itself, unless names and ids disagree; then its rows are held in memory,
    in their order, without indexes: it is rare, and ends when the generation is merged.
    """
    # The next id after the columns' is that of `_tombstone`, and of a column added to the base.
    fields = dataset.lance_schema.fields()
    own = {field.name(): field.id() for field in fields if field.name() != TOMBSTONE}
    by_id = {field_id: name for name, field_id in own.items()}
    stored = {name: by_id.get(field_id) for name, field_id in base.items()}
    if all(name == held or (held is None and name not in own) for name, held in stored.items()):
        return dataset
    names = {name: held for name, held in stored.items() if held is not None}
    names[TOMBSTONE] = TOMBSTONE
    rows = dataset.to_table(columns=list(names.values()))
    renamed = pa.Table.from_arrays([rows[held] for held in names.values()], list(names))
    return lance.write_dataset(renamed, "memory://", data_storage_version="stable")


def batch_under_names_of(batch: pa.RecordBatch, base: FieldIds) -> pa.RecordBatch:
    """The same for a stored batch whose fields carry their ids, as those of WAL entries do.

    Columns that the base table has no more are left out. Where a field has no id, the names count.
    """
    by_id: dict[int, int] = {}
    for place, field in enumerate(batch.schema):
        if field.name != TOMBSTONE:
            stored = (field.metadata or {}).get(FIELD_ID_KEY)
            if stored is None:
                return batch
            by_id[int(stored)] = place
    held = {name: by_id[field_id] for name, field_id in base.items() if field_id in by_id}
    if len(held) == len(by_id) and all(batch.schema.names[at] == n for n, at in held.items()):
        return batch
    tombstone = batch.schema.get_field_index(TOMBSTONE)
    if tombstone >= 0:
        held[TOMBSTONE] = tombstone
    columns = [batch.column(place) for place in held.values()]
    fields = [batch.schema.field(place).with_name(name) for name, place in held.items()]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))
