"""Conditions in SQL as DataFusion hands them to a table."""

from __future__ import annotations

from collections.abc import Sequence

import datafusion
import pyarrow as pa

import memwal_native
from memwal_native import MountedTable
from planner.predicates.condition import predicate_of
from planner.predicates.expr import Predicate


class Said:
    """Asks DataFusion what conditions on the columns of a table say."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.offered: Sequence[memwal_native.Predicate] = ()
        self._context = datafusion.SessionContext()
        self._context.register_table("t", MountedTable(self))

    def supports_filters_pushdown(self, filters: Sequence[memwal_native.Predicate]) -> list[str]:
        """Remember the last offer: what the plan ends up with."""
        self.offered = filters
        return ["inexact"] * len(filters)

    def given(self, condition: str) -> Sequence[memwal_native.Predicate]:
        """The conjuncts that a table is offered; none where no row can meet the condition, nor
        where DataFusion keeps it to itself."""
        self.offered = ()
        self._context.sql(f"SELECT * FROM t WHERE {condition}").optimized_logical_plan()
        return self.offered

    def __call__(self, condition: str) -> tuple[Predicate, ...]:
        """What these conjuncts say."""
        return tuple(map(predicate_of, self.given(condition)))
