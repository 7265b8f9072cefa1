"""Python values as Arrow columns.

A value is taken if it is of the column type's own kind, or one of the few others that the manual
lists, and only where it stays equal. Arrow's own conversion takes whatever looks like a value of
the type: the letters of a text as a list, a UUID as a date. So it is asked for plain values of
known Python types only; dictionaries, structs, lists and maps are made of their parts.
"""

from __future__ import annotations

import array
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.arrays import is_json, is_list, type_text
from exec_nodes.arrow.casts import Column, exact_cast
from exec_nodes.arrow.plain_values import (
    CONVERSION_ERRORS,
    UnfitError,
    brief_value,
    is_plain_bytes,
    plain_column,
    present,
    shown,
)
from exec_nodes.arrow.struct_fields import check_values
from exec_nodes.base.errors import InvalidCallError


def exact_values(values: Any, field: pa.Field, *, fill: bool = False) -> Column:
    """One column of a caller's values, of any form, in the field's type.

    Arrow columns are cast as by `exact_cast`. Python and numpy floats may be rounded to a
    float32 or float16 column, which have no Python form, but not to infinity. NaT is null in
    columns of times, and NA of pandas in all. Structs have all the fields of the type, or, with
    `fill`, those that they lack become null.

    Raises InvalidCallError naming the column, the value and the remedy.
    """
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return exact_cast(values, field, fill=fill)
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise InvalidCallError(
            f"column {field.name!r}: {brief_value(shown(values))} is not a list of values of type "
            f"{field.type}: put it into a list, as "
            f"{{{field.name!r}: [value]}}, or give rows as a list of dicts, as "
            f"[{{{field.name!r}: value}}]"
        )
    if str(getattr(values, "dtype", "object")) != "object":
        return exact_cast(_of_arrays(values, field), field, rounding=True, fill=fill)
    values = _objects(values)
    builder = _Builder(field.name)
    try:
        column = builder.column(values, field.type)
    except UnfitError as unfit:
        raise _refusal(unfit, field) from unfit.__cause__
    if not builder.is_even:
        check_values(values, field, fill=fill)
    return column


def _objects(values: Any) -> list[Any]:
    if hasattr(values, "isna"):  # of pandas, where NaN is null too
        pairs = zip(values, values.isna(), strict=True)
        return [None if is_missing else value for value, is_missing in pairs]
    return values if isinstance(values, list) else list(values)


def _of_arrays(values: Any, field: pa.Field) -> Column:
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        return pa.array(values)
    except CONVERSION_ERRORS as error:
        raise _refusal(UnfitError(values, str(error)), field) from error


