"""Arrow data that has values where it is null, as a slice of it or an expression of Polars has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def over_hidden_values(rows: pa.Table) -> pa.Table:
    """The same rows in a slice, with another row's values below each null, at every level."""
    if not rows.num_rows:
        return rows
    before = pa.concat_tables([rows.slice(rows.num_rows - 1), rows]).combine_chunks()
    columns = [_over_hidden(column.chunk(0)) for column in before.columns]
    return pa.Table.from_arrays(columns, schema=rows.schema).slice(1)


def _over_hidden(values: pa.Array) -> pa.Array:
    kind, valid = values.type, values.is_valid().to_numpy(zero_copy_only=False)
    if not valid.any():
        return values
    last_valid = np.maximum.accumulate(np.where(valid, np.arange(len(values)), valid.argmax()))
    filled = values.take(pa.array(last_valid))
    children = []
    if pa.types.is_struct(kind):
        children = [filled.field(place) for place in range(kind.num_fields)]
    elif pa.types.is_nested(kind):
        children = [filled.values]
    buffers = filled.buffers()[1 : kind.num_buffers]
    validity = pa.array(valid).buffers()[1]
    return pa.Array.from_buffers(
        kind, len(filled), [validity, *buffers], children=[*map(_over_hidden, children)]
    )
