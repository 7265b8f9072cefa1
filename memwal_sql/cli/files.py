"""Files that rows come from: Parquet, Arrow, CSV and JSON, as batches of a table's types.

What `memwal sql --to` wrote is read back as the same rows: CSV tells null (nothing) from an empty
text (`""`), binary values are hex digits in CSV and JSON, times ISO 8601.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import time
from enum import StrEnum
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq

from exec_nodes.arrow.arrays import is_binary
from exec_nodes.arrow.struct_fields import check_value, has_structs
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.ingest.missing import missing_columns

# The columns and the batches of a file.
FileRows = tuple[pa.Schema, Iterator[pa.RecordBatch]]

STDIN = "-"
# How the command line has what rows lack set to null.
FILL = "--missing null"


class FileFormat(StrEnum):
    """A format of files with rows; JSON is an array of objects or one object a line."""

    PARQUET = "parquet"
    ARROW = "arrow"
    CSV = "csv"
    JSON = "json"


_SUFFIXES: Mapping[str, FileFormat] = {
    ".parquet": FileFormat.PARQUET,
    ".arrow": FileFormat.ARROW,
    ".arrows": FileFormat.ARROW,
    ".feather": FileFormat.ARROW,
    ".csv": FileFormat.CSV,
    ".json": FileFormat.JSON,
    ".jsonl": FileFormat.JSON,
    ".ndjson": FileFormat.JSON,
}
_BLOCK_BYTES = 8 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
_BREAK = re.compile(r"[\r\n]")


def format_of(name: str) -> FileFormat | None:
    """The format that a file's name says."""
    return _SUFFIXES.get(Path(name).suffix.lower())


@contextmanager
def batches_of(
    name: str, kind: FileFormat | None, schema: pa.Schema | None, *, fill: bool
) -> Iterator[FileRows]:
    """The columns and rows of the file `name`, `-` for standard input.

    Columns that are in `schema` have its types; without a schema the file says, and those of CSV
    and JSON are guessed from the first rows. `fill` lets rows of JSON lack what others have.
    Raises InvalidCallError that names the file.
    """
    kind = kind or format_of(name)
    if kind is None:
        known = ", ".join(FileFormat)
        raise InvalidCallError(f"{name}: its name says no format: add --format, one of {known}")
    with _named_errors(name):
        file = _opened(name)
    with file:
        with _named_errors(name):
            if kind is FileFormat.JSON:
                found, batches = _json(file, schema, fill)
            else:
                found, batches = _READERS[kind](file, schema)
        yield found, _rows(name, kind, batches, schema)


def _rows(
    name: str, kind: FileFormat, batches: Iterator[pa.RecordBatch], schema: pa.Schema | None
) -> Iterator[pa.RecordBatch]:
    """The batches of a file; an error of whoever takes them is none of the file."""
    with _named_errors(name):
        for batch in batches:
            yield batch if schema is None else _typed(batch, schema, kind)


@contextmanager
def _named_errors(name: str) -> Iterator[None]:
    try:
        yield
    except (InvalidCallError, pa.ArrowException, OSError, ValueError, RecursionError) as error:
        raise InvalidCallError(f"{name}: {error}") from None


def reads_once(name: str) -> bool:
    """Whether a name is that of a stream: standard input, a pipe or a device."""
    return name == STDIN or (
        os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name)
    )


def _opened(name: str) -> BinaryIO:
    if not reads_once(name):
        return open(name, "rb")
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    # Formats are read from the end, or twice.
    if name == STDIN:
        shutil.copyfileobj(sys.stdin.buffer, copy)
    else:
        with open(name, "rb") as stream:
            shutil.copyfileobj(stream, copy)
    copy.seek(0)
    return copy


def _parquet(file: BinaryIO, _: pa.Schema | None) -> FileRows:
    found = pq.ParquetFile(file)
    return found.schema_arrow, found.iter_batches()


def _arrow(file: BinaryIO, _: pa.Schema | None) -> FileRows:
    is_file = file.read(6) == b"ARROW1"
    file.seek(0)
    if not is_file:
        stream = pa.ipc.open_stream(file)
        return stream.schema, iter(stream)
    found = pa.ipc.open_file(file)
    return found.schema, (found.get_batch(n) for n in range(found.num_record_batches))


