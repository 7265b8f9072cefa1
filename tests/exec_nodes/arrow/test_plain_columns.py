"""Runs, views of lists and extension types become columns of a table, value by value."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from exec_nodes.arrow.casts import exact_cast
from exec_nodes.base.errors import InvalidCallError
from tests.each import each


def cast(column: Any, kind: pa.DataType) -> list[Any]:
    return exact_cast(column, pa.field("v", kind)).to_pylist()


@each("kind", [pa.list_view(pa.int32()), pa.large_list_view(pa.int32())])
def test_views_of_lists_become_lists(kind: pa.DataType) -> None:
    """Arrow's own cast is wrong behind a list that is null or empty."""
    rng = random.Random(seed := random.randrange(2**32))
    for rows in range(6):
        values = [
            rng.choice([None, [], [rng.randrange(9)] * rng.randrange(3)]) for _ in range(rows)
        ]
        column = pa.array(values, kind)
        for start in range(rows + 1):
            assert cast(column.slice(start), pa.list_(pa.int32())) == values[start:], seed
            assert cast(column.slice(0, start), pa.list_(pa.int64())) == values[:start], seed
        assert cast(pa.chunked_array([column, column]), pa.list_(pa.int32())) == values * 2, seed
    places, lengths = pa.array([2, 0, 0], pa.int32()), pa.array([1, 2, 3], pa.int32())
    overlapping = pa.ListViewArray.from_arrays(places, lengths, pa.array([1, 2, 3]))
    assert cast(overlapping, pa.list_(pa.int64())) == [[3], [1, 2], [1, 2, 3]]
    assert cast(pa.chunked_array([], kind), pa.list_(pa.int32())) == []


def test_runs_become_values() -> None:
    column = pa.RunEndEncodedArray.from_arrays(pa.array([2, 5], pa.int32()), pa.array(["x", None]))
    values = ["x", "x", None, None, None]
    for start in range(6):
        assert cast(column.slice(start), pa.string()) == values[start:]
    assert cast(pa.chunked_array([column, column]), pa.large_string()) == values * 2
    with pytest.raises(InvalidCallError, match="needs int64, not string"):
        cast(column, pa.int64())


TENSOR = pa.fixed_shape_tensor(pa.float32(), [2])
EXTENSIONS = {
    "uuid": (pa.array([b"x" * 16, None], pa.uuid()), pa.binary(16)),
    "json": (pa.array(["[1]", None], pa.json_()), pa.string()),
    "bool8": (
        pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1, None], pa.int8())),
        pa.int8(),
    ),
    "tensor": (
        pa.ExtensionArray.from_storage(TENSOR, pa.array([[1, 2], None], pa.list_(pa.float32(), 2))),
        pa.list_(pa.float32(), 2),
    ),
}


@each("name", EXTENSIONS)
def test_extension_types_become_their_storage_and_nothing_else(name: str) -> None:
    column, storage = EXTENSIONS[name]
    for given in (column, column.slice(1), pa.chunked_array([column, column]), column.slice(2)):
        stored = [value for part in getattr(given, "chunks", [given]) for value in part.storage]
        assert cast(given, storage) == [value.as_py() for value in stored]
        assert cast(given, column.type) == given.to_pylist()
    for other in {kind for _, kind in EXTENSIONS.values()} - {storage}:
        with pytest.raises(InvalidCallError, match="cast it yourself"):
            cast(column, other)
