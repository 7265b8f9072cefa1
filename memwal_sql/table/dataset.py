"""A table as a dataset of pyarrow, for DuckDB: only the columns that a query names are read, and
only rows that meet its conditions go over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow.dataset import FileSystemDataset, IpcFileFormat, Scanner
from pyarrow.fs import LocalFileSystem

from memwal_sql.errors import UnsupportedError

# The name of a file that is not there: Arrow's error says it.
_NO_FILE = (
    "this dataset is read by its scanner(columns=, filter=), and by what calls that, such as "
    "to_table() and DuckDB; table.to_arrow() gives the rows for anything else"
)

Columns: TypeAlias = Sequence[str] | Mapping[str, pc.Expression] | None


class TableDataset(FileSystemDataset):  # type: ignore[misc]  # pyarrow has no types
    """Reads the current rows each time that it is scanned.

    DuckDB, polars' `scan_pyarrow_dataset`, pyarrow's `write_dataset` and `upsert` read it by
    `scanner`. What goes past that to Arrow's own code, as `lance.write_dataset`, DataFusion's
    `register_dataset` and a union of datasets do, is to read a file that does not exist, and raises
    an error that says so. A file in Python would hold up Lance, which keeps the interpreter's lock
    meanwhile.
    """

    def __init__(
        self, schema: pa.Schema, scan: Callable[[Sequence[str]], pa.RecordBatchReader]
    ) -> None:
        """`scan` gives the rows with some columns of `schema`, in its types."""
        form = IpcFileFormat()
        super().__init__([form.make_fragment(_NO_FILE, LocalFileSystem())], schema, form)
        self._scan = scan

    def scanner(
        self,
        columns: Columns = None,
        filter: pc.Expression | None = None,  # noqa: A002
        **options: Any,
    ) -> Scanner:
        """See `pyarrow.dataset.Dataset.scanner`. It can be read once."""
        names = self.schema.names
        if columns is not None:
            names = _needed(names, self.schema, columns, filter)
        return Scanner.from_batches(self._scan(names), columns=columns, filter=filter, **options)

    def filter(self, _: pc.Expression) -> NoReturn:
        """Raise UnsupportedError."""
        raise UnsupportedError(_NO_FILE)

    def __reduce__(self) -> tuple[Any, ...]:
        return TableDataset, (self.schema, self._scan)


def _needed(
    names: list[str], schema: pa.Schema, columns: Columns, condition: pc.Expression | None
) -> list[str]:
    """The columns among `names` that a scan needs. An expression does not say which columns it
    names, so the scan is tried without them."""
    others = pa.schema([field for field in schema if field.name not in names])
    try:
        Scanner.from_batches(iter(()), schema=others, columns=columns, filter=condition)
        return []
    except (pa.ArrowException, KeyError):
        half = len(names) // 2
        if not half:
            return names
        parts = names[:half], names[half:]
        return [name for part in parts for name in _needed(part, schema, columns, condition)]
