"""Matches fields of stored rows with the current fields: by field id, inside nested types too.

Ids are in the metadata of Arrow fields. A field without an id is matched by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from exec_nodes.arrow.nested import (
    inner_arrays,
    inner_fields,
    with_inner_arrays,
    with_inner_fields,
)
from exec_nodes.base.errors import RepairError

FIELD_ID_KEY = b"lance:field_id"


@dataclass(frozen=True, slots=True)
class Matched:
    """The positions of the parts of a requested type, or of a schema, in the stored one.

    Attributes:
        places: the position of each requested part; None if it is not stored.
        inside: the match inside each part; None for a part without fields.
        names_agree: whether matching by names gives the same, inside the parts too.
    """

    places: Sequence[int | None]
    inside: Sequence[Matched | None]
    names_agree: bool


def match(stored: Sequence[pa.Field], target: Sequence[pa.Field], path: str = "") -> Matched:
    """The columns of a schema, or the fields of the struct at `path`.

    Raises RepairError where a field without an id is gone and another one is new: they may be the
    same one, renamed.
    """
    places = _places(stored, target, path)
    names = {field.name for field in stored}
    inside: list[Matched | None] = []
    agree = True
    for field, place in zip(target, places, strict=True):
        within = None
        if place is None:
            agree &= field.name not in names
        else:
            within = _match_inside(
                stored[place].type, field.type, f"{path}.{field.name}".strip(".")
            )
            agree &= stored[place].name == field.name and (within is None or within.names_agree)
        inside.append(within)
    return Matched(places, inside, agree)


def renamed(array: pa.Array, target: pa.DataType, matched: Matched | None) -> pa.Array:
    """`array` with the fields of `target`; its values, which are shared, may still need a cast."""
    if matched is None or (matched.names_agree and array.type == target):
        return array
    arrays = inner_arrays(array)
    inner, fields = [], []
    for field, place, inside in zip(
        inner_fields(target), matched.places, matched.inside, strict=True
    ):
        if place is None:
            inner.append(pa.nulls(len(array), _plain(field.type)))
        else:
            inner.append(renamed(arrays[place], field.type, inside))
        fields.append(pa.field(field.name, inner[-1].type, field.nullable))
    return with_inner_arrays(array, fields, inner)


def _match_inside(stored: pa.DataType, target: pa.DataType, path: str) -> Matched | None:
    own, fields = inner_fields(stored), inner_fields(target)
    if not own or stored.id != target.id:
        return None  # a nested type does not become another one
    if pa.types.is_struct(target):
        return match(own, fields, path)
    # Children of a list or map are matched by place.
    pairs = zip(own, fields, strict=True)
    inside = [_match_inside(a.type, b.type, path) for a, b in pairs]
    return Matched(
        range(len(own)), inside, all(matched is None or matched.names_agree for matched in inside)
    )


def _places(stored: Sequence[pa.Field], target: Sequence[pa.Field], path: str) -> list[int | None]:
    ids = {_id(field): place for place, field in enumerate(stored)}
    by_name = {field.name: place for place, field in enumerate(stored) if _id(field) is None}
    ids.pop(None, None)
    places = [ids.get(_id(field), by_name.get(field.name)) for field in target]
    gone = sorted(by_name.keys() - {field.name for field in target})
    new = [f.name for f, at in zip(target, places, strict=True) if at is None]
    if gone and new:
        raise RepairError(
            f"the fields {gone} of column {path!r} were stored without their ids, and now it has "
            f"{new}: if they were renamed, give them the names that they had, flush with "
            "table.writer(), and rename them again; if they were dropped and others added, drop "
            "those, flush, and add them again"
        )
    return places


def _id(field: pa.Field) -> bytes | None:
    return (field.metadata or {}).get(FIELD_ID_KEY)


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type without the metadata inside."""
    fields = [pa.field(f.name, _plain(f.type), f.nullable) for f in inner_fields(kind)]
    return with_inner_fields(kind, fields) if fields else kind
