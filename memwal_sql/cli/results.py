"""The rows of a query, on standard output or in a file, in the format asked for."""

from __future__ import annotations

import codecs
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from exec_nodes.arrow.arrays import is_binary
from memwal_sql.cli.output import aligned_lines, json_line, remark
from memwal_sql.cli.sinks import replaced_file, standard_output
from memwal_sql.errors import InvalidCallError
from memwal_sql.session.clauses import check_names_differ
from memwal_sql.view.texts import visible_lines

_MOST_IN_A_TERMINAL = 1000


class RowFormat(StrEnum):
    """How rows are written: for people, as one JSON array, as a JSON object a line, or a file."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"


_SUFFIXES: Mapping[str, RowFormat] = {
    ".json": RowFormat.JSON,
    ".jsonl": RowFormat.JSONL,
    ".ndjson": RowFormat.JSONL,
    ".csv": RowFormat.CSV,
    ".parquet": RowFormat.PARQUET,
}


def format_for(output: RowFormat | None, file: Path | None) -> RowFormat:
    """The format asked for, else what the file's name says, else the one for people."""
    if output is not None:
        return output
    if file is None:
        return RowFormat.TABLE
    format_ = _SUFFIXES.get(file.suffix.lower())
    if format_ is None:
        raise InvalidCallError(f"--to {str(file)!r}: its name says no format: add --output")
    return format_


def write_rows(
    schema: pa.Schema,
    batches: Iterator[pa.RecordBatch],
    output: RowFormat,
    file: Path | None,
    most: int | None,
) -> None:
    """Write rows as they come, JSON to stdout at once; a file gets its name when it is whole.

    `most` rows at most; None: 1,000 in a terminal, and else all.
    """
    if most is None and file is None and output is RowFormat.TABLE and sys.stdout.isatty():
        most = _MOST_IN_A_TERMINAL
    taken = _Taken(batches, most)
    with _sink(file, output) as sink:
        _WRITERS[output](sink, schema, taken)
    if output is RowFormat.TABLE and not taken.rows:
        remark("no rows")
    if taken.were_more:
        remark(f"only the first {most} rows: --max-rows shows more")


class _Taken:
    """The first rows of batches; no more are read than it takes to know that there are more."""

    def __init__(self, batches: Iterator[pa.RecordBatch], most: int | None) -> None:
        self._batches = batches
        self._most = most
        self.rows = 0
        self.were_more = False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            room = batch.num_rows if self._most is None else self._most - self.rows
            self.rows += min(room, batch.num_rows)
            if room:
                yield batch.slice(0, room)
            if batch.num_rows > room:
                self.were_more = True
                return


@contextmanager
def _sink(file: Path | None, output: RowFormat) -> Iterator[BinaryIO]:
    """The destination of rows. A terminal gets no Parquet, and text that it shows and does not
    obey, whatever it was opened by."""
    with standard_output() if file is None else replaced_file(file) as sink:
        if sink.isatty() and output is RowFormat.PARQUET:
            raise InvalidCallError("Parquet is not text: name a file by --to")
        yield cast(BinaryIO, _Terminal(sink)) if sink.isatty() else sink


class _Terminal(io.RawIOBase):
    """Text for a terminal, in which characters that it would obey are shown as escapes."""

    def __init__(self, below: BinaryIO) -> None:
        self._below = below
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        self._below.write(visible_lines(self._decoder.decode(bytes(data))).encode())
        return len(data)


def _write_table(sink: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    for line in aligned_lines(schema.names, list(batches)):
        sink.write(line.encode() + b"\n")


def _write_json_lines(sink: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    for line in _json_lines(schema, batches):
        sink.write(line + b"\n")


def _write_json(sink: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    # Half an array is not JSON: it is written when it is whole.
    sink.write(b"[" + b",\n ".join(_json_lines(schema, batches)) + b"]\n")


def _json_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    check_names_differ(schema.names)
    for batch in batches:
        yield from (json_line(row).encode() for row in batch.to_pylist())


def _write_csv(sink: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    nested = [field.name for field in schema if pa.types.is_nested(field.type)]
    if nested:
        raise InvalidCallError(f"CSV has no form for the columns {nested}: choose json or parquet")
    _write_by(partial(pa_csv.CSVWriter, sink), schema, batches, _hex_digits)


def _write_parquet(sink: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    check_names_differ(schema.names)
    _write_by(partial(pq.ParquetWriter, sink), schema, batches, lambda column: column)


def _write_by(
    writer: Callable[[pa.Schema], Any],
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    convert: Callable[[Any], Any],
) -> None:
    def converted(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [convert(column) for column in batch.columns], schema.names
        )

    empty = converted(pa.RecordBatch.from_pylist([], schema))
    try:
        with writer(empty.schema) as file:
            for batch in batches:
                file.write_batch(converted(batch))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidCallError(f"these rows have no form in that format: {error}") from None


def _hex_digits(column: Any) -> Any:
    """Binary values as hex digits, other columns as they are."""
    if not is_binary(column.type):
        return column
    return pa.array([None if v is None else v.hex() for v in column.to_pylist()], pa.string())


_WRITERS: Mapping[RowFormat, Callable[[BinaryIO, pa.Schema, Iterable[pa.RecordBatch]], None]] = {
    RowFormat.TABLE: _write_table,
    RowFormat.JSON: _write_json,
    RowFormat.JSONL: _write_json_lines,
    RowFormat.CSV: _write_csv,
    RowFormat.PARQUET: _write_parquet,
}
