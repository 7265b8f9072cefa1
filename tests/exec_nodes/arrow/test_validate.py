"""Arrays that Arrow hands over unchecked: refused by row, or freed of what NULLs hide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from exec_nodes.arrow.validate import validated
from exec_nodes.base.errors import InvalidCallError
from tests.each import each

LATIN = [b"ok", b"caf\xe9", b"z"]
TEXT = pa.array(LATIN).view(pa.string())
NUMBERS = pa.array([1, 2, 3], pa.int32())
EACH = pa.array([0, 1, 2, 3], pa.int32())


def ints(values: list[int], dtype: str) -> pa.Buffer:
    return pa.py_buffer(np.array(values, dtype).tobytes())


def of(kind: pa.DataType, *buffers: pa.Buffer, valid: bytes | None = None) -> pa.Array:
    """Three values from their buffers; `valid` is the bitmap."""
    bitmap = None if valid is None else pa.py_buffer(valid)
    return pa.Array.from_buffers(kind, 3, [bitmap, *buffers])


NO_TEXT: dict[str, pa.Array] = {
    "string": TEXT,
    "large_string": pa.array(LATIN, pa.large_binary()).view(pa.large_string()),
    "string_view": pa.array(LATIN, pa.binary_view()).view(pa.string_view()),
    "list": pa.ListArray.from_arrays(EACH, TEXT),
    "fixed list": pa.FixedSizeListArray.from_arrays(TEXT, 1),
    "struct": pa.StructArray.from_arrays([NUMBERS, TEXT], ["n", "t"]),
    "map key": pa.MapArray.from_arrays(EACH, TEXT, NUMBERS),
    "list of views": pa.ListArray.from_arrays(
        EACH, pa.array(LATIN, pa.binary_view()).view(pa.string_view())
    ),
    "map value": pa.MapArray.from_arrays(EACH, NUMBERS, TEXT),
    "struct in list": pa.ListArray.from_arrays(EACH, pa.StructArray.from_arrays([TEXT], ["t"])),
    "json": pa.ExtensionArray.from_storage(pa.json_(), TEXT),
}


@each("case", NO_TEXT)
def test_text_that_is_not_utf8_is_refused_by_row(case: str) -> None:
    array = NO_TEXT[case]
    with pytest.raises(InvalidCallError, match=r"'c'.* not UTF-8 in row 1"):
        validated(array, "c")
    later = pa.chunked_array([array.slice(2), array.slice(2), array])
    with pytest.raises(InvalidCallError, match="row 3"):
        validated(later, "c")
    assert validated(array.slice(2), "c").to_pylist() == array.slice(2).to_pylist()


def test_the_bytes_that_are_no_text_are_shown() -> None:
    for array in (TEXT, pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), TEXT)):
        with pytest.raises(InvalidCallError, match=r"in row 1, b'caf\\xe9'"):
            validated(array, "c")


def test_a_character_does_not_go_over_two_values() -> None:
    with pytest.raises(InvalidCallError, match="row 1"):
        validated(pa.array([b"ok", b"\xc3", b"\xa9"]).view(pa.string()), "c")


def test_a_dictionary_is_checked_beyond_what_rows_have_of_it() -> None:
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 2]), TEXT)
    for array in (unused, pa.StructArray.from_arrays([unused], ["d"])):
        with pytest.raises(InvalidCallError, match="in its dictionary"):
            validated(array, "c")


LISTS = pa.list_(pa.int32())
# "ok", 20 bytes from the 900,000th on of the first buffer or from one that is not there, and "z".
BEYOND = ints([2, 0x6B6F, 0, 0, 20, 0, 0, 900_000, 1, 0x7A, 0, 0], "i4")
NOWHERE = ints([2, 0x6B6F, 0, 0, 20, 0, 7, 0, 1, 0x7A, 0, 0], "i4")
INVALID: dict[str, pa.Array] = {
    "an offset out of the bytes": of(
        pa.binary(), ints([0, 2, 900_000, 3], "i4"), pa.py_buffer(b"okz")
    ),
    "an offset that goes down": of(pa.string(), ints([0, 2, 1, 3], "i4"), pa.py_buffer(b"okz")),
    "a list out of its values": pa.Array.from_buffers(
        LISTS, 3, [None, ints([0, 1, 900_000, 3], "i4")], children=[NUMBERS]
    ),
    "an index out of the dictionary": pa.DictionaryArray.from_arrays(
        pa.array([0, 70_000, 2]), pa.array(["a", "b", "c"]), safe=False
    ),
    "a view out of its buffer": of(pa.string_view(), BEYOND, pa.py_buffer(b"text" * 9)),
    "a view of no buffer": of(pa.binary_view(), NOWHERE, pa.py_buffer(b"text" * 9)),
    "a decimal of too many digits": of(pa.decimal128(5, 2), ints([1, 0, 10**12, 0, 3, 0], "i8")),
    "no whole day": of(pa.date64(), ints([0, 1, 86_400_000], "i8")),
    "no time of a day": of(pa.time32("s"), ints([0, 86_400, 5], "i4")),
}


@each("case", INVALID)
def test_invalid_data_is_refused_by_row(case: str) -> None:
    array = INVALID[case]
    with pytest.raises(InvalidCallError, match=r"'c' .*invalid data in row 1: "):
        validated(array, "c")
    with pytest.raises(InvalidCallError, match=r"'c' .*invalid data in row 1: "):
        validated(pa.StructArray.from_arrays([array], ["x"]), "c")


HIDDEN = of(pa.string(), ints([0, 2, 6, 7], "i4"), pa.py_buffer(b"okcaf\xe9z"), valid=b"\x05")
HIDING: dict[str, tuple[pa.Array, list[Any]]] = {
    "text": (HIDDEN, ["ok", None, "z"]),
    "struct": (pa.StructArray.from_arrays([HIDDEN], ["t"]), [{"t": "ok"}, {"t": None}, {"t": "z"}]),
    "NULL struct": (
        pa.StructArray.from_arrays([TEXT], ["t"], mask=pa.array([False, True, False])),
        [{"t": "ok"}, None, {"t": "z"}],
    ),
    "list": (pa.ListArray.from_arrays(EACH, HIDDEN), [["ok"], [None], ["z"]]),
    "NULL list": (
        pa.ListArray.from_arrays(EACH, TEXT, mask=pa.array([False, True, False])),
        [["ok"], None, ["z"]],
    ),
}


@each("case", HIDING)
def test_what_nulls_hide_is_left_behind(case: str) -> None:
    """Lance 14 refuses to write a null over bytes that are no text."""
    array, values = HIDING[case]
    for given in (array, pa.chunked_array([array])):
        cleaned = validated(given, "c")
        assert cleaned.to_pylist() == values
        assert validated(cleaned, "c") is cleaned
    assert validated(array.slice(1), "c").to_pylist() == values[1:]


def test_sound_columns_are_not_copied() -> None:
    for array in (NUMBERS, pa.array(["a", None]), pa.array([["a"], None]), pa.array([None, {}])):
        assert validated(array, "c") is array
        column = pa.chunked_array([array, array.slice(1), array.slice(0, 0)])
        assert validated(column, "c") is column
