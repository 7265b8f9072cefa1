"""Rows that are read bit by bit: of readers, datasets, scanners and generators of batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import pyarrow as pa
from pyarrow.dataset import Dataset, Scanner

from exec_nodes.arrow.decoded_size import decoded_bytes, is_indirect
from exec_nodes.arrow.validate import validated
from exec_nodes.base.errors import InvalidCallError
from exec_nodes.base.thresholds import Thresholds

# Read-ahead of a dataset: the defaults hold some sixty batches of 131,072 rows each.
_DATASET_ROWS = 8_192
_READ_AHEAD = 2

_ERRORS = (pa.ArrowException, TypeError, ValueError)


class WholeRows(Thresholds):
    """Rows that are read whole may take so many bytes in a table, or so many times their own."""

    nbytes = 1 << 30
    times = 16


@dataclass(frozen=True, slots=True)
class RowStream:
    """Batches of one schema, which can be read once."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]

    def read_all(self) -> pa.Table:
        """The batches that have not been read. Raises InvalidCallError for rows that are small
        here, and would not be in a table."""
        rows = pa.Table.from_batches(list(self.batches), self.schema)
        if any(map(is_indirect, rows.schema.types)):
            _check_size(rows)
        return rows


def opened(data: Any) -> Any:
    """A `RowStream` of what need not be in memory as a whole, and anything else as it is; a
    generator of other things than batches as a list.

    Raises InvalidCallError for data that can't be read; so does the stream, also for batches whose
    columns differ from the first one's.
    """
    if isinstance(data, pa.RecordBatchReader):
        return RowStream(data.schema, _read(data, data))
    if isinstance(data, Scanner):
        reader = data.to_reader()
        return RowStream(reader.schema, _read(reader, data))
    if isinstance(data, Dataset):
        batches = data.to_batches(
            batch_size=_DATASET_ROWS, batch_readahead=_READ_AHEAD, fragment_readahead=_READ_AHEAD
        )
        return RowStream(data.schema, _read(batches, data))
    if is_arrow_stream(data):
        try:
            reader = pa.RecordBatchReader.from_stream(data)
        except _ERRORS as error:
            raise _unreadable(data, error) from error
        return RowStream(reader.schema, _read(reader, data))
    if isinstance(data, Iterator) and not exports_arrow(data):
        first = list(islice(data, 1))
        if first and isinstance(first[0], pa.Table | pa.RecordBatch):
            return RowStream(first[0].schema, _batches(chain(first, data), first[0].schema))
        return [*first, *data]
    return data


def _check_size(rows: pa.Table) -> None:
    columns = [validated(c, name) for c, name in zip(rows.columns, rows.column_names, strict=True)]
    size, decoded = (sum(map(measure, columns)) for measure in (_nbytes, decoded_bytes))
    if decoded > WholeRows.nbytes and decoded > WholeRows.times * size:
        raise InvalidCallError(
            f"{rows.num_rows} rows of {size} bytes take {decoded >> 20} MB in a table, and this "
            "call holds them all: make several calls"
        )


def _nbytes(column: pa.ChunkedArray) -> int:
    return int(column.nbytes)


def exports_arrow(data: Any) -> bool:
    """Whether an object hands itself over by Arrow's C interface."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def is_arrow_stream(data: Any) -> bool:
    """Whether it does so in batches, and is not known to be held in memory."""
    library = type(data).__module__.partition(".")[0]
    return hasattr(data, "__arrow_c_stream__") and library not in ("pyarrow", "pandas", "polars")


def check_same_columns(at: int, schema: pa.Schema, first: pa.Schema) -> None:
    """Raise InvalidCallError where batch `at` has other columns than the first one."""
    if schema != first:
        raise InvalidCallError(
            f"batch {at} has the columns {schema.names} of the types {schema.types}, and the first "
            f"one {first.names} of {first.types}: give batches of the same columns"
        )


def _read(batches: Iterable[pa.RecordBatch], data: Any) -> Iterator[pa.RecordBatch]:
    try:
        yield from batches
    except _ERRORS as error:
        raise _unreadable(data, error) from error


def _batches(parts: Iterable[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for at, part in enumerate(parts):
        if not isinstance(part, pa.Table | pa.RecordBatch):
            raise InvalidCallError(
                f"batch {at} is a {type(part).__name__}, and the first one a batch of Arrow: give "
                "one kind"
            )
        check_same_columns(at, part.schema, schema)
        yield from part.to_batches() if isinstance(part, pa.Table) else [part]


def _unreadable(data: Any, error: Exception) -> InvalidCallError:
    return InvalidCallError(f"{type(data).__name__} can't be read: {error}")
