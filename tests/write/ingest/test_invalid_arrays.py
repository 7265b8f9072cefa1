"""Arrow data that nobody has checked: nothing of it becomes a durable row."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from tests.model.small_rows import make_rows, refused, texts_of

LATIN = pa.array([b"good", b"caf\xe9"]).view(pa.string())
SAID = ("'text'", "UTF-8", "row 1", r"b'caf\xe9'")


def in_latin(*ids: int) -> pa.Table:
    return make_rows(*ids).set_column(2, "text", LATIN)


@pytest.mark.parametrize("durable", [True, False])
def test_text_that_is_not_utf8_is_refused(table: Any, uri: str, durable: bool) -> None:
    rows = in_latin(1, 2)
    batch = rows.to_batches()[0].cast(table.schema)
    with table.writer(durable=durable) as writer:
        writer.upsert(make_rows(1, text="before"))
        writer.sync()  # or its entry comes while a refusal looks at the log
        for data in (
            rows,
            batch,
            rows.select(["must", "id", "small", "text"]),
            rows.set_column(
                2,
                "text",
                pa.array(LATIN.cast(pa.binary()), pa.large_binary()).view(pa.large_string()),
            ),
            rows.set_column(2, "text", LATIN.dictionary_encode()),
            {"id": [1, 2], "small": [1, 1], "text": LATIN, "must": [0.5, 0.5]},
            rows.to_pandas(types_mapper=pd.ArrowDtype),
        ):
            with refused(uri, *SAID):
                writer.upsert(data)
        writer.flush()
    assert texts_of(table) == {0: "x", 1: "before", 2: "x"}
    assert table.check().ok


def test_keys_that_are_not_utf8_are_refused(uri: str) -> None:
    table = mw.create_table(uri, pa.schema({"key": pa.string(), "n": pa.int64()}), "key")
    said = ("'key'", *SAID[1:])
    with table.writer() as writer:
        writer.upsert({"key": ["good"], "n": [1]})
        with refused(uri, *said):
            writer.upsert(pa.table({"key": LATIN, "n": [1, 2]}))
        for keys in (LATIN, pa.chunked_array([LATIN]), pa.table({"key": LATIN}), {"key": LATIN}):
            with refused(uri, *said):
                writer.delete(keys)
            with refused(uri, *said):
                table.get(keys)
        writer.flush()
    assert table.get(["good"])["n"].to_pylist() == [1]


@pytest.mark.parametrize(
    "form",
    [RowForm(), RowForm(order_by="text"), RowForm(delete_column="gone")],
    ids=["upserts", "ordered", "mixed"],
)
@pytest.mark.parametrize("replaces", [False, True])
def test_staged_rows_are_checked_too(table: Any, form: RowForm, replaces: bool) -> None:
    rows = in_latin(1, 2).append_column("gone", pa.array([False, False]))
    if form.delete_column is None:
        rows = rows.drop_columns(["gone"])
    stager = table.stager("job", form, replaces=replaces)
    with pytest.raises(mw.InvalidCallError, match=r"'text' has text that is not UTF-8 in row 1"):
        stager.stage(rows.to_batches())


def test_an_order_that_is_not_utf8_is_refused(table: Any) -> None:
    rows = make_rows(1, 2).append_column("when", LATIN)
    stager = table.stager("job", RowForm(order_by="when"))
    with pytest.raises(mw.InvalidCallError, match=r"'when' has text that is not UTF-8 in row 1"):
        stager.stage(rows.to_batches())


REQUIRED = pa.field("x", pa.string(), False)
WITHIN: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "struct": (pa.struct([REQUIRED]), [None, {"x": "a"}], [{"x": "a"}, {"x": None}]),
    "list": (pa.list_(REQUIRED), [None, [], ["a", "b"]], [["a"], ["b", None]]),
    "map": (
        pa.map_(pa.string(), pa.field("value", pa.int64(), False)),
        [None, [], [("a", 1)]],
        [[("a", 1)], [("b", None)]],
    ),
    "struct in list": (pa.list_(pa.struct([REQUIRED])), [None, [None]], [[], [{"x": None}]]),
}


@pytest.mark.parametrize("case", WITHIN)
def test_a_null_in_a_required_field_inside_a_column_is_refused(uri: str, case: str) -> None:
    """Lance does not write it: the MemTable could never be flushed."""
    kind, good, bad = WITHIN[case]
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "v": kind}), "id")
    with table.writer() as writer:
        writer.upsert({"id": range(len(good)), "v": good})
        with refused(uri, "'v'", "not nullable", "row 1"):
            writer.upsert({"id": [7, 8], "v": bad})
        writer.flush()
    assert table.get(range(len(good)))["v"].to_pylist() == good


NO_JSON = {
    "cut off": ('{"a": [1', "row 1"),
    "a word": ("nope", "row 1"),
    "nothing": ("", "row 1"),
    "not a number": ('{"a": NaN}', "NaN"),
    "a name twice": ('{"a": {"b": 1, "b": 2}}', "repeats a name"),
    "too deep": ("[" * 5000 + "]" * 5000, "deep"),
}


@pytest.mark.parametrize("case", NO_JSON)
def test_text_that_is_no_json_is_refused(uri: str, case: str) -> None:
    """Lance parses it when a MemTable is flushed, and has no stack for some of it."""
    text, said = NO_JSON[case]
    table = mw.create_table(uri, pa.schema({"id": pa.int64(), "v": pa.json_()}), "id")
    good = ['{"a":[1,"]["]}', None, "[" * 90 + "]" * 90]
    with table.writer() as writer:
        writer.upsert({"id": [1, 2, 3], "v": good})
        with refused(uri, "'v'", "JSON", said):
            writer.upsert({"id": [7, 8], "v": ["1", text]})
        writer.flush()
    assert table.get([1, 2, 3])["v"].to_pylist() == good
