"""The rows of a CSV file as Arrow's reader makes them, and what it leaves out without a word.

Everything after a quote that is never closed is one value for it, so that rows are lost. A last row
of nothing but separators is put behind the file here: it comes out as a row of nulls, unless the
file ends within quotes.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv

from memwal_sql.errors import InvalidCallError

_BLOCK = 8 << 20
_HEADER_BYTES = 1 << 20
_TOO_LONG = "straddling"


def read_csv(
    file: BinaryIO, types: Mapping[str, pa.DataType]
) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """The columns and the batches of a file, which is at its beginning; `types` of columns by name,
    which are guessed for others. An empty field is null, and `""` an empty text.

    Raises InvalidCallError, as the batches do, and Arrow's errors.
    """
    ended = _EndedFile(file)
    wrong: list[pa_csv.InvalidRow] = []

    def refuse(row: pa_csv.InvalidRow) -> str:
        wrong.append(row)
        return "error"

    def error_of(error: Exception) -> Exception:
        if wrong:
            return InvalidCallError(
                f"a row has {wrong[0].actual_columns} fields, and the first line "
                f"{wrong[0].expected_columns}: quote fields that have separators in them"
            )
        if _TOO_LONG in str(error):
            return InvalidCallError(
                f"a row has more than {_BLOCK >> 20} MB, or a quote before it is not closed: give "
                "such rows as Parquet"
            )
        return error

    try:
        reader = pa_csv.open_csv(
            pa.PythonFile(ended, "r"),
            read_options=pa_csv.ReadOptions(block_size=_BLOCK),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=refuse),
            convert_options=pa_csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise error_of(error) from None

    def batches() -> Iterator[pa.RecordBatch]:
        try:
            yield from reader
        except pa.ArrowInvalid as error:
            raise error_of(error) from None

    return reader.schema, _without_end(batches()) if ended.has_end else batches()


class _EndedFile(io.RawIOBase):
    """The bytes of a CSV file with one more row at their end.

    Attributes:
        has_end: whether there is one: a file of one column has no row of nulls.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        columns = _columns(file.read(_HEADER_BYTES).decode("utf-8-sig", "replace"))
        file.seek(0)
        self.has_end = columns > 1
        self._end = b"\n" + b"," * (columns - 1) + b"\n" if columns else b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(size)
        room = len(self._end) if size < 0 else size - len(data)
        end, self._end = self._end[:room], self._end[room:]
        return data + end


def _columns(text: str) -> int:
    """The number of columns of the first line that is not empty; 0 where it can't be told."""
    try:
        return next((len(row) for row in csv.reader(io.StringIO(text, newline="")) if row), 0)
    except csv.Error:
        return 0


def _without_end(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches without their last row, which is of nulls. Raises InvalidCallError if not."""
    latest: pa.RecordBatch | None = None
    for batch in batches:
        if batch.num_rows:
            if latest is not None:
                yield latest
            latest = batch
    if latest is None:
        return
    rows = latest.num_rows - 1
    if any(column[rows].is_valid for column in latest.columns):
        raise InvalidCallError(
            "it ends within quotes: a quote is not closed, or the file was cut off"
        )
    yield latest.slice(0, rows)
