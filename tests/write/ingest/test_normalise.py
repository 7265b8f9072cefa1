"""What callers hand over: anything Arrow, checked before anything is written."""

from __future__ import annotations

import datetime
import decimal
from collections import Counter
from pathlib import Path
from typing import Any

import lance
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow.dataset import dataset

from memwal_sql.errors import InvalidCallError
from memwal_sql.write.ingest.normalise import Normaliser
from tests.each import each

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int32(), False),
        pa.field("name", pa.string()),
        pa.field("score", pa.float32()),
        pa.field("at", pa.timestamp("ms")),
        pa.field("vector", pa.list_(pa.float32(), 2)),
        pa.field("kind", pa.string(), False),
    ]
)
NOON = datetime.datetime.fromisoformat("2020-01-01T12:00:00")
NORMALISER = Normaliser(SCHEMA, ("id",))
TABLE = pa.table({"id": [1, 2], "name": ["a", None], "kind": ["k", "l"]})
EXPECTED = [
    {"id": 1, "name": "a", "kind": "k"},
    {"id": 2, "name": None, "kind": "l"},
]


def _exports(inner: Any, method: str) -> Any:
    kind = type(
        "Foreign", (), {method: lambda self, requested_schema=None: getattr(inner, method)()}
    )
    return kind()


@each(
    "data",
    [
        TABLE,
        TABLE.to_batches()[0],
        TABLE.to_reader(),
        pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 1)]),
        pd.DataFrame({"id": [1, 2], "name": ["a", None], "kind": ["k", "l"]}, index=[7, 8]),
        pd.DataFrame({"id": [1.0, 2.0], "name": ["a", None], "kind": ["k", "l"]}),
        TABLE.to_pydict(),
        TABLE.to_pylist(),
        [{"id": 1, "name": "a", "kind": "k"}, {"id": 2, "kind": "l"}],
        _exports(TABLE, "__arrow_c_stream__"),
        _exports(TABLE.to_batches()[0], "__arrow_c_array__"),
        TABLE.set_column(1, "name", TABLE["name"].dictionary_encode()),
        TABLE.set_column(1, "name", TABLE["name"].cast(pa.large_string())),
        TABLE.select(["kind", "name", "id"]),
        dataset(TABLE),
        dataset(TABLE).scanner(),
        [TABLE.slice(0, 1), TABLE.slice(1, 1)],
        TABLE.to_batches(max_chunksize=1),
        (batch for batch in TABLE.to_batches(max_chunksize=1)),
        iter(TABLE.to_pylist()),
    ],
)
def test_anything_arrow_becomes_a_batch_of_the_table(data: Any) -> None:
    batch = NORMALISER.upserts(data, "null")
    assert batch.schema.names == [*SCHEMA.names, "_tombstone"]
    assert batch.schema.field("id") == SCHEMA.field("id")
    assert [{k: row[k] for k in ("id", "name", "kind")} for row in batch.to_pylist()] == EXPECTED
    assert batch["_tombstone"].to_pylist() == [False, False]
    assert batch["score"].null_count == 2 and batch["score"].type == pa.float32()


@each("data", [[], {}, TABLE.slice(0, 0), pa.table({"id": [], "kind": []})])
def test_no_rows_are_fine(data: Any) -> None:
    assert NORMALISER.upserts(data, "null").num_rows == 0


@each("missing", ["error", "null"])
@each("data", [[{}], [{}, {}], ({},)])
def test_rows_without_anything_are_refused(data: Any, missing: str) -> None:
    """They counted as no rows."""
    with pytest.raises(InvalidCallError, match=r"row 0 lacks the primary key columns \['id'\]"):
        NORMALISER.upserts(data, missing)


@each(
    "data, said",
    [
        (TABLE, r"rows lack the columns \['score', 'at', 'vector'\] of the table"),
        (TABLE.to_reader(), r"rows lack the columns \['score', 'at', 'vector'\]"),
        (TABLE.to_pydict(), r"rows lack the columns \['score', 'at', 'vector'\]"),
        (TABLE.to_pylist(), r"rows lack the columns \['score', 'at', 'vector'\]"),
        (pd.DataFrame(TABLE.to_pydict()), "rows lack the columns"),
        (TABLE.slice(0, 0), "rows lack the columns"),
        (
            [{"id": 1, "kind": "k", "name": "a"}, {"id": 2, "kind": "l"}],
            r"row 1 lacks .*\['name'\]",
        ),
    ],
)
def test_columns_that_are_left_out_are_refused_naming_them_and_the_ways(
    data: Any, said: str
) -> None:
    with pytest.raises(InvalidCallError, match=said + r".*give every column, or missing=\"null\""):
        NORMALISER.upserts(data)


