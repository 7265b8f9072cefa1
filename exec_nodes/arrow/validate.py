"""Arrays whose buffers hold what their type says.

Arrow looks at no value when it reads a file, or when another library hands an array over: text
may not be UTF-8, offsets and dictionary indices may point anywhere, decimals and times may be out
of range. Such a row could be written, and neither it nor its neighbours could be read again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_list, is_text
from exec_nodes.arrow.nested import inner_arrays, inner_fields, with_inner_arrays
from exec_nodes.base.errors import InvalidCallError

Column: TypeAlias = pa.Array | pa.ChunkedArray
# Arrow raises the second where a view points outside its buffers.
_INVALID = (pa.ArrowInvalid, pa.ArrowIndexError)
# Raises one of these errors.
_Check: TypeAlias = Callable[[pa.Array], None]

_BYTES_OF = {
    pa.string(): pa.binary(),
    pa.large_string(): pa.large_binary(),
    pa.string_view(): pa.binary_view(),
}
_SHOWN = 40


def validated(column: Column, name: str) -> Column:
    """`column` itself, or a copy if NULLs hide bytes that are not valid text: Lance would not write
    it.

    Only rows within a slice are checked. Raises InvalidCallError naming the column and the row of a
    value that its type does not have.
    """
    if isinstance(column, pa.Array):
        return _validated(column, name, 0)
    chunks_before = column.chunks
    chunks, rows = [], 0
    for chunk in chunks_before:
        chunks.append(_validated(chunk, name, rows))
        rows += len(chunk)
    same = all(old is new for old, new in zip(chunks_before, chunks, strict=True))
    return column if same else pa.chunked_array(chunks, column.type)


def first_row(array: pa.Array, passes: Callable[[pa.Array], bool]) -> int | None:
    """The first row of an array whose slices do not pass if one of their rows does not."""
    low, high = 0, len(array)
    while high - low > 1:
        middle = (low + high) // 2
        if passes(array.slice(low, middle - low)):
            low = middle
        else:
            high = middle
    return None if passes(array.slice(low, 1)) else low


def _validated(array: pa.Array, name: str, start: int) -> pa.Array:
    if _passes(array, _check_text):
        return array
    if not _passes(array, _check_bytes):
        row = _first_row(array, _check_bytes)
        raise InvalidCallError(
            f"column {name!r} of type {array.type} has invalid data{_in_row(row, start)}: "
            f"{_reason(array, row)}"
        )
    array = _without_hidden(array)
    if _passes(array, _check_text):
        return array
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    row = _first_row(array, _check_text)
    shown = ""
    if row is not None and is_text(array.type):
        shown = f", {_bytes(array)[row].as_py()[:_SHOWN]!r}"
    raise InvalidCallError(
        f"column {name!r} has text that is not UTF-8{_in_row(row, start)}{shown}: decode it with "
        "its own encoding, or leave it out"
    )


# Checks


def _check(array: pa.Array, check_text: _Check) -> None:
    """Raise one of `_INVALID` unless all values are of their type.

    Arrow's own check of a nested array looks at all that its parts hold, for each slice of it.
    """
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        _check(array.storage, check_text)
    elif is_text(kind):
        check_text(array)
    elif pa.types.is_dictionary(kind):
        _check_indices(array)
        _check(array.dictionary, check_text)
    elif not (pa.types.is_struct(kind) or is_list(kind) or pa.types.is_map(kind)):
        array.validate(full=True)
    else:
        array.validate()
        for part in _parts(array):
            _check(part, check_text)


def _parts(array: pa.Array) -> list[pa.Array]:
    """The inner arrays of a nested one, as far as it shows them."""
    if pa.types.is_struct(array.type):
        return inner_arrays(array)
    if not len(array):
        return []
    if pa.types.is_fixed_size_list(array.type):
        size = array.type.list_size
        return [array.values.slice(array.offset * size, len(array) * size)]
    offsets = array.offsets.to_numpy()
    if offsets[0] < 0 or (np.diff(offsets) < 0).any() or offsets[-1] > len(array.values):
        raise pa.ArrowInvalid("the offsets of its lists point out of their values")
    return [array.values.slice(offsets[0], offsets[-1] - offsets[0])]


def _check_indices(array: pa.DictionaryArray) -> None:
    array.indices.validate(full=True)
    bounds = pc.min_max(array.indices).as_py()
    if bounds["max"] is not None and not 0 <= bounds["min"] <= bounds["max"] < len(
        array.dictionary
    ):
        raise pa.ArrowInvalid("an index points out of its dictionary")


def _check_text(array: pa.Array) -> None:
    if array.null_count and array.type in (pa.string(), pa.large_string()):
        # Values below NULLs are checked too: they are written with the others.
        buffers = [None, *array.buffers()[1:]]
        array = pa.Array.from_buffers(array.type, len(array), buffers, offset=array.offset)
    array.validate(full=True)


def _check_bytes(array: pa.Array) -> None:
    _bytes(array).validate(full=True)


def _passes(array: pa.Array, check_text: _Check) -> bool:
    try:
        _check(array, check_text)
    except _INVALID:
        return False
    return True


# Errors


def _first_row(array: pa.Array, check_text: _Check) -> int | None:
    """The first row that does not pass; None if what does not is a dictionary that rows share."""
    if not _passes(array.slice(0, 0), check_text):
        return None
    return first_row(array, lambda part: _passes(part, check_text))


def _in_row(row: int | None, start: int) -> str:
    return " in its dictionary" if row is None else f" in row {start + row}"


def _reason(array: pa.Array, row: int | None) -> str:
    try:
        _check(array if row is None else array.slice(row, 1), _check_bytes)
    except _INVALID as error:
        return str(error)
    return "its offsets go down"


# Copies


def _bytes(array: pa.Array) -> pa.Array:
    return array.view(_BYTES_OF[array.type])


def _without_hidden(array: pa.Array) -> pa.Array:
    """A copy without what NULLs hide; a field that admits no NULL keeps its own."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return kind.wrap_array(_without_hidden(array.storage))
    fields = inner_fields(kind)
    if pa.types.is_struct(kind):
        pairs = zip(fields, array.flatten(), inner_arrays(array), strict=True)
        inner = [masked if field.nullable else own for field, masked, own in pairs]
    else:
        try:
            array = array.take(pa.array(np.arange(len(array))))
        except pa.ArrowNotImplementedError:
            return array  # of views
        inner = inner_arrays(array) if fields else []
    if not fields:
        return array
    return with_inner_arrays(array, fields, [_without_hidden(part) for part in inner])
