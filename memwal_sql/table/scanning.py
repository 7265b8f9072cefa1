"""All rows of a table, for programs and for readers of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, TypeVar

import pyarrow as pa
from pyarrow.dataset import Dataset

from exec_nodes.evolution.differences import differences, with_ids
from exec_nodes.evolution.known import has_known, known_stream
from exec_nodes.node import Node
from memwal_native import MountedTable
from memwal_sql.errors import InvalidCallError, ReopenError, UnsupportedError
from memwal_sql.read.planning import batches, opened, scan, stream, watched
from memwal_sql.read.snapshots import Consistency
from memwal_sql.session.filter_text import datafusion_scan, pushed_filters
from memwal_sql.session.provider import TableProvider
from memwal_sql.session.scalar_functions import analyzed
from memwal_sql.state.base_table import BaseTable
from memwal_sql.table.dataset import TableDataset
from memwal_sql.table.lazy_frame import lazy_frame
from memwal_sql.table.writing import WrittenTable
from planner.model import Query, Snapshot, TableInfo

T = TypeVar("T")


class ScannedTable(WrittenTable):
    """Scans as streams, Arrow tables and frames.

    A table has the Arrow PyCapsule interface: pyarrow, polars, DuckDB, pandas and others take the
    table itself, any number of times, and read the current state each time.
    """

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 (the word that Lance and its users use)
        limit: int | None = None,
        consistency: Consistency = "strong",
    ) -> pa.RecordBatchReader:
        """The live rows, streamed in no particular order.

        Args:
            filter: a SQL condition as in WHERE.
            limit: the most rows to return.

        Examples:
            >>> table.scan(["id"], filter="degrees > 10").read_all().to_pylist()
            [{'id': 2}]
        """
        return self._scanned(lambda rows: rows, columns, filter, limit, consistency)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
        consistency: Consistency = "strong",
    ) -> pa.Table:
        """The rows of `scan` as a table in memory."""
        read_all = pa.RecordBatchReader.read_all
        return self._scanned(read_all, columns, filter, limit, consistency)

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
        consistency: Consistency = "strong",
    ) -> Any:
        """`to_arrow` as a pandas frame."""
        return self.to_arrow(columns, filter, limit, consistency).to_pandas()

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
        consistency: Consistency = "strong",
        *,
        lazy: bool = False,
    ) -> Any:
        """`to_arrow` as a polars frame. Raises UnsupportedError where polars is not installed.

        Args:
            lazy: return a LazyFrame, which reads the current rows each time that it is collected:
                only the columns, and as far as conditions and limits reach the scan only the rows,
                that its query needs.
        """
        try:
            polars = import_module("polars")
        except ImportError as error:
            raise UnsupportedError("polars is not installed: pip install polars") from error
        if not lazy:
            return polars.from_arrow(self.to_arrow(columns, filter, limit, consistency))
        then = self.info
        names = self._columns(columns, then.schema)
        schema = pa.schema([then.schema.field(name) for name in names])

        def scan(
            names: Sequence[str] | None, condition: str | None, most: int | None
        ) -> pa.RecordBatchReader:
            conditions = [f"({text})" for text in (filter, condition) if text is not None]
            names = schema.names if names is None else names
            text = " AND ".join(conditions) or None
            return self._known(then, text, consistency, names, most)

        frame = lazy_frame(polars, schema, scan)
        return frame if limit is None else frame.head(limit)

    def to_dataset(
        self,
        filter: str | None = None,  # noqa: A002
        consistency: Consistency = "strong",
    ) -> Dataset:
        """The table as a dataset of pyarrow, for DuckDB and others that read datasets; each scan
        reads the current rows.

        Only the columns that a query names are read, and rows that do not meet its conditions do
        not go over; which parts of the table are read depends on `filter` alone.
        """
        then = self.info
        return TableDataset(then.schema, partial(self._known, then, filter, consistency))

    def count_rows(
        self,
        filter: str | None = None,  # noqa: A002
        consistency: Consistency = "strong",
    ) -> int:
        """The number of live rows, or of those that meet `filter`, a SQL condition.

        Examples:
            >>> table.count_rows("degrees > 10")
            1
        """
        if filter is not None:
            return self._scanned(_count, (), filter, None, consistency)

        def plan(snapshot: Snapshot) -> Node:
            return scan(Query(()), snapshot)

        def counted(base: BaseTable) -> int:
            node = plan(self._collector.snapshot(base, consistency, (), plan))
            statistics = node.statistics
            if statistics.exact and statistics.num_rows is not None:
                return statistics.num_rows
            return _count(batches(node))

        return self._collector.query(consistency, counted)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The current live rows as a stream of the Arrow PyCapsule interface."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __datafusion_table_provider__(self, session: Any) -> Any:
        """For `ctx.register_table(name, table)` and `ctx.read_table(table)`: strong reads, each
        when its query begins. `memwal_sql.register` also registers the table functions and the
        metadata tables."""
        provider = MountedTable(TableProvider(self.uri, self))
        return provider.__datafusion_table_provider__(session)

    def _known(
        self,
        then: TableInfo,
        condition: str | None,
        consistency: Consistency,
        columns: Sequence[str],
        limit: int | None = None,
    ) -> pa.RecordBatchReader:
        """The rows of `scan`, for a reader that was made when the table had the columns `then`, in
        the types that they had. Raises ReopenError if the table lacks one of them now."""
        read = partial(known_stream, known=pa.schema([then.schema.field(c) for c in columns]))
        return self._scanned(read, columns, condition, limit, consistency, then)

    def _scanned(
        self,
        use: Callable[[pa.RecordBatchReader], T],
        columns: Sequence[str] | None,
        condition: str | None,
        limit: int | None,
        consistency: str,
        then: TableInfo | None = None,
    ) -> T:
        """The result of `use` for the rows; it is called again if files were deleted meanwhile."""
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int) or not 0 <= limit < 1 << 63
        ):
            raise InvalidCallError(f"limit={limit!r} must be a number of rows, from 0 to 2**63 - 1")

        def scanned(base: BaseTable) -> T:
            schema = base.info.schema
            self._check_known(then, base.info)
            names = self._columns(columns, schema)
            filters = () if condition is None else pushed_filters(condition, schema)
            if filters is None:
                rows = datafusion_scan(self, names, str(condition), limit, consistency)
                self._check_known(then, self.info)  # it goes on with the columns of now
                return use(rows)

            def plan(snapshot: Snapshot) -> Node:
                return scan(Query(names, analyzed(filters, snapshot), limit), snapshot)

            ruling = [filter_.predicate for filter_ in filters]
            snapshot = self._collector.snapshot(base, consistency, ruling, plan)
            node = watched(opened(plan(snapshot)), snapshot)
            return use(stream(node, limit))

        return self._collector.query(consistency, scanned)

    def _check_known(self, then: TableInfo | None, now: TableInfo) -> None:
        """Raise ReopenError for a reader that knows columns which the table does not have now."""
        if then is None or has_known(now.schema, then.schema, now.field_ids, then.field_ids):
            return
        before, current = (with_ids(each.schema, each.field_ids) for each in (then, now))
        raise ReopenError(
            f"the columns of {self.uri} have changed since this frame or dataset was made "
            f"({differences(before, current)}): make it again"
        )


def _count(rows: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in rows)
