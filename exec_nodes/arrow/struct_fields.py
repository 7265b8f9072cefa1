"""Fields inside structs that rows lack, or have in addition to the column type's.

Arrow sets the first to null and drops the others, both without a word.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from exec_nodes.arrow.arrays import is_list
from exec_nodes.arrow.nested import inner_fields
from exec_nodes.base.errors import InvalidCallError

# The option by which a caller lets missing fields become null.
FILL_OPTION = 'missing="null"'


class _Differences(NamedTuple):
    """Paths of fields, such as `place.city`; lists and maps on the way add nothing to them."""

    lacking: list[str]
    unknown: list[str]

    def refuse(self, has: str, lacks: str, *, fill: bool) -> None:
        """Raise InvalidCallError for unknown fields, and, unless they are to `fill`, for those that
        are lacking; `has` and `lacks` say which rows do."""
        if self.unknown:
            raise InvalidCallError(
                f"{has} the fields {self.unknown}, which the table has not: drop them"
            )
        if self.lacking and not fill:
            raise InvalidCallError(
                f"{lacks} the fields {self.lacking} of the table, and structs are replaced whole: "
                f"give every field, null for no value, or {FILL_OPTION} to set these to null"
            )


def has_structs(kind: pa.DataType) -> bool:
    """Whether values of a type are structs or have some inside."""
    kind = _plain(kind)
    return pa.types.is_struct(kind) or any(has_structs(field.type) for field in inner_fields(kind))


def check_type(source: pa.DataType, field: pa.Field, *, fill: bool) -> None:
    """Raise InvalidCallError for a type with other fields inside than the column `field`; `fill`
    lets it lack some."""
    differences = _Differences([], [])
    _compare_types(_plain(source), _plain(field.type), field.name, differences)
    differences.refuse("the rows have", "the rows lack", fill=fill)


def check_values(values: Iterable[Any], field: pa.Field, *, fill: bool) -> None:
    """`check_type` for Python values that Arrow has converted: the error names their row."""
    if not has_structs(field.type):
        return
    for row, value in enumerate(values):
        check_value(value, field, row, fill=fill)


def check_value(value: Any, field: pa.Field, row: int, *, fill: bool) -> None:
    """`check_type` for the Python value of one row."""
    differences = _Differences([], [])
    _compare_value(value, _plain(field.type), field.name, differences)
    differences.refuse(f"row {row} has", f"row {row} lacks", fill=fill)


def _compare_types(
    source: pa.DataType, target: pa.DataType, path: str, differences: _Differences
) -> None:
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        source_types = {field.name: field.type for field in source}
        _compare_names(source_types, target, path, differences)
        pairs = [
            (source_types[f.name], f.type, f"{path}.{f.name}")
            for f in target
            if f.name in source_types
        ]
    elif (is_list(source) and is_list(target)) or (
        pa.types.is_map(source) and pa.types.is_map(target)
    ):
        inner = zip(inner_fields(source), inner_fields(target), strict=True)
        pairs = [(ours.type, theirs.type, path) for ours, theirs in inner]
    else:
        return
    for ours, theirs, where in pairs:
        _compare_types(_plain(ours), _plain(theirs), where, differences)


def _compare_value(value: Any, target: pa.DataType, path: str, differences: _Differences) -> None:
    if not isinstance(value, Iterable):  # a null
        return
    if pa.types.is_struct(target):
        if not isinstance(value, Mapping):
            value = list(value)
            if not all(isinstance(item, tuple) for item in value):
                return  # it is not a struct, which its conversion reports
        source_values = dict(value)
        _compare_names(source_values, target, path, differences)
        for field in target:
            _compare_value(
                source_values.get(field.name),
                _plain(field.type),
                f"{path}.{field.name}",
                differences,
            )
    elif has_structs(target):
        keyed = pa.types.is_map(target)
        items = value.items() if keyed and isinstance(value, Mapping) else value
        kinds = [_plain(field.type) for field in inner_fields(target)]
        for item in items:
            for part, kind in zip(item if keyed else (item,), kinds, strict=True):
                _compare_value(part, kind, path, differences)


def _compare_names(
    source_fields: Mapping[str, Any], target: pa.DataType, path: str, differences: _Differences
) -> None:
    target_names = [field.name for field in target]
    if source_fields.keys() == set(target_names):
        return
    for names, others, into in (
        (target_names, source_fields, differences.lacking),
        (source_fields, target_names, differences.unknown),
    ):
        paths = (f"{path}.{name}" for name in names if name not in others)
        into.extend(name for name in paths if name not in into)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of the values, which tells the fields inside."""
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    return _plain(kind.value_type) if pa.types.is_dictionary(kind) else kind
