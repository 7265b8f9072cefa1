"""All rows of a table, for programs and for whatever reads Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import pyarrow as pa

from memwal_native import MountedTable
from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.read.planning import scan, stream, while_present
from memwal_sql.sql.filtered_scan import filtered_scan
from memwal_sql.sql.provider import TableProvider
from memwal_sql.table.writing import WrittenTable
from planner.model import Query


class ScannedTable(WrittenTable):
    """Scans, and the same as Arrow tables and frames.

    A table has the Arrow PyCapsule interface: pyarrow, polars, DuckDB, pandas and others take it as
    it is, as often as they want, and read what a strong reader sees each time.
    """

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 (the word that Lance and its users use)
        limit: int | None = None,
        consistency: str = "strong",
    ) -> pa.RecordBatchReader:
        """The live rows, streamed in no particular order.

        Args:
            filter: a SQL condition as in WHERE.
            limit: at most so many rows.
        """
        # The columns may be others than when this handle last read.
        names = self._columns(columns, self._collector.served().info.schema)
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit < 1 << 63
        ):
            raise InvalidCallError(f"limit={limit!r} must be a number of rows, from 0 to 2**63 - 1")
        if filter is not None:
            return filtered_scan(self, names, filter, limit, consistency)
        return stream(self.planned(partial(scan, Query(names, (), limit)), consistency), limit)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
        consistency: str = "strong",
    ) -> pa.Table:
        """What `scan` streams, in memory."""

        def rows() -> pa.Table:
            return self.scan(columns, filter, limit, consistency).read_all()

        return while_present(rows, self.catch_up)

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
        consistency: str = "strong",
    ) -> Any:
        """`to_arrow` as a pandas frame."""
        return self.to_arrow(columns, filter, limit, consistency).to_pandas()

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
        consistency: str = "strong",
    ) -> Any:
        """`to_arrow` as a polars frame. Raises UnsupportedError where polars is not installed."""
        try:
            polars = import_module("polars")
        except ImportError as error:
            raise UnsupportedError("polars is not installed: pip install polars") from error
        return polars.from_arrow(self.to_arrow(columns, filter, limit, consistency))

    def count_rows(
        self,
        filter: str | None = None,  # noqa: A002
        consistency: str = "strong",
    ) -> int:
        """How many live rows there are, or how many meet `filter`, a SQL condition."""

        def rows() -> int:
            if filter is None:
                known = self.planned(partial(scan, Query(())), consistency).statistics
                if known.exact and known.num_rows is not None:
                    return known.num_rows
            return sum(batch.num_rows for batch in self.scan((), filter, None, consistency))

        return while_present(rows, self.catch_up)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The live rows of now as a stream of the Arrow PyCapsule interface."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __datafusion_table_provider__(self, session: Any) -> Any:
        """For `ctx.register_table(name, table)` and `ctx.read_table(table)`: the rows as a strong
        reader sees them when a query begins. `memwal_sql.register` also makes the table functions
        and the tables about it known."""
        provider = MountedTable(TableProvider(self.uri, self))
        return provider.__datafusion_table_provider__(session)
