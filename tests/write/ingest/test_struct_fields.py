"""Fields inside structs: rows are replaced as a whole, so none is lost or added without a word."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.ingest.normalise import Normaliser, with_null_children
from planner.model import TableInfo
from tests.each import each
from tests.model.writing import session_of, upsert_rows

PLACE = pa.struct([pa.field("a", pa.int64()), pa.field("b", pa.string())])
KINDS: dict[str, tuple[pa.DataType, Callable[[Any], Any]]] = {
    "struct": (PLACE, lambda place: place),
    "struct in struct": (pa.struct({"in": PLACE}), lambda place: {"in": place}),
    "list": (pa.list_(PLACE), lambda place: [place, None, place]),
    "large list": (pa.large_list(PLACE), lambda place: [place]),
    "map": (pa.map_(pa.string(), PLACE), lambda place: [("k", place)]),
}
NAMES = {"struct in struct": "st.in"}
FULL = {"a": 7, "b": "x"}


def schema_of(kind: pa.DataType) -> pa.Schema:
    return pa.schema([pa.field("id", pa.int64(), False), pa.field("st", kind)])


def with_fields(kind: pa.DataType, fields: pa.DataType) -> pa.DataType:
    """A type of `KINDS` with other fields in the place."""
    if kind == PLACE:
        return fields
    if pa.types.is_struct(kind):
        return pa.struct({"in": fields})
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), fields)
    return pa.list_(fields)


def arrow(value: Any, kind: pa.DataType) -> pa.Table:
    fields = {"a": pa.int64(), "b": pa.string(), "c": pa.int64()}
    place = next(one for one in places(value))
    inner = pa.struct({name: fields[name] for name in place})
    column = pa.array([value], with_fields(kind, inner))
    return pa.table({"id": [1], "st": column})


def places(value: Any) -> Any:
    """The dicts of a value that are a place."""
    if isinstance(value, dict):
        yield from [value] if "in" not in value else [value["in"]]
    elif isinstance(value, list):
        for item in value:
            yield from places(item[1] if isinstance(item, tuple) else item)


FORMS: dict[str, Callable[[Any, pa.DataType], Any]] = {
    "rows": lambda value, _: [{"id": 1, "st": value}],
    "columns": lambda value, _: {"id": [1], "st": [value]},
    "series": lambda value, _: {"id": [1], "st": pd.Series([value])},
    "arrow": arrow,
    "array": lambda value, kind: {"id": [1], "st": arrow(value, kind)["st"]},
    "arrow series": lambda value, kind: {
        "id": [1],
        "st": pd.Series(
            arrow(value, kind)["st"], dtype=pd.ArrowDtype(arrow(value, kind)["st"].type)
        ),
    },
    "pandas": lambda value, _: pd.DataFrame({"id": [1], "st": [value]}),
    "polars": lambda value, kind: pl.DataFrame(arrow(value, kind)),
}
# Neither has maps: a list of pairs is a list of lists or structs there.
NO_MAPS = {"pandas", "polars"}
CASES = [(kind, form) for kind in KINDS for form in FORMS if kind != "map" or form not in NO_MAPS]


@each("kind, form", CASES)
def test_fields_that_are_left_out_are_refused_or_null_if_that_is_said(kind: str, form: str) -> None:
    target, inside = KINDS[kind]
    normaliser = Normaliser(schema_of(target), ("id",))
    path = NAMES.get(kind, "st")
    said = rf"lacks? the fields \['{path}\.b'\] of the table.*missing=\"null\""
    with pytest.raises(InvalidCallError, match=said):
        normaliser.upserts(FORMS[form](inside({"a": 7}), target))
    batch = normaliser.upserts(FORMS[form](inside({"a": 7}), target), "null")
    expected = inside({"a": 7, "b": None})
    assert batch["st"].to_pylist() == [expected]


@each("missing", ["error", "null"])
@each("kind, form", CASES)
def test_fields_that_the_table_has_not_are_refused(kind: str, form: str, missing: str) -> None:
    target, inside = KINDS[kind]
    normaliser = Normaliser(schema_of(target), ("id",))
    path = NAMES.get(kind, "st")
    with pytest.raises(InvalidCallError, match=rf"the fields \['{path}\.c'\], which the table"):
        normaliser.upserts(FORMS[form](inside({**FULL, "c": 1}), target), missing)


@each("kind, form", CASES)
def test_whole_structs_and_nulls_are_taken(kind: str, form: str) -> None:
    target, inside = KINDS[kind]
    normaliser = Normaliser(schema_of(target), ("id",))
    for place in (FULL, {"b": "x", "a": 7}):
        batch = normaliser.upserts(FORMS[form](inside(place), target))
        assert batch["st"].to_pylist() == [inside(FULL)]
    for data in ([{"id": 1, "st": None}], pd.DataFrame({"id": [1], "st": [None]})):
        assert normaliser.upserts(data)["st"].to_pylist() == [None]


@each("form", [list, pd.DataFrame])
def test_the_row_that_lacks_a_field_is_named(form: Callable[[Any], Any]) -> None:
    """Arrow and pandas give structs the fields of all rows."""
    normaliser = Normaliser(schema_of(PLACE), ("id",))
    rows = [{"id": 1, "st": FULL}, {"id": 2, "st": None}, {"id": 3, "st": {"b": "y"}}]
    with pytest.raises(InvalidCallError, match=r"row 2 lacks the fields \['st\.a'\]"):
        normaliser.upserts(form(rows))
    assert normaliser.upserts(form(rows), "null")["st"][2].as_py() == {"a": None, "b": "y"}
    with pytest.raises(InvalidCallError, match=r"row 2 has the fields \['st\.c'\]"):
        normaliser.upserts(form([*rows[:2], {"id": 3, "st": {**FULL, "c": 1}}]), "null")


def test_a_distributed_write_is_told_before_it_starts() -> None:
    info = TableInfo(schema_of(PLACE), ("id",))
    given = schema_of(pa.struct({"a": pa.int64()}))
    with pytest.raises(InvalidCallError, match=r"lack the fields \['st\.b'\]"):
        RowForm().check(given, info)
    RowForm(missing="null").check(given, info)
    given = schema_of(pa.struct([*PLACE, pa.field("c", pa.int64())]))
    with pytest.raises(InvalidCallError, match=r"have the fields \['st\.c'\]"):
        RowForm(missing="null").check(given, info)


# What a child of a NULL struct holds is nobody's to see, before a flush as after it.


INNER = pa.struct([pa.field("x", pa.int64()), pa.field("y", pa.string(), False)])
OUTER = pa.struct([pa.field("inner", INNER), pa.field("z", pa.int64())])


def structs() -> pa.Array:
    inner = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3, 4]), pa.array(["a", "b", "c", "d"])],
        fields=list(INNER),
        mask=pa.array([False, True, False, False]),
    )
    return pa.StructArray.from_arrays(
        [inner, pa.array([7, 8, 9, 10])],
        fields=list(OUTER),
        mask=pa.array([False, False, True, False]),
    )


@each("start", [0, 1, 2])
def test_children_are_null_where_their_struct_is(start: int) -> None:
    given = structs().slice(start)
    found = with_null_children(given)
    assert found.type == given.type
    assert found.equals(given)
    found.validate(full=True)
    assert found.field("z").to_pylist() == [7, 8, None, 10][start:]
    inner = found.field("inner")
    assert inner.is_null().to_pylist() == [False, True, True, False][start:]
    assert inner.field("x").to_pylist() == [1, None, None, 4][start:]
    assert inner.field("y").to_pylist() == ["a", "b", "c", "d"][start:]


def test_a_child_reads_the_same_before_and_after_a_flush(tmp_path: Path) -> None:
    schema = pa.schema({"id": pa.int64(), "s": OUTER})
    table = mw.create_table(tmp_path / "t", schema, "id")
    context = session_of("t", table)
    query = "SELECT id, s['z'] AS z, s['inner']['x'] AS x FROM t ORDER BY id"
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1, 2, 3, 4], "s": structs()}))
        before = context.sql(query).to_arrow_table().to_pylist()
        writer.flush()
    assert before == context.sql(query).to_arrow_table().to_pylist()
    assert [(row["z"], row["x"]) for row in before] == [(7, 1), (8, None), (None, None), (10, 4)]


@pytest.mark.parametrize("rename", [False, True])
def test_a_null_below_a_null_struct_is_read_from_the_log(tmp_path: Path, rename: bool) -> None:
    """Also where the child admits none: so Spark hands such rows over."""
    inner = pa.struct([pa.field("x", pa.int32(), False), pa.field("y", pa.string(), False)])
    children = [pa.array([1, None], pa.int32()), pa.array(["a", None])]
    valid = pa.py_buffer(b"\x01")
    given = pa.Array.from_buffers(inner, 2, [valid], children=children)
    schema = pa.schema({"id": pa.int64(), "s": inner, "l": pa.list_(inner)})
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 2], pa.int32()), given)
    table = mw.create_table(tmp_path / "t", schema, "id")
    upsert_rows(table, pa.Table.from_arrays([pa.array([1, 2]), given, lists], schema=schema))
    if rename:
        lance.dataset(table.uri).alter_columns({"path": "s.x", "name": "z"})
    found = mw.open_table(table.uri).scan().read_all().sort_by("id")
    name = "z" if rename else "x"
    assert found["s"].to_pylist() == [{name: 1, "y": "a"}, None]
    assert found["l"].to_pylist() == [[{"x": 1, "y": "a"}, None], []]
    for batch in found.to_batches():  # no field ids are left inside
        for column, field in zip(batch.columns, batch.schema, strict=True):
            assert column.type.equals(field.type, check_metadata=True)


# Structs within structs go to Lance and DataFusion from the middle of a batch, too.


KIND = pa.struct([("b", pa.struct([("c", pa.string()), ("d", pa.struct([("e", pa.int32())]))]))])
SCHEMA = pa.schema({"id": pa.int64(), "s": KIND, "l": pa.list_(KIND)})


def _rows(count: int) -> pa.Table:
    values = [{"b": {"c": f"c{i}", "d": {"e": i}}} if i % 5 else None for i in range(count)]
    lists = [[value, value] for value in values]
    return pa.table({"id": range(count), "s": values, "l": lists}, SCHEMA)


@pytest.mark.parametrize("regions", [None, [mw.bucket("id", 3)]])
def test_slices_are_read_before_and_after_a_flush(tmp_path: Path, regions: object) -> None:
    table = mw.create_table(tmp_path / "t", SCHEMA, "id", regions)  # type: ignore[arg-type]
    context = session_of("t", table)
    expected = _rows(40).slice(7).to_pylist()

    def check() -> None:
        assert table.scan().read_all().sort_by("id").to_pylist() == expected
        found = context.sql("SELECT * FROM t ORDER BY id").to_arrow_table()
        assert found.to_pylist() == expected
        one = context.sql("SELECT s['b']['d']['e'] AS e FROM t WHERE id = 23").to_arrow_table()
        assert one.to_pylist() == [{"e": 23}]
        assert table.get(23).to_pylist() == [expected[23 - 7]]

    with table.writer() as writer:
        writer.upsert(_rows(40).slice(7))
        check()
        writer.flush()
        check()
    table.merge()
    check()