def test_what_becomes_of_missing_columns_is_one_of_two_words() -> None:
    with pytest.raises(
        InvalidCallError, match=r"missing='keep' must be one of \['error', 'null'\]"
    ):
        NORMALISER.upserts(TABLE, "keep")


def test_batches_of_other_columns_are_refused() -> None:
    parts = [TABLE, TABLE.select(["id", "kind"])]
    with pytest.raises(InvalidCallError, match=r"batch 1 has the columns \['id', 'kind'\]"):
        NORMALISER.upserts(parts, "null")


@each(
    "data, said",
    [
        ({"name": ["a"], "kind": ["k"]}, "primary key column 'id'"),
        ({"id": [1]}, "required column 'kind'"),
        ({"id": [1, None], "kind": ["a", "b"]}, "'id' is primary key, but row 1 has a null"),
        ({"id": [1], "kind": [None]}, "'kind' is not nullable, but row 0"),
        ({"id": [1], "kind": ["a"], "extra": [1]}, r"no columns \['extra'\]"),
        ({"id": ["x"], "kind": ["a"]}, "column 'id': 'x' is not an int32"),
        (pa.table({"id": ["1"], "kind": ["a"]}), "column 'id' needs int32, not string"),
        (pa.table({"id": [2**40], "kind": ["a"]}), "column 'id' can't be cast.*1099511627776"),
        (pa.table({"id": [1.5], "kind": ["a"]}), "column 'id' can't be cast.*1.5"),
        (pa.table({"id": [1], "kind": ["a"], "score": [0.1]}), "0.1 in row 0 would change"),
        (
            pa.table({"id": [1], "kind": ["a"], "at": [NOON.replace(microsecond=5)]}),
            "column 'at' can't be cast",
        ),
        (
            pa.table({"id": [1], "kind": ["a"], "at": pa.array([0], pa.timestamp("ms", "UTC"))}),
            "column 'at' needs timestamp",
        ),
        (pa.table([[1], [2], ["a"]], names=["id", "id", "kind"]), "more than once"),
        ({"id": [1, 2], "kind": ["a"]}, "equally long"),
        ({"id": [1.2], "kind": ["a"]}, "'id': 1.2 is not an int32: round it"),
        ([{"id": 1.2, "kind": "a"}], "'id': 1.2 is not an int32: round it"),
        ({"id": [True], "kind": ["a"]}, "'id'.* True .*bool"),
        ({"id": [1], "kind": ["a"], "at": [NOON.replace(microsecond=5)]}, "'at'.*whole ms"),
        ({"id": 1, "kind": "a"}, "'id'.*put it into a list"),
        ({"id": [1], "kind": "a"}, "'kind'.*put it into a list"),
        (5, "int is not a set of rows"),
        ([1, 2], "list is not a set of rows"),
        ("id", "'id' is not a file of rows"),
    ],
)
def test_what_does_not_fit_is_refused_naming_column_and_value(data: Any, said: str) -> None:
    with pytest.raises(InvalidCallError, match=said):
        NORMALISER.upserts(data, "null")


def test_casts_that_change_no_value_are_made() -> None:
    data = pa.table(
        {
            "id": pa.array([1], pa.uint8()),
            "kind": ["k"],
            "score": pa.array([0.5], pa.float64()),
            "at": pa.array([NOON], pa.timestamp("us")),
            "vector": pa.array([[1.0, 2.0]], pa.list_(pa.float64())),
            "name": pa.nulls(1),
        }
    )
    (row,) = NORMALISER.upserts(data, "null").to_pylist()
    assert row["vector"] == [1.0, 2.0] and row["score"] == 0.5
    nan = pa.table({"id": [1], "kind": ["k"], "score": pa.array([float("nan")], pa.float64())})
    assert NORMALISER.upserts(nan, "null").num_rows == 1


