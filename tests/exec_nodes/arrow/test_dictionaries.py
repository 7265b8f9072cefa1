"""Dictionary-encoded columns are taken wherever their values are."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from exec_nodes.arrow.casts import exact_cast
from exec_nodes.base.errors import InvalidCallError
from exec_nodes.keys.keys import as_key_table
from memwal_sql.write.ingest.normalise import Normaliser
from tests.each import each

VALUES: dict[str, tuple[pa.Array, pa.DataType]] = {
    "string": (pa.array(["a", "b", None]), pa.string()),
    "large": (pa.array(["a", "b", None], pa.large_string()), pa.string()),
    "view": (pa.array(["a", "b", None], pa.string_view()), pa.string()),
    "into large": (pa.array(["a", "b", None], pa.string_view()), pa.large_string()),
    "binary view": (pa.array([b"a", b"b", None], pa.binary_view()), pa.binary()),
    "int": (pa.array([1, 2, None], pa.int32()), pa.int64()),
    "same int": (pa.array([1, 2, None], pa.int64()), pa.int64()),
    "date": (pa.array([datetime.date(2026, 1, day) for day in (1, 2, 3)]), pa.date32()),
    "time": (pa.array([0, 1, None], pa.timestamp("s")), pa.timestamp("us")),
    "decimal": (pa.array([Decimal(1), Decimal("1.5"), None]), pa.decimal128(10, 2)),
    "bool": (pa.array([True, False, None]), pa.bool_()),
}
INDICES = pa.array([9, 1, None, 0, 0, 2], pa.uint32())


def encoded(values: pa.Array) -> tuple[pa.Array, list[Any]]:
    """A dictionary-encoded slice, and its values."""
    array = pa.DictionaryArray.from_arrays(INDICES.slice(1), values)
    expected = [None if n is None else values[n].as_py() for n in array.indices.to_pylist()]
    return array, expected


@each("name", VALUES)
def test_dictionaries_of_any_values_are_decoded(name: str) -> None:
    values, target = VALUES[name]
    array, expected = encoded(values)
    struct = pa.StructArray.from_arrays([array], names=["x"])
    items = pa.ListArray.from_arrays([0, 2, 2, 5], array)
    cases = [
        (array, target, expected),
        (array.slice(2), target, expected[2:]),
        (pa.chunked_array([array.slice(2), array]), target, expected[2:] + expected),
        (pa.chunked_array([], array.type), target, []),
        (struct, pa.struct({"x": target}), [{"x": one} for one in expected]),
        (items, pa.list_(target), [expected[:2], [], expected[2:]]),
        (items.slice(1), pa.list_(target), [[], expected[2:]]),
    ]
    for column, kind, rows in cases:
        found = exact_cast(column, pa.field("c", kind))
        assert found.type == kind
        assert found.to_pylist() == rows


@each("name", [name for name in VALUES if name != "decimal"])
def test_keys_may_be_dictionary_encoded(name: str) -> None:
    values, target = VALUES[name]
    keys = values.slice(0, 2)
    array = pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), keys)
    schema = pa.schema([pa.field("id", target, False)])
    found = as_key_table(pa.table({"id": array}), schema, ["id"])
    assert found["id"].to_pylist() == keys.to_pylist()[::-1]
    assert Normaliser(schema, ("id",)).upserts(pa.table({"id": array})).num_rows == 2


@each("kind", [pl.Categorical, pl.Enum(["x", "y"])])
@each("target", [pa.string(), pa.large_string(), pa.dictionary(pa.int8(), pa.string())])
def test_categories_of_polars_are_taken(kind: Any, target: pa.DataType) -> None:
    frame = pl.DataFrame({"id": [1, 2, 3], "c": pl.Series(["x", None, "y"], dtype=kind)})
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("c", target)])
    for data in (frame, {"id": [1, 2, 3], "c": frame["c"]}):
        batch = Normaliser(schema, ("id",)).upserts(data)
        assert batch["c"].type == target and batch["c"].to_pylist() == ["x", None, "y"]


def test_values_that_would_change_are_refused() -> None:
    array = pa.array([1.5, 1.0]).dictionary_encode()
    with pytest.raises(InvalidCallError, match=r"can't be cast.*1\.5"):
        exact_cast(array, pa.field("c", pa.int64()))
