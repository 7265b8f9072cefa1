"""Input files: Parquet, Arrow, CSV and JSON, as batches of a table's types. Files of `memwal sql
--to` are read back as the same rows: CSV tells null (nothing) from an empty text (`""`), binary
values are hex digits in CSV and JSON, times ISO 8601.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import time
from decimal import Decimal
from enum import StrEnum
from itertools import islice
from math import isinf
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import is_binary, is_json, is_list
from exec_nodes.arrow.python_values import exact_values
from exec_nodes.arrow.row_stream import RowStream
from exec_nodes.arrow.struct_fields import check_value, check_values
from exec_nodes.arrow.texts import read_texts
from exec_nodes.base.brief import names_text
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.ingest.arrow_rows import read_arrow
from memwal_sql.write.ingest.csv_rows import read_csv
from memwal_sql.write.ingest.missing import NULL, ragged_row
from memwal_sql.write.ingest.parquet_rows import read_parquet

# The columns and the batches of a file.
FileRows = tuple[pa.Schema, Iterator[pa.RecordBatch]]

STDIN = "-"


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
_JSON_ROWS = 10_000
_TOO_LARGE = "there is not enough memory: write it in smaller batches, or several files"
_ERRORS = (pa.ArrowException, OSError, ValueError, TypeError, ArithmeticError, RecursionError)


def opened_file(path: str | os.PathLike[str], schema: pa.Schema, missing: str) -> RowStream:
    """The rows of a file whose name says its format; it is closed when they have been read. See
    `batches_of`. Raises InvalidCallError, as its batches do."""
    name, kind = _existing(path)
    reading = ExitStack()
    columns, batches = reading.enter_context(batches_of(name, kind, schema, missing=missing))

    def rows() -> Iterator[pa.RecordBatch]:
        with reading:
            yield from batches

    return RowStream(columns, rows())


def is_json_file(data: Any) -> bool:
    """Whether it is the path of a file of JSON."""
    return isinstance(data, str | os.PathLike) and format_of(os.fsdecode(data)) is FileFormat.JSON


def json_lists(path: str | os.PathLike[str]) -> Iterator[list[Any]]:
    """The values of a file of JSON in lists, as they are; `json_array` puts them into types. Raises
    InvalidCallError."""
    name, _ = _existing(path)
    with _errors_of_files(), _opened(name) as file:
        values = (value for _, value in _decoded(file, Decimal))
        while some := list(islice(values, _JSON_ROWS)):
            yield some


def json_array(values: list[Any], field: pa.Field, *, fill: bool = False) -> pa.Array:
    """As `exact_values`, of values as files of JSON have them."""
    check_values(values, field, fill=fill)
    with _errors_of_files():
        return _array(values, field.type, field.name)


def _existing(path: str | os.PathLike[str]) -> tuple[str, FileFormat]:
    """The name of a file that exists, and its format."""
    name = os.fsdecode(path)
    kind = format_of(name)
    if kind is None:
        raise InvalidCallError(
            f"{name!r} is not a file of rows, whose name ends with one of {[*_SUFFIXES]}: give "
            "the path of one, or the rows"
        )
    if os.path.isdir(name) or not os.path.exists(name):
        raise InvalidCallError(
            f"there is no file {name!r}: for a folder or an object store, give "
            f"pyarrow.dataset.dataset({name!r})"
        )
    return name, kind


def format_of(name: str) -> FileFormat | None:
    """The format that the name of a file says."""
    return _SUFFIXES.get(Path(name).suffix.lower())


@contextmanager
def named_file(data: Any) -> Iterator[None]:
    """A context in which errors in rows name the file, if `data` is its path."""
    try:
        yield
    except InvalidCallError as error:
        name = os.fsdecode(data) if isinstance(data, str | os.PathLike) else ""
        if type(error) is InvalidCallError and name not in str(error):
            error.args = (f"{name}: {error}",)  # in place, as it may have notes
        raise
    except MemoryError as error:
        if not isinstance(data, str | os.PathLike):
            raise
        refusal = InvalidCallError(f"{os.fsdecode(data)}: {_TOO_LARGE}: {error}")
        for note in getattr(error, "__notes__", ()):
            refusal.add_note(note)
        raise refusal from None


@contextmanager
def batches_of(
    name: str,
    kind: FileFormat,
    schema: pa.Schema | None,
    *,
    missing: str,
) -> Iterator[FileRows]:
    """The columns and rows of the file `name`, `-` for standard input.

    Columns that are in `schema` have its types; without a schema they have the file's, and types of
    CSV and JSON are guessed from the first rows, which there must be. Rows of JSON may lack what
    others have if `missing` is `"null"`. Raises InvalidCallError.
    """
    with _errors_of_files():
        file = _opened(name)
    with file:
        with _errors_of_files():
            if kind is FileFormat.JSON:
                columns, batches = _json(file, schema, missing)
            else:
                columns, batches = _READERS[kind](file, schema)
        yield columns, _batches(batches)


def _batches(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a file; an error of whoever takes them is not the file's."""
    with _errors_of_files():
        yield from batches


