"""Fields inside structs: rows are replaced as a whole, so none is lost or added without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from memwal_sql.bulk.rows import RowForm
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.ingest.normalise import Normaliser
from planner.model import TableInfo

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


@pytest.mark.parametrize(("kind", "form"), CASES)
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


@pytest.mark.parametrize("missing", ["error", "null"])
@pytest.mark.parametrize(("kind", "form"), CASES)
def test_fields_that_the_table_has_not_are_refused(kind: str, form: str, missing: str) -> None:
    target, inside = KINDS[kind]
    normaliser = Normaliser(schema_of(target), ("id",))
    path = NAMES.get(kind, "st")
    with pytest.raises(InvalidCallError, match=rf"the fields \['{path}\.c'\], which the table"):
        normaliser.upserts(FORMS[form](inside({**FULL, "c": 1}), target), missing)


@pytest.mark.parametrize(("kind", "form"), CASES)
def test_whole_structs_and_nulls_are_taken(kind: str, form: str) -> None:
    target, inside = KINDS[kind]
    normaliser = Normaliser(schema_of(target), ("id",))
    for place in (FULL, {"b": "x", "a": 7}):
        batch = normaliser.upserts(FORMS[form](inside(place), target))
        assert batch["st"].to_pylist() == [inside(FULL)]
    for data in ([{"id": 1, "st": None}], pd.DataFrame({"id": [1], "st": [None]})):
        assert normaliser.upserts(data)["st"].to_pylist() == [None]


@pytest.mark.parametrize("form", [list, pd.DataFrame])
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
