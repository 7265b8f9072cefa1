"""Rows in whatever form callers have them, as one Arrow table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa

from exec_nodes.arrow.row_stream import RowStream, check_same_columns, exports_arrow, opened
from exec_nodes.base.errors import InvalidCallError

FORMS = (
    "a pyarrow table, batch, reader, dataset or list of batches, a pandas or polars frame, "
    "anything with the Arrow C stream interface, a dict of columns, a list of dicts, or a file's "
    "path"
)
# Dicts of columns, or dicts that are rows.
PythonRows: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]

_ERRORS = (pa.ArrowException, TypeError, ValueError)


def input_rows(data: Any) -> pa.Table | PythonRows | None:
    """The rows of `data`: a table for Arrow data, `data` itself for a dict of columns, a list for
    an iterable of dicts; None for any other form than `FORMS`.

    A stream (see `opened`) is read whole. Raises InvalidCallError for what can't be read.
    """
    if isinstance(data, pa.Table):
        return data
    data = opened(data)
    try:
        table = _arrow(data)
    except _ERRORS as error:
        raise InvalidCallError(f"{type(data).__name__} can't be read: {error}") from error
    if table is not None or isinstance(data, Mapping):
        return data if table is None else table
    if not isinstance(data, Sequence) or isinstance(data, str | bytes):
        return None
    if all(isinstance(row, Mapping) for row in data):
        return data
    if all(isinstance(part, pa.Table | pa.RecordBatch) for part in data):
        return _joined(data)
    if isinstance(data[0], Mapping):
        row, value = next((n, v) for n, v in enumerate(data) if not isinstance(v, Mapping))
        shown = "None" if value is None else type(value).__name__
        raise InvalidCallError(f"row {row} is {shown}, and a row is a dict: leave it out")
    return None


def read_once(data: Any) -> Any:
    """A generator as a list; other data unchanged."""
    return list(data) if isinstance(data, Iterator) and not exports_arrow(data) else data


def object_columns(data: Any) -> dict[str, Any]:
    """The columns of a frame of pandas whose values are Python's, by the names they have in
    `input_rows`; {} for anything else."""
    if not _is_pandas_frame(data):
        return {}
    return {str(name): data[name] for name in data.columns if data[name].dtype == object}


def _is_pandas_frame(data: Any) -> bool:
    return type(data).__module__.partition(".")[0] == "pandas" and hasattr(data, "columns")


def _arrow(data: Any) -> pa.Table | None:
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, RowStream):
        return data.read_all()
    if _is_pandas_frame(data):
        # Its own export would add the index as a column.
        return pa.Table.from_pandas(data, preserve_index=False)
    if type(data).__module__.partition(".")[0] == "polars" and hasattr(data, "collect"):
        data = data.collect()
    return pa.table(data) if exports_arrow(data) else None


def _joined(parts: Sequence[pa.Table | pa.RecordBatch]) -> pa.Table:
    tables = [pa.table(part) for part in parts]
    for at, table in enumerate(tables):
        check_same_columns(at, table.schema, tables[0].schema)
    return pa.concat_tables(tables)
