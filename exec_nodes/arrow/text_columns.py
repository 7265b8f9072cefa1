"""Texts in columns: strings, lists of strings, and both as fields of structs, which are named by
their path: `body.title`. No column of a table has a dot in its name."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import flattened, is_text, is_variable_list


def text_paths(fields: Iterable[pa.Field]) -> list[str]:
    """The paths of all texts in the columns of a schema."""
    paths = []
    for field in fields:
        kind = field.type
        if is_text(kind) or (is_variable_list(kind) and is_text(kind.value_type)):
            paths.append(field.name)
        elif pa.types.is_struct(kind):
            inside = (inner for inner in kind if not set(inner.name) & {".", "`"})
            paths += [f"{field.name}.{path}" for path in text_paths(inside)]
    return paths


def column_of(path: str) -> str:
    """The column that has the texts at a path."""
    return path.partition(".")[0]


def texts_at(values: pa.Array, path: str) -> pa.Array:
    """The text at a path for each value of its column.

    As in Lance's index a list is one text, its elements with blanks between them and without nulls:
    an empty one for a list that is null or has no element.
    """
    for name in path.split(".")[1:]:
        values = pc.struct_field(values, name)
    return _joined(values) if is_variable_list(values.type) else values


def _joined(lists: pa.Array) -> pa.Array:
    texts, rows = flattened(lists)
    rows = rows[texts.is_valid().to_numpy(zero_copy_only=False)]
    ends = rows.searchsorted(np.arange(len(lists) + 1))
    texts = texts.drop_null().cast(pa.string())
    return pc.binary_join(pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), texts), " ")
