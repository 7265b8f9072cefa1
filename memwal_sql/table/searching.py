"""The searches of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from memwal_sql.read.planning import stream
from memwal_sql.search.options import Rerank
from memwal_sql.search.request import Search
from memwal_sql.search.rerank import check_rerank, reranked
from memwal_sql.session.filter_text import prefilters
from memwal_sql.session.scalar_functions import analyzed
from memwal_sql.state.base_table import BaseTable
from memwal_sql.table.handle import TableHandle, named_columns


def searched(
    table: TableHandle,
    search: Callable[[pa.Schema], Search],
    condition: str | None,
    columns: Sequence[str] | None,
    consistency: str,
    rerank: Rerank | None,
    k: int,
) -> pa.Table:
    """The results of a search among the rows for which `condition` is true, the best first: the
    `k` that `rerank` scores highest, if it is given."""

    def run_search(base: BaseTable) -> pa.Table:
        schema = base.info.schema
        request, names = search(schema), named_columns(columns, schema)
        if rerank is not None:
            check_rerank(rerank, request)
        filters = () if condition is None else prefilters(condition, schema)
        if filters is None:  # no row meets the condition
            node = request.plan(names, (), table.collector.snapshot(base, consistency))
            return node.schema.empty_table()
        ruling = () if request.counts_all else [filter_.predicate for filter_ in filters]
        snapshot = table.collector.snapshot(base, consistency, ruling)
        return stream(request.plan(names, analyzed(filters, snapshot), snapshot)).read_all()

    rows = table.collector.query(consistency, run_search)
    return rows if rerank is None else reranked(rows, rerank, k)
