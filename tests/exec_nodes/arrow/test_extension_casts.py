"""Columns of the storage of an extension type are taken into columns of the type."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest

from exec_nodes.arrow.casts import exact_cast
from exec_nodes.base.errors import InvalidCallError
from tests.each import each

LARGE_JSON = pa.json_(pa.large_string())
CASES = [
    *((pa.json_(), pa.array(["{}", None], kind)) for kind in (pa.string(), pa.large_string())),
    *((LARGE_JSON, pa.array(["{}", None], kind)) for kind in (pa.string_view(), pa.json_())),
    (pa.json_(), pa.array(["{}", None], LARGE_JSON)),
    (pa.json_(), pa.array(["{}", None]).dictionary_encode()),
    (pa.string(), pa.array(["{}", None], LARGE_JSON)),
    *(
        (pa.uuid(), pa.array([UUID(int=7).bytes, None], kind))
        for kind in (pa.binary(16), pa.binary(), pa.large_binary(), pa.binary_view())
    ),
    *((pa.bool8(), pa.array([1, None], kind)) for kind in (pa.int8(), pa.int64())),
]
READ = {"extension<arrow.uuid>": UUID(int=7), "extension<arrow.bool8>": True}


@each("kind, column", CASES)
def test_the_values_are_those_of_the_column(kind: pa.DataType, column: pa.Array) -> None:
    field = pa.field("v", kind)
    for given in (column, pa.chunked_array([column]), pa.chunked_array([column[:1], column[1:]])):
        cast = exact_cast(given, field)
        assert cast.type == kind
        assert isinstance(cast, pa.ChunkedArray) == isinstance(given, pa.ChunkedArray)
        assert cast.to_pylist() == [READ.get(str(kind), "{}"), None]
    assert exact_cast(pa.chunked_array([], column.type), field).type == kind


@each(
    "kind, column",
    [
        (pa.uuid(), pa.array([b"short"])),
        (pa.bool8(), pa.array([300])),
        (pa.json_(), pa.array([{"a": 1}])),
        (pa.json_(), pa.array([1])),
    ],
)
def test_other_values_are_refused(kind: pa.DataType, column: pa.Array) -> None:
    with pytest.raises(InvalidCallError, match="'v'"):
        exact_cast(column, pa.field("v", kind))