class _Builder:
    """Makes the arrays of a column; its methods raise UnfitError, or InvalidCallError for texts.

    `is_even` tells whether all structs had the fields of their types.
    """

    def __init__(self, name: str) -> None:
        self.is_even = True
        self._name = name

    def column(self, values: list[Any], kind: pa.DataType) -> Column:
        if isinstance(kind, pa.BaseExtensionType):
            if kind.extension_name == "arrow.bool8":
                values = [v if v is None else int(v) for v in self._plain_booleans(values)]
            try:
                return pa.ExtensionArray.from_storage(kind, self._array(values, kind.storage_type))
            except UnfitError as unfit:
                if is_json(kind):
                    unfit.reason = unfit.reason.replace("str(value)", "json.dumps(value)")
                raise
        if pa.types.is_dictionary(kind):
            # One wrong value among those of a dictionary ends the process within Arrow.
            encoded = self._array(values, kind.value_type).dictionary_encode()
            return pa.DictionaryArray.from_arrays(
                self._index(encoded.indices, kind), encoded.dictionary, ordered=kind.ordered
            )
        values, types = present(values, kind)
        if not types:
            return pa.nulls(len(values), kind)
        if is_list(kind):
            return self._lists(values, types, kind)
        if pa.types.is_struct(kind):
            return self._structs(values, types, kind)
        if pa.types.is_map(kind):
            return self._maps(values, types, kind)
        try:
            return plain_column(values, types, pa.field(self._name, kind))
        except UnfitError as unfit:
            unfit.kind = kind
            raise

    def _array(self, values: list[Any], kind: pa.DataType) -> pa.Array:
        column = self.column(values, kind)
        if isinstance(column, pa.ChunkedArray):
            raise UnfitError(values, "they are too large for one call: write fewer rows at once")
        return column

    def _index(self, indices: pa.Array, kind: pa.DataType) -> pa.Array:
        try:
            return indices.cast(kind.index_type)
        except pa.ArrowException as error:
            raise UnfitError(
                kind, "there are more different values than its dictionary holds"
            ) from error

    def _plain_booleans(self, values: list[Any]) -> list[Any]:
        booleans: list[Any] = self._array(values, pa.bool_()).to_pylist()
        return booleans

    def _lists(self, values: list[Any], types: set[type], kind: pa.DataType) -> pa.Array:
        if types - {list, tuple}:
            for value in values:
                if value is not None and not _is_list_value(value):
                    raise UnfitError(value, "it is not a list: give [value] for a list of one")
        if pa.types.is_fixed_size_list(kind):
            return self._fixed_lists(values, types, kind)
        present = [value for value in values if value is not None]
        items = self._items(present, types, kind.value_type)
        cls = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
        offsets = _offsets(values, pa.int64() if pa.types.is_large_list(kind) else pa.int32())
        return cls.from_arrays(offsets, items, type=kind, mask=_mask(values))

    def _fixed_lists(self, values: list[Any], types: set[type], kind: pa.DataType) -> pa.Array:
        size = kind.list_size
        for value in values:
            if value is not None and len(value) != size:
                raise UnfitError(value, f"it has {len(value)} values, and the column's have {size}")
        filler: Any = (None,) * size
        if types == {np.ndarray}:
            filler = np.zeros(size, next(v.dtype for v in values if v is not None))
        filled = [filler if value is None else value for value in values]
        items = self._items(filled, types, kind.value_type)
        return pa.FixedSizeListArray.from_arrays(items, type=kind, mask=_mask(values))

    def _items(self, lists: list[Any], types: set[type], kind: pa.DataType) -> pa.Array:
        """The elements of lists, one after the other."""
        if types == {np.ndarray}:
            (form, *others) = {(numbers.dtype, numbers.ndim) for numbers in lists}
            if not others and not form[0].hasobject and form[1] == 1:
                field = pa.field(self._name, kind)
                return exact_cast(_of_arrays(np.concatenate(lists), field), field, rounding=True)
        return self._array(list(chain.from_iterable(lists)), kind)

    def _structs(self, values: list[Any], types: set[type], kind: pa.DataType) -> pa.Array:
        if types != {dict}:
            values = [value if value is None else _as_dict(value) for value in values]
        names = [field.name for field in kind]
        expected = set(names)
        is_even = all(value is None or value.keys() == expected for value in values)
        self.is_even = self.is_even and is_even
        parts = [
            self._array([None if v is None else v.get(field.name) for v in values], field.type)
            for field in kind
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=_mask(values))

    def _maps(self, values: list[Any], types: set[type], kind: pa.DataType) -> pa.Array:
        if types != {dict}:
            values = [value if value is None else _as_items(value) for value in values]
        maps = [value for value in values if value is not None]
        if types == {dict}:
            keys = list(chain.from_iterable(maps))
            items = list(chain.from_iterable(value.values() for value in maps))
        else:
            keys = [key for pairs in maps for key, _ in pairs]
            items = [item for pairs in maps for _, item in pairs]
        key_array = self._array(keys, kind.key_type)
        if key_array.null_count:
            raise UnfitError(None, "a key of a map is not null")
        item_array = self._array(items, kind.item_type)
        offsets = _offsets(values, pa.int32())
        return pa.MapArray.from_arrays(
            offsets, key_array, item_array, type=kind, mask=_mask(values)
        )


def _is_list_value(value: Any) -> bool:
    """Whether a value is a list, whatever its Python type is."""
    if isinstance(value, str | Mapping | np.generic) or is_plain_bytes(value):
        return False
    if isinstance(value, Sequence | Set | array.array | pa.Array | pa.ChunkedArray):
        return True
    # numpy's arrays, and the series of pandas and polars.
    return hasattr(value, "dtype") and hasattr(value, "__iter__") and getattr(value, "ndim", 1) > 0


def _as_dict(value: Any) -> Mapping[Any, Any]:
    """The fields of a struct, given as a mapping or as pairs."""
    if isinstance(value, Mapping):
        return value
    fields = dict(_as_items(value))
    if len(fields) < len(value):
        raise UnfitError(value, "it has a field twice")
    return fields


def _as_items(value: Any) -> list[tuple[Any, Any]]:
    """The keys and values of a mapping, or given as pairs."""
    if isinstance(value, Mapping):
        return list(value.items())
    if not isinstance(value, list | tuple) or not all(
        isinstance(pair, tuple | list) and len(pair) == 2 for pair in value
    ):
        raise UnfitError(value, "give a dict, or a list of pairs")
    return [(key, item) for key, item in value]


def _offsets(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Where the elements of each list begin and end."""
    lengths = np.fromiter((0 if v is None else len(v) for v in values), np.int64, len(values))
    return pa.array(np.concatenate([[0], lengths.cumsum()]), kind)


def _mask(values: list[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def _refusal(unfit: UnfitError, field: pa.Field) -> InvalidCallError:
    text, reason = shown(unfit.value), unfit.reason
    # Arrow's reason adds nothing about a value that does not fit.
    if not reason or reason.startswith(f"Could not convert {text} with"):
        why = ""
    else:
        why = f": {brief_value(reason)}"
    kind = unfit.kind or field.type
    within = "" if kind == field.type else f" in {type_text(field.type)}"
    return InvalidCallError(
        f"column {field.name!r}: {brief_value(text)}{within} is not {type_text(kind)}{why}"
    )
