"""Conditions as text, taken apart by DataFusion, so that they mean what they mean in SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import datafusion
import pyarrow as pa
from datafusion.expr import EmptyRelation, TableScan

from memwal_native import MountedTable, Predicate
from memwal_sql.errors import InvalidCallError

Answers = Callable[[Sequence[Predicate], pa.Schema], list[str]]
_NAME = "scanned"


def conjuncts(condition: str, schema: pa.Schema, answers: Answers) -> Sequence[Predicate] | None:
    """The conjuncts of a condition on the columns of `schema`; None unless a table that gives
    `answers` to offers of filters applies every one of them exactly.

    Raises InvalidCallError when the condition does not parse or names an unknown column.
    """
    probe = _Probe(schema, answers)
    plan = _plan(condition, probe)
    # Offers are made in several passes; the last one must be what the plan ended up with.
    if not isinstance(plan, TableScan) or len(plan.filters()) != len(probe.offered):
        return None
    return probe.offered


def is_never_true(condition: str, schema: pa.Schema) -> bool:
    """Whether DataFusion sees that no row can meet the condition, as of `1 = 0` and `id = NULL`."""
    probe = _Probe(schema, lambda filters, _: ["exact"] * len(filters))
    return isinstance(_plan(condition, probe), EmptyRelation)


def filtered(frame: datafusion.DataFrame, condition: str) -> datafusion.DataFrame:
    """The rows of `frame` for which the condition is true."""
    try:
        return frame.filter(frame.parse_sql_expr(condition))
    except Exception as error:  # DataFusion raises nothing more specific
        raise InvalidCallError(f"filter={condition!r} can't be used: {error}") from error


def _plan(condition: str, probe: _Probe) -> object:
    context = datafusion.SessionContext()
    context.register_table(_NAME, MountedTable(probe))
    return filtered(context.table(_NAME), condition).optimized_logical_plan().to_variant()


class _Probe:
    """A table without rows that remembers the conjuncts that DataFusion's optimizer offers it."""

    def __init__(self, schema: pa.Schema, answers: Answers) -> None:
        self.schema = schema
        self.offered: Sequence[Predicate] = ()
        self._answers = answers

    def supports_filters_pushdown(self, filters: Sequence[Predicate]) -> list[str]:
        """As a real table answers."""
        self.offered = filters
        return self._answers(filters, self.schema)
