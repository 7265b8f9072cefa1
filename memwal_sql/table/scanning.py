"""All rows of a table, as a stream, as frames and as a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib import import_module
from typing import Any, TypeVar, cast

import pyarrow as pa

from exec_nodes.evolution.differences import differences, with_ids
from exec_nodes.evolution.known import has_known, known_stream
from exec_nodes.node import Node, opened
from memwal_sql.errors import InvalidCallError, ReopenError, UnsupportedError
from memwal_sql.read.planning import batches, scan, stream, watched
from memwal_sql.read.snapshots import Consistency
from memwal_sql.session.filter_text import datafusion_scan, pushed_filters
from memwal_sql.session.provider import SqlTable
from memwal_sql.session.scalar_functions import analyzed
from memwal_sql.state.base_table import BaseTable
from memwal_sql.table.dataset import TableDataset
from memwal_sql.table.handle import TableHandle, named_columns
from memwal_sql.table.lazy_frame import lazy_frame
from planner.model import Query, Snapshot, TableInfo

T = TypeVar("T")


def polars_frame(
    table: TableHandle,
    columns: Sequence[str] | None,
    filter: str | None,  # noqa: A002
    limit: int | None,
    consistency: Consistency,
    *,
    lazy: bool,
) -> Any:
    """See `Table.to_polars`."""
    try:
        polars = import_module("polars")
    except ImportError as error:
        raise UnsupportedError("polars is not installed: pip install polars") from error
    if not lazy:
        return polars.from_arrow(to_arrow(table, columns, filter, limit, consistency))
    then = table.info
    names = named_columns(columns, then.schema)
    schema = pa.schema([then.schema.field(name) for name in names])

    def scan(
        names: Sequence[str] | None, condition: str | None, most: int | None
    ) -> pa.RecordBatchReader:
        conditions = [f"({text})" for text in (filter, condition) if text is not None]
        names = schema.names if names is None else names
        text = " AND ".join(conditions) or None
        return known_rows(table, then, text, consistency, names, most)

    frame = lazy_frame(polars, schema, scan)
    return frame if limit is None else frame.head(limit)


def to_arrow(
    table: TableHandle,
    columns: Sequence[str] | None,
    condition: str | None,
    limit: int | None,
    consistency: Consistency,
) -> pa.Table:
    """See `Table.to_arrow`."""
    read_all = pa.RecordBatchReader.read_all
    return scanned(table, read_all, columns, condition, limit, consistency)


def dataset(table: TableHandle, condition: str | None, consistency: Consistency) -> TableDataset:
    """See `Table.to_dataset`."""
    then = table.info
    return TableDataset(then.schema, partial(known_rows, table, then, condition, consistency))


def count_rows(table: TableHandle, condition: str | None, consistency: Consistency) -> int:
    """See `Table.count_rows`."""
    if condition is not None:
        return scanned(table, _count, (), condition, None, consistency)

    def plan(snapshot: Snapshot) -> Node:
        return scan(Query(()), snapshot)

    def counted(base: BaseTable) -> int:
        node = plan(table.collector.snapshot(base, consistency, (), plan))
        statistics = node.statistics
        if statistics.exact and statistics.num_rows is not None:
            return statistics.num_rows
        return _count(batches(node))

    return table.collector.query(consistency, counted)


def known_rows(
    table: TableHandle,
    then: TableInfo,
    condition: str | None,
    consistency: Consistency,
    columns: Sequence[str],
    limit: int | None = None,
) -> pa.RecordBatchReader:
    """The rows of `scan`, for a reader that was made when the table had the columns `then`, in
    the types that they had. Raises ReopenError if the table lacks one of them now."""
    read = partial(known_stream, known=pa.schema([then.schema.field(c) for c in columns]))
    return scanned(table, read, columns, condition, limit, consistency, then)


def scanned(
    table: TableHandle,
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
        _check_known(table, then, base.info)
        names = named_columns(columns, schema)
        filters = () if condition is None else pushed_filters(condition, schema)
        if filters is None:
            rows = datafusion_scan(cast(SqlTable, table), names, str(condition), limit, consistency)
            _check_known(table, then, table.info)  # it goes on with the columns of now
            return use(rows)

        def plan(snapshot: Snapshot) -> Node:
            return scan(Query(names, analyzed(filters, snapshot), limit), snapshot)

        ruling = [filter_.predicate for filter_ in filters]
        snapshot = table.collector.snapshot(base, consistency, ruling, plan)
        node = watched(opened(plan(snapshot)), snapshot)
        return use(stream(node, limit))

    return table.collector.query(consistency, scanned)


def _check_known(table: TableHandle, then: TableInfo | None, now: TableInfo) -> None:
    """Raise ReopenError for a reader that knows columns which the table does not have now."""
    if then is None or has_known(now.schema, then.schema, now.field_ids, then.field_ids):
        return
    before, current = (with_ids(each.schema, each.field_ids) for each in (then, now))
    raise ReopenError(
        f"the columns of {table.uri} have changed since this frame or dataset was made "
        f"({differences(before, current)}): make it again"
    )


def _count(rows: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in rows)
