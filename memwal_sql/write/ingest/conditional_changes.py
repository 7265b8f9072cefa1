"""Streams of changes under a condition, where more than the key of a delete counts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.large_columns import concatenated
from memwal_sql.state.memtable import memtable_schema
from memwal_sql.write.ingest.change_codes import DELETE, UPSERT
from memwal_sql.write.ingest.debezium import NO_FORMS, TextForms
from memwal_sql.write.ingest.missing import NULL
from memwal_sql.write.ingest.normalise import Normaliser


def conditional_changes(
    normaliser: Normaliser,
    schema: pa.Schema,
    data: Any,
    op: str,
    forms: TextForms = NO_FORMS,
) -> pa.RecordBatch:
    """The changes of `data` in order, in the MemTables' columns: deletes have the values that they
    carry, and null in other columns. Raises InvalidCallError."""
    normaliser, rows = normaliser.opened_changes(data)
    rows = list(chain.from_iterable(rows)) if isinstance(rows, Iterator) else rows
    changes = normaliser.changes_of(rows, op, forms)
    places = [changes.places(kind) for kind in (UPSERT, DELETE)]
    target = memtable_schema(schema)
    parts: list[list[pa.Array]] = []
    if len(places[0]):
        parts.append(normaliser.upserts(changes.rows(UPSERT)).columns)
    if len(places[1]):
        deletes = normaliser.partial(pa.table(normaliser.arrow_rows(changes.rows(DELETE), NULL)))
        names, count = set(deletes.schema.names), deletes.num_rows
        columns = [
            deletes[field.name] if field.name in names else pa.nulls(count, field.type)
            for field in schema
        ]
        parts.append([*columns, pa.array([True] * count)])
    if not parts:
        return pa.RecordBatch.from_pylist([], target)
    batches = [pa.RecordBatch.from_arrays(columns, target.names) for columns in parts]
    order = np.argsort(np.concatenate(places), kind="stable")
    return concatenated(batches).take(pa.array(order))
