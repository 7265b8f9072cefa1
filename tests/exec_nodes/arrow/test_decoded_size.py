"""The size of columns that name values which they do not have."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.decoded_size import decoded_bytes
from tests.each import each

ROWS = 200
TEXT = "x" * 1_000
INDICES = pa.array([0, 1] * (ROWS // 2), pa.int32())
TEXTS = pa.DictionaryArray.from_arrays(INDICES, [TEXT, "y"])
RUNS = pa.RunEndEncodedArray.from_arrays(pa.array([ROWS // 2, ROWS], pa.int32()), [TEXT, None])
VIEWS = pa.ListViewArray.from_arrays(
    pa.array([0] * ROWS, pa.int32()), pa.array([100] * ROWS, pa.int32()), pa.array(range(100))
)
OFFSETS = pa.array(range(ROWS + 1), pa.int32())
TEXTS_OF_KEYS = pa.MapArray.from_arrays(OFFSETS, pa.array(range(ROWS)), TEXTS)
# Column, and what it is in a table.
COLUMNS = {
    "dictionary": (TEXTS, TEXTS.dictionary_decode()),
    "dictionary of numbers": (
        pa.DictionaryArray.from_arrays(INDICES, [1, 2]),
        pa.array([0] * ROWS),
    ),
    "runs": (RUNS, pc.run_end_decode(RUNS)),
    "views of lists": (VIEWS, pa.array([list(range(100))] * ROWS)),
    "nulls": (pa.nulls(ROWS), pa.array([0] * ROWS)),
    "struct": (pa.StructArray.from_arrays([TEXTS], ["a"]), TEXTS.dictionary_decode()),
    "list": (pa.ListArray.from_arrays(OFFSETS, TEXTS), TEXTS.dictionary_decode()),
    "map": (
        pa.MapArray.from_arrays(OFFSETS, pa.array(range(ROWS)), TEXTS),
        TEXTS.dictionary_decode(),
    ),
    "fixed list": (pa.FixedSizeListArray.from_arrays(TEXTS, 1), TEXTS.dictionary_decode()),
}


@each("case", COLUMNS)
def test_it_is_about_that_of_the_decoded_column(case: str) -> None:
    column, decoded = COLUMNS[case]
    for start, rows in ((0, ROWS), (50, 100), (120, 80), (7, 1), (9, 0)):
        part, plain = column.slice(start, rows), decoded.slice(start, rows)
        values = plain.nbytes
        assert values - 8 <= decoded_bytes(part) <= values + 24 * rows, (start, rows)
    chunked = pa.chunked_array([column, column.slice(3)])
    assert decoded_bytes(chunked) == decoded_bytes(column) + decoded_bytes(column.slice(3))


def test_a_plain_column_has_its_own() -> None:
    for column in (
        pa.array([1, 2]),
        pa.array(["a", None]),
        pa.array([[1], None]),
        pa.chunked_array([[1]]),
    ):
        assert decoded_bytes(column) == column.nbytes
