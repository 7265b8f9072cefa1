"""Filters that an index answers, and the others."""

from __future__ import annotations

from collections.abc import Sequence

from exec_nodes.arrow.filter_rows import among
from exec_nodes.base.columns import Filter, RowAddresses
from exec_nodes.base.counting import count
from exec_nodes.sources.source import Source


def indexed_rows(
    source: Source, filters: Sequence[Filter]
) -> tuple[RowAddresses | None, list[Filter]]:
    """The sorted addresses of the rows that meet all filters which an index answers, None if it
    answers none of them; and the other filters. Counts indexed_rows."""
    rows: RowAddresses | None = None
    others = []
    for condition in filters:
        if condition.rows is None:
            others.append(condition)
            continue
        matching = condition.rows(source)
        rows = matching if rows is None else matching[among(matching, rows)]
    if rows is not None:
        count(indexed_rows=len(rows))
    return rows, others