def _csv(file: BinaryIO, schema: pa.Schema | None) -> FileRows:
    nested = [field for field in schema or () if pa.types.is_nested(_storage(field.type))]
    types = {field.name: _csv_type(field.type) for field in schema or () if field not in nested}
    reader = pa_csv.open_csv(
        file,
        read_options=pa_csv.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for field in nested:
        if field.name in reader.schema.names:
            raise InvalidCallError(
                f"column {field.name!r} is {field.type}, which CSV has no form for"
            )
    return reader.schema, iter(reader)


def _json(file: BinaryIO, schema: pa.Schema | None, fill: bool) -> FileRows:
    lines = _as_lines(file)
    rows = _first_rows(lines)
    named = set[str]().union(*rows)
    parse = pa_json.ParseOptions()
    if schema is not None:
        _check_known(named, schema.names, "the table has not: drop or rename them")
        # What no row names would be read as nulls, in silence. A type that is not given is guessed:
        # a text that looks like a date would be another one afterwards.
        schema = pa.schema([field for field in schema if field.name in named])
        wanted = [pa.field(f.name, _json_type(f.type, f.name)) for f in schema]
        _check_rows(lines, rows, schema, fill)
        parse = pa_json.ParseOptions(
            explicit_schema=pa.schema(wanted), unexpected_field_behavior="error"
        )
    lines.seek(0)
    reader = pa_json.open_json(lines, pa_json.ReadOptions(block_size=_BLOCK_BYTES), parse)
    if schema is None:
        _check_known(named, reader.schema.names, "come late: types are guessed from its first rows")
        _check_rows(lines, rows, reader.schema, fill)
    return reader.schema, iter(reader)


def _first_rows(lines: BinaryIO) -> dict[frozenset[str], int]:
    """The columns that rows of the file name, and the first row that names just these."""
    first: dict[frozenset[str], int] = {}
    for number, row in _objects(lines):
        first.setdefault(frozenset(row), number)
    return first


def _check_rows(
    lines: BinaryIO, rows: Mapping[frozenset[str], int], schema: pa.Schema, fill: bool
) -> None:
    """Raise InvalidCallError for a row without some of the columns, which are `schema`, or with
    other fields inside of them; `rows` are the `_first_rows`."""
    for names, number in rows.items():
        lacking = [name for name in schema.names if name not in names]
        if lacking and not fill:
            raise missing_columns(f"row {number} lacks", lacking, FILL)
    structs = [field for field in schema if has_structs(field.type)]
    for number, row in _objects(lines) if structs else ():
        for field in structs:
            check_value(row.get(field.name), field, number, fill=fill, option=FILL)


def _objects(lines: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file, by number."""
    lines.seek(0)
    for number, line in enumerate(lines, 1):
        if line.isspace():
            continue
        row = json.loads(line)
        if not isinstance(row, dict):  # Arrow reads null as a row, or crashes
            raise InvalidCallError(f"row {number} is not an object: {line[:40]!r}")
        yield number, row


def _check_known(named: set[str], known: list[str], why: str) -> None:
    unknown = sorted(named.difference(known))
    if unknown:
        raise InvalidCallError(f"it names the columns {unknown}, which {why}")


_READERS = {
    FileFormat.PARQUET: _parquet,
    FileFormat.ARROW: _arrow,
    FileFormat.CSV: _csv,
}


def _as_lines(file: BinaryIO) -> BinaryIO:
    """JSON with one object a line, whether the file has lines or an array."""
    start = file.read(256).lstrip()[:1]
    file.seek(0)
    if start != b"[":
        return file
    rows = (_BREAK.sub(" ", row) for row in _array_rows(file.read().decode()))
    return io.BytesIO("\n".join(rows).encode())


def _array_rows(text: str) -> Iterator[str]:
    """The values of a JSON array as they are written: numbers keep all their digits."""
    decoder = json.JSONDecoder()
    start = _next(text, text.index("[") + 1)
    more = text[start : start + 1] != "]"
    while more:
        _, end = decoder.raw_decode(text, start)
        yield text[start:end]
        end = _next(text, end)
        more = text[end : end + 1] == ","
        start = _next(text, end + 1) if more else end
    if text[start : start + 1] != "]" or _next(text, start + 1) < len(text):
        raise json.JSONDecodeError("',' or the array's end expected", text, start)


def _next(text: str, position: int) -> int:
    """Where the text goes on after white space."""
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _csv_type(kind: pa.DataType) -> pa.DataType:
    kind = _storage(kind)
    return pa.string() if is_binary(kind) else kind


def _json_type(kind: pa.DataType, name: str, *, inner: bool = False) -> pa.DataType:
    """A type that Arrow's JSON reader has, and that casts to `kind`."""
    kind = _storage(kind)
    if pa.types.is_struct(kind):
        return pa.struct([(f.name, _json_type(f.type, name, inner=True)) for f in kind])
    by_hand = is_binary(kind) or pa.types.is_time(kind)
    if pa.types.is_map(kind) or pa.types.is_duration(kind) or (inner and by_hand):
        raise InvalidCallError(f"column {name!r} has {kind}, which is not read from JSON")
    if pa.types.is_nested(kind):
        return pa.list_(_json_type(kind.value_type, name, inner=True))
    if pa.types.is_dictionary(kind):
        return _json_type(kind.value_type, name, inner=inner)
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_date(kind) or by_hand:
        return pa.string()
    return kind


def _typed(batch: pa.RecordBatch, schema: pa.Schema, kind: FileFormat) -> pa.RecordBatch:
    """What was read as text in the types of the table; other formats have types of their own."""
    if kind not in (FileFormat.CSV, FileFormat.JSON):
        return batch
    known = {field.name: field.type for field in schema}
    columns = [
        _converted(column, known.get(name, column.type))
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _converted(column: Any, kind: pa.DataType) -> Any:
    storage = _storage(kind)
    is_text = pa.types.is_string(column.type)
    if is_text and (is_binary(storage) or pa.types.is_time(storage)):
        read = bytes.fromhex if is_binary(storage) else time.fromisoformat
        values = [None if text is None else read(text) for text in column.to_pylist()]
        column = pa.array(values, storage)
    elif column.type != storage:
        column = column.cast(storage)
    return column if storage == kind else pa.ExtensionArray.from_storage(kind, column)


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
