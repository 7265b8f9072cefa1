"""The answers that must come out: the same queries over the plain CSV, by DataFusion alone."""

from __future__ import annotations

from collections.abc import Mapping

import datafusion
import pyarrow as pa

from demo.examples import Example
from demo.flights import PRIMARY_KEY, SCHEMA


class Oracle:
    """The final state as an ordinary in-memory table beside the ordinary tables."""

    def __init__(self, state: pa.Table, ordinary: Mapping[str, pa.Table]) -> None:
        self._context = datafusion.SessionContext()
        register_ordinary(self._context, ordinary)
        self._set(state)

    def answer(self, sql: str) -> pa.Table:
        """The rows of a query."""
        return self._context.sql(sql).to_arrow_table()

    def upsert(self, example: Example) -> None:
        """Do what an INSERT into a table with a primary key does: replace rows by key."""
        rows = self.answer(example.source).cast(SCHEMA)
        keys = list(PRIMARY_KEY)
        kept = self.answer("SELECT * FROM flights").cast(SCHEMA)
        kept = kept.join(rows.select(keys), keys=keys, join_type="left anti")
        self._set(pa.concat_tables([kept.select(SCHEMA.names).cast(SCHEMA), rows]))

    def _set(self, state: pa.Table) -> None:
        if self._context.table_exist("flights"):
            self._context.deregister_table("flights")
        self._context.from_arrow(state, "flights")


def register_ordinary(context: datafusion.SessionContext, ordinary: Mapping[str, pa.Table]) -> None:
    """Make the ordinary tables known to a context by their names."""
    for name, table in ordinary.items():
        context.from_arrow(table, name)
