"""Dictionary-encoded columns as plain ones: Arrow's casts know few types of dictionaries."""

from __future__ import annotations

import pyarrow as pa

from exec_nodes.arrow.arrays import flat
from exec_nodes.arrow.nested import inner_arrays, inner_fields, with_inner_arrays


def has_dictionaries(kind: pa.DataType) -> bool:
    """Whether values of a type, or parts of them, are dictionary-encoded."""
    return pa.types.is_dictionary(kind) or any(
        has_dictionaries(field.type) for field in inner_fields(kind)
    )


def decoded(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """A column with the values in place of their dictionaries, inside nested types too."""
    if isinstance(column, pa.ChunkedArray):
        chunks = [_decoded(chunk) for chunk in column.chunks]
        return pa.chunked_array(chunks, None if chunks else _decoded(column.combine_chunks()).type)
    return _decoded(column)


def _decoded(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        # Arrow takes nothing from views.
        values = flat(array.dictionary)
        return pa.DictionaryArray.from_arrays(array.indices, values).dictionary_decode()
    if not has_dictionaries(array.type):
        return array
    inner = [_decoded(part) for part in inner_arrays(array)]
    pairs = zip(inner_fields(array.type), inner, strict=True)
    return with_inner_arrays(array, [field.with_type(part.type) for field, part in pairs], inner)