@contextmanager
def _errors_of_files() -> Iterator[None]:
    try:
        yield
    except InvalidCallError:
        raise
    except MemoryError as error:
        raise InvalidCallError(f"{_TOO_LARGE}: {error}") from None
    except _ERRORS as error:
        raise InvalidCallError(str(error)) from None


def _opened(name: str) -> BinaryIO:
    if name != STDIN and (os.path.isfile(name) or os.path.isdir(name) or not os.path.exists(name)):
        return open(name, "rb")
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    # Formats are read from the end, which a pipe or a device does not have.
    if name == STDIN:
        shutil.copyfileobj(sys.stdin.buffer, copy)
    else:
        with open(name, "rb") as stream:
            shutil.copyfileobj(stream, copy)
    copy.seek(0)
    return copy


def _parquet(file: BinaryIO, _: pa.Schema | None) -> FileRows:
    return read_parquet(file)


def _arrow(file: BinaryIO, _: pa.Schema | None) -> FileRows:
    return read_arrow(file)


def _csv(file: BinaryIO, schema: pa.Schema | None) -> FileRows:
    kinds = {field.name: field.type for field in schema or ()}
    types = {
        name: pa.string() if _is_read_here(_storage(kind)) else _storage(kind)
        for name, kind in kinds.items()
        if not pa.types.is_nested(_storage(kind))
    }
    columns, rows = read_csv(file, types)
    guessed = {f.name: f.type for f in columns if pa.types.is_floating(f.type)}
    if guessed:  # as texts, none of which becomes infinite
        file.seek(0)
        kinds, types = kinds | guessed, types | dict.fromkeys(guessed, pa.string())
        columns, rows = read_csv(file, types)
    names = columns.names
    if kinds and not kinds.keys() & set(names):  # they may be no names: nothing of it is shown
        raise InvalidCallError(
            f"its first line names none of the table's columns {[*kinds]}: begin with their names"
        )
    for name in names:
        if name in kinds and name not in types:
            raise InvalidCallError(f"column {name!r} is {kinds[name]}, which CSV has no form for")

    def typed(column: pa.Array, kind: pa.DataType, name: str) -> pa.Array:
        if column.type == kind:
            return column
        if pa.types.is_floating(kind):  # Arrow's reader takes spaces around numbers
            return read_texts(pc.utf8_trim_whitespace(column), pa.field(name, kind))
        if pa.types.is_decimal(kind):
            return read_texts(column, pa.field(name, kind))
        if is_binary(_storage(kind)):
            return _array(column.to_pylist(), kind, name)
        return pa.ExtensionArray.from_storage(kind, column)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            pairs = zip(names, batch.columns, strict=True)
            columns = [typed(c, kinds.get(name, c.type), name) for name, c in pairs]
            yield pa.RecordBatch.from_arrays(columns, names)

    return pa.schema((f.name, kinds.get(f.name, f.type)) for f in columns), batches()


