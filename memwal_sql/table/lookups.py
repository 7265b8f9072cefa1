"""Rows by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from exec_nodes.keys.keys import KeyBatch, as_key_table, key_column, one_array
from exec_nodes.keys.scalar import OneKey, one_key
from memwal_sql.read.lookup import distinct, get
from memwal_sql.state.base_table import BaseTable
from memwal_sql.table.handle import TableHandle, named_columns


def get_rows(table: TableHandle, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """See `Table.get`."""
    answers = table.answers
    if answers is not None and answers.are_likely:
        info = table.info
        key_batch = _keys(keys, info.schema, info.primary_key)
        names = named_columns(columns, info.schema)
        stream = answers.get(one_array(key_column(key_batch.table.columns)), names)
        if stream is not None and names:
            return pa.table(stream)
        if not isinstance(key_batch, OneKey):  # a stream can be read once
            keys = key_batch.table

    def rows(base: BaseTable) -> pa.Table:
        schema, primary_key = base.info.schema, base.info.primary_key
        names = named_columns(columns, schema)
        batch = _keys(keys, schema, primary_key)
        batch = batch if isinstance(batch, OneKey) else distinct(batch)
        return get(table.collector, base, batch, names)

    return table.collector.query("strong", rows)


def _keys(keys: Any, schema: pa.Schema, primary_key: Sequence[str]) -> KeyBatch:
    only_key = one_key(keys, schema, primary_key)
    return KeyBatch(as_key_table(keys, schema, primary_key)) if only_key is None else only_key