@each(
    "keys",
    [
        [1, 2],
        iter([1, 2]),
        pa.table({"id": [1, 2]}),
        pd.DataFrame({"id": [1, 2]}),
        [{"id": 1}, {"id": 2}],
        ({"id": key, "name": "x"} for key in (1, 2)),
        pa.table({"id": [1, 2]}).to_batches(max_chunksize=1),
        dataset(pa.table({"id": [1, 2], "name": ["a", "b"]})),
    ],
)
def test_tombstones_have_the_key_and_nulls_or_placeholders(keys: Any) -> None:
    batch = NORMALISER.tombstones(keys)
    assert batch["id"].to_pylist() == [1, 2] and batch["_tombstone"].to_pylist() == [True, True]
    assert batch["name"].null_count == 2 and batch["kind"].null_count == 0
    batch.validate(full=True)


NESTED = {
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "uuid": pa.uuid(),
    "json": pa.json_(),
    "list of dictionary": pa.list_(pa.dictionary(pa.int32(), pa.string())),
    "fixed list of uuid": pa.list_(pa.uuid(), 2),
    "large list": pa.large_list(pa.int8()),
    "map": pa.map_(pa.string(), pa.int8()),
    "struct": pa.struct([pa.field("x", pa.dictionary(pa.int8(), pa.string()), False)]),
    "tensor": pa.fixed_shape_tensor(pa.float32(), [2]),
    "bool8": pa.bool8(),
    "decimal256": pa.decimal256(50, 2),
    "bool": pa.bool_(),
    "fixed binary": pa.binary(3),
    "decimal": pa.decimal128(5, 2),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "time": pa.time64("ns"),
    "duration": pa.duration("s"),
    "binary": pa.binary(),
    "large string": pa.large_string(),
    "fixed list": pa.list_(pa.float32(), 2),
    "float16": pa.float16(),
}


@each("name", NESTED)
def test_a_required_column_of_any_type_admits_deletes(name: str, tmp_path: Path) -> None:
    kind = NESTED[name]
    schema = pa.schema([pa.field("id", pa.int64(), False), pa.field("c", kind, False)])
    normaliser = Normaliser(schema, ("id",))
    for keys in ([1, 2, 3], []):
        batch = normaliser.tombstones(keys)
        batch.validate(full=True)
        assert batch["c"].type == kind and batch["c"].null_count == 0
    batch = normaliser.tombstones([1, 2, 3])
    if name in ("fixed list of uuid", "map"):  # Lance 2.0 files do not hold them
        return
    written = lance.write_dataset(pa.Table.from_batches([batch]), str(tmp_path / "t"))
    assert written.to_table(columns=["id"]).num_rows == 3


class _CountedName(str):
    comparisons = 0

    def __eq__(self, other: object) -> bool:
        _CountedName.comparisons += 1
        return str.__eq__(self, other)  # type: ignore[arg-type]

    __hash__ = str.__hash__


class _CountedTable:
    """A table that counts how often each of its attributes is read."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self.reads: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        self.reads[name] += 1
        return getattr(self.table, name)


def test_many_columns_cost_as_much_each_as_few(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"c{i}" for i in range(2_000)]
    schema = pa.schema([pa.field("c0", pa.int64(), False)] + [(n, pa.int64()) for n in names[1:]])
    normaliser = Normaliser(schema, ("c0",))
    _CountedName.comparisons = 0
    assert normaliser.upserts({_CountedName(n): [1, 2] for n in names}).num_rows == 2
    assert _CountedName.comparisons < 10 * len(names)
    counted = _CountedTable(pa.table({n: pa.array([1, 2], pa.int32()) for n in names}))
    monkeypatch.setattr(normaliser, "_table", lambda data, _: data)
    assert normaliser.upserts(counted).num_rows == 2
    assert counted.reads["column_names"] <= 5


def test_a_table_in_the_tables_types_is_not_looked_at() -> None:
    data = pa.table({"id": pa.array([1, 2], pa.int32()), "kind": ["a", "b"]})
    batch = NORMALISER.upserts(data, "null")
    for name in data.column_names:
        assert batch[name].buffers()[1].address == data[name].chunk(0).buffers()[1].address


def test_decimal_and_binary_columns_are_cast_within_their_kind() -> None:
    schema = pa.schema(
        [pa.field("id", pa.decimal128(10, 2), False), pa.field("raw", pa.large_binary())]
    )
    data = pa.table({"id": pa.array([decimal.Decimal("1.5")], pa.decimal128(5, 1)), "raw": [b"x"]})
    (row,) = Normaliser(schema, ("id",)).upserts(data).to_pylist()
    assert row == {"id": decimal.Decimal("1.50"), "raw": b"x", "_tombstone": False}