_READERS = {FileFormat.PARQUET: _parquet, FileFormat.ARROW: _arrow, FileFormat.CSV: _csv}


def _json(file: BinaryIO, schema: pa.Schema | None, missing: str) -> FileRows:
    rows = _objects(file, Decimal if schema else _finite)
    first = list(islice(rows, _JSON_ROWS))
    if not first:
        if schema is None:
            raise InvalidCallError("it has no rows")
        return schema, iter(())
    names = list(dict.fromkeys(name for _, row in first for name in row))
    if not names:
        raise InvalidCallError(f"row {first[0][0]} is empty: give the columns of the key")
    types = {} if schema is None else {field.name: field.type for field in schema}
    if schema is not None:  # rows that have others are refused
        names = [name for name in types if missing == NULL or name in names] or list(types)
    columns = pa.schema(
        (name, types.get(name) or pa.array([row.get(name) for _, row in first]).type)
        for name in names
    )

    def batch_of(some: list[tuple[int, dict[str, Any]]]) -> pa.RecordBatch:
        for number, row in some:
            _check_row(number, row, columns, missing)
        return pa.record_batch([_column(some, f) for f in columns], names=columns.names)

    batch = batch_of(first)  # before a table is made of its columns

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch
        while some := list(islice(rows, _JSON_ROWS)):
            yield batch_of(some)

    return columns, batches()


def _column(rows: list[tuple[int, dict[str, Any]]], field: pa.Field) -> pa.Array:
    """The values of numbered rows. Raises InvalidCallError naming the first row that is wrong."""
    try:
        return _array([row.get(field.name) for _, row in rows], field.type, field.name)
    except _ERRORS as error:
        if len(rows) == 1:
            column = "" if "column" in str(error) else f"column {field.name!r}: "
            raise InvalidCallError(f"row {rows[0][0]}: {column}{error}") from None
        half = len(rows) // 2
        _column(rows[:half], field)
        return _column(rows[half:], field)


def _finite(digits: str) -> float:
    number = float(digits)
    if isinf(number):
        raise ValueError(f"{digits} is not a double: it is too large")
    return number


