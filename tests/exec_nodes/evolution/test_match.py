"""Fields of nested arrays found by id, in arrays that start anywhere."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from exec_nodes.base.errors import RepairError
from exec_nodes.evolution.match import FIELD_ID_KEY, match, renamed
from tests.each import each


def _field(name: str, kind: pa.DataType, number: int | None, *, nullable: bool = True) -> pa.Field:
    metadata = None if number is None else {FIELD_ID_KEY: str(number)}
    return pa.field(name, kind, nullable, metadata)


def _pair(*names: tuple[str, int | None]) -> pa.DataType:
    return pa.struct([_field(name, pa.int32(), number) for name, number in names])


STORED = _pair(("x", 1), ("y", 2), ("w", 3))
WANTED = _pair(("z", 1), ("x", 2), ("n", 4))
OLD: Any = [{"x": 1, "y": 2, "w": 3}, None, {"x": None, "y": 4, "w": 5}, {"x": 6, "y": 7, "w": 8}]
NEW: Any = [
    {"z": 1, "x": 2, "n": None},
    None,
    {"z": None, "x": 4, "n": None},
    {"z": 6, "x": 7, "n": None},
]


def _struct(inner: pa.DataType) -> pa.DataType:
    return pa.struct([_field("a", pa.int8(), 8), _field("in", inner, 9)])


def _list(inner: pa.DataType) -> pa.DataType:
    return pa.list_(_field("item", inner, 9))


def _large_list(inner: pa.DataType) -> pa.DataType:
    return pa.large_list(_field("item", inner, 9))


def _fixed(inner: pa.DataType) -> pa.DataType:
    return pa.list_(_field("item", inner, 9), 2)


def _map(inner: pa.DataType) -> pa.DataType:
    key = _field("key", pa.string(), 8, nullable=False)
    return pa.map_(key, _field("value", inner, 9))


SHAPES = {
    "struct": (lambda t: t, lambda v: v),
    "struct in struct": (_struct, lambda v: [{"a": 1, "in": one} for one in v]),
    "list": (_list, lambda v: [v, None, [], v[1:]]),
    "large list": (_large_list, lambda v: [v, None, [], v[1:]]),
    "fixed": (_fixed, lambda v: [v[:2], None, v[2:], v[1:3]]),
    "map": (_map, lambda v: [[("a", v[0])], None, [], [("b", v[1]), ("c", v[2])]]),
    "lists in a struct in lists": (
        lambda t: _list(_struct(_list(t))),
        lambda v: [[{"a": 1, "in": v}, None], None, [{"a": None, "in": None}, {"a": 2, "in": v}]],
    ),
}


@each("start", [0, 1, 2])
@each("shape", SHAPES)
def test_fields_are_found_by_id(shape: str, start: int) -> None:
    kind, values = SHAPES[shape]
    stored, wanted = [_field("c", kind(STORED), 0)], [_field("c", kind(WANTED), 0)]
    array = pa.array(values(OLD), stored[0].type).slice(start)
    matched = match(stored, wanted)
    assert not matched.names_agree and list(matched.places) == [0]
    found = renamed(array, wanted[0].type, matched.inside[0])
    found.validate(full=True)
    assert found.type == wanted[0].type
    assert found.to_pylist() == pa.array(values(NEW), wanted[0].type).slice(start).to_pylist()
    for new, old in zip(found.buffers(), array.buffers(), strict=False):
        assert new is None or old is None or new.size <= old.size


@each("shape", SHAPES)
def test_nothing_is_made_anew_where_names_agree(shape: str) -> None:
    kind, values = SHAPES[shape]
    stored = [_field("c", kind(STORED), 0)]
    array = pa.array(values(OLD), stored[0].type)
    matched = match(stored, stored)
    assert matched.names_agree
    assert renamed(array, stored[0].type, matched.inside[0]) is array


@each(
    "stored, wanted, agree",
    [
        ([("x", 1), ("y", 2)], [("x", 1), ("y", 2)], True),
        ([("x", 1), ("y", 2)], [("y", 2)], True),  # dropped
        ([("x", 1)], [("x", 1), ("y", 2)], True),  # added
        ([("x", 1), ("y", 2)], [("y", 2), ("x", 3)], False),  # dropped and added again
        ([("x", None), ("y", None)], [("x", 1), ("y", 2)], True),
        ([("x", None), ("y", None)], [("y", 2)], True),
        ([("x", None), ("y", None)], [("y", 2), ("n", 3), ("x", 1)], True),
        ([("x", None), ("y", 2)], [("x", 1), ("z", 2)], False),
    ],
)
def test_names_tell_as_much(
    stored: list[tuple[str, int | None]], wanted: list[tuple[str, int | None]], agree: bool
) -> None:
    found = match([_field("c", _pair(*stored), 0)], [_field("c", _pair(*wanted), 0)])
    assert found.names_agree is agree


def test_a_field_that_may_be_another_one_is_an_error() -> None:
    stored = [_field("c", _list(_pair(("x", None), ("y", None))), 0)]
    with pytest.raises(RepairError, match=r"\['x'\] of column 'c' .*\['z'\]"):
        match(stored, [_field("c", _list(_pair(("z", 1), ("y", 2))), 0)])
