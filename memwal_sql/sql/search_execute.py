"""The searches of a table handle: a plan, executed at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from memwal_native import Predicate
from memwal_sql.errors import UnsupportedError
from memwal_sql.read.planning import stream, while_present
from memwal_sql.search.request import Search
from memwal_sql.sql.filter_text import conjuncts, is_never_true
from memwal_sql.sql.provider import ReadTable
from memwal_sql.sql.search_provider import search_plan


class PresentTable(ReadTable, Protocol):
    """A table whose newest state is read."""

    def catch_up(self) -> None:
        """Read the newest base version from now on."""


def search_rows(
    table: PresentTable,
    schema: pa.Schema,
    search: Search,
    columns: Sequence[str],
    condition: str | None,
    consistency: str,
) -> pa.Table:
    """What a search finds among the rows for which `condition` is true, the best first.

    `schema` are the table's columns for which `search` was made; `columns` are some of them.
    Raises InvalidCallError for a condition that can't be applied before the ranking.
    """
    never = condition is not None and is_never_true(condition, schema)
    predicates = () if condition is None or never else _prefilters(condition, schema)

    def rows() -> pa.Table:
        node = search_plan(table, schema, search, columns, predicates, consistency)
        return node.schema.empty_table() if never else stream(node).read_all()

    return while_present(rows, table.catch_up)


def _prefilters(condition: str, schema: pa.Schema) -> Sequence[Predicate]:
    found = conjuncts(condition, schema, lambda filters, _: ["exact"] * len(filters))
    if found is None:
        raise UnsupportedError(
            f"filter={condition!r} has a part, such as random(), that can't be applied before the "
            "rows are ranked"
        )
    return found