def _objects(file: BinaryIO, floats: Callable[[str], Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows of a file, by number."""
    for number, row in _decoded(file, floats):
        if not isinstance(row, dict):
            raise InvalidCallError(f"row {number} is not an object: {str(row)[:40]}")
        yield number, row


def _decoded(file: BinaryIO, floats: Callable[[str], Any]) -> Iterator[tuple[int, Any]]:
    """The values of a file, by number; an array is read whole."""
    decoder = json.JSONDecoder(parse_float=floats, object_pairs_hook=_distinct)
    head = file.read(256)
    start = len(BOM_UTF8) if head.startswith(BOM_UTF8) else 0
    is_array = head[start:].lstrip()[:1] == b"["
    file.seek(start)
    if is_array:
        yield from enumerate(decoder.decode(file.read().decode()), 1)
        return
    for number, line in enumerate(file, 1):
        if line.strip():
            yield number, _line(decoder, number, line)


def _line(decoder: json.JSONDecoder, number: int, line: bytes) -> Any:
    try:
        return decoder.decode(line.decode())
    except json.JSONDecodeError as error:
        raise InvalidCallError(f"line {number} column {error.colno}: {error.msg}") from None
    except (InvalidCallError, ValueError, RecursionError) as error:
        raise InvalidCallError(f"line {number}: {error}") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise InvalidCallError(
            f"an object has a name twice: {names_text(name for name, _ in pairs)}"
        )
    return row


def _check_row(number: int, row: Mapping[str, Any], schema: pa.Schema, missing: str) -> None:
    names = schema.names
    if row.keys() != set(names):
        unknown = sorted(row.keys() - set(names))
        if unknown:
            raise InvalidCallError(
                f"row {number} has the columns {names_text(unknown)}, which are not in the table, "
                "or not in the first rows of the file: drop or rename them, or give all rows the "
                "same columns"
            )
        if missing != NULL:
            raise ragged_row(number, [name for name in names if name not in row], missing)
    for field in schema:
        if pa.types.is_nested(_storage(field.type)):
            check_value(row.get(field.name), field, number, fill=missing == NULL)


def _array(values: list[Any], kind: pa.DataType, name: str) -> pa.Array:
    """JSON's values of the column `name` in a type, each as it is or not at all."""
    if is_json(kind):
        return exact_values(values, pa.field(name, kind))
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, _array(values, kind.storage_type, name))
    if pa.types.is_dictionary(kind):
        return _array(values, kind.value_type, name).cast(kind)
    if pa.types.is_struct(kind):
        _check_all(values, dict, kind, name)
        parts = [
            _array([None if v is None else v.get(f.name) for v in values], f.type, name)
            for f in kind
        ]
        nulls = pa.array([value is None for value in values], pa.bool_())
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    if is_list(kind):
        _check_all(values, list, kind, name)
        inner = _array([item for value in values for item in value or ()], kind.value_type, name)
        ends, end = [0], 0
        for value in values:
            end += len(value or ())
            ends.append(end)
        nulls = pa.array([value is None for value in values], pa.bool_())
        lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), inner, mask=nulls)
        # Arrow's cast to the same type makes an invalid array of structs with a null type.
        return lists if lists.type == kind else lists.cast(kind)
    if pa.types.is_map(kind) or pa.types.is_duration(kind):
        raise InvalidCallError(f"column {name!r} has {kind}, which is not read from JSON")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        _check_all(values, str, kind, name)
        return pa.array(values, pa.string()).cast(kind)
    if is_binary(kind) or pa.types.is_time(kind):
        read = _bytes if is_binary(kind) else time.fromisoformat
        try:
            return pa.array([None if value is None else read(value) for value in values], kind)
        except (TypeError, ValueError) as error:
            form = "hex digits" if is_binary(kind) else "a time of ISO 8601"
            raise InvalidCallError(f"column {name!r} takes texts of {form}: {error}") from None
    if pa.types.is_decimal(kind):
        values = [_decimal(value, name) for value in values]
    elif pa.types.is_floating(kind):
        values = [_float(value, name) if isinstance(value, Decimal) else value for value in values]
    return exact_values(values, pa.field(name, kind))


def _decimal(value: Any, name: str) -> Decimal | None:
    try:
        return None if value is None or isinstance(value, bool) else Decimal(value)
    except (ArithmeticError, TypeError, ValueError):
        raise InvalidCallError(f"column {name!r}: {value!r} is not a number") from None


def _float(value: Decimal, name: str) -> float:
    number = float(value)
    if isinf(number):
        raise InvalidCallError(f"column {name!r}: {value} is not a double: it is too large")
    return number


def _bytes(value: Any) -> bytes:
    """Of hex digits; a change of Debezium has them already."""
    return value if isinstance(value, bytes) else bytes.fromhex(value)


def _is_read_here(kind: pa.DataType) -> bool:
    """Whether texts of CSV are not read as a type by Arrow, or become infinite."""
    return is_binary(kind) or pa.types.is_decimal(kind) or pa.types.is_floating(kind)


def _check_all(values: Iterable[Any], form: type, kind: pa.DataType, name: str) -> None:
    for value in values:
        if value is not None and not isinstance(value, form):
            raise InvalidCallError(f"column {name!r}: {str(value)[:40]!r} is not a {kind}")


def _storage(kind: pa.DataType) -> pa.DataType:
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
