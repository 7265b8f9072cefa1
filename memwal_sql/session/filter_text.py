"""Conditions as text, and `table.scan` with one. DataFusion splits them, so that they mean what
they mean in SQL."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial

import datafusion
import pyarrow as pa
from datafusion.expr import EmptyRelation, TableScan

import memwal_native
from exec_nodes.base.brief import shortened
from exec_nodes.base.interrupts import is_native
from exec_nodes.base.threads import beyond_signals
from memwal_native import MountedTable
from memwal_sql.arguments import check_expression, date_remedy, parsed_expression
from memwal_sql.errors import InvalidCallError, UnsupportedError
from memwal_sql.session.errors import original_error
from memwal_sql.session.provider import SqlTable, TableProvider, answers
from memwal_sql.session.scalar_functions import register_scalar_functions
from planner.predicates.condition import Condition, condition_of, predicate_of
from planner.predicates.expr import Predicate

Answers = Callable[[Sequence[memwal_native.Predicate], pa.Schema], list[str]]
_NAME = "scanned"
_UNKNOWN = re.compile(r'No field named "?(.+?)"?\.(?:\s|$)')
# Matches errors of the table that is read, or of the machine.
_FROM_OUTSIDE = re.compile(r"(FFI|External|Object Store|IO) error|Resources exhausted")
_STEP = re.compile(r"^(?:DataFusion error: )?Optimizer rule '\w+' failed\ncaused by\n")
_REGEX = re.compile(r"[Rr]egular expression|regex parse error|CompiledTooBig|size limit")


def conjuncts(
    condition: str, schema: pa.Schema, answers: Answers
) -> Sequence[memwal_native.Predicate] | None:
    """The conjuncts of a condition on the columns of `schema`; None unless a table that gives
    `answers` to the offered filters applies all of them exactly.

    Raises InvalidCallError when the condition does not parse or names an unknown column.
    """
    probe = _Probe(schema, answers)
    plan = _plan(condition, probe)
    # The optimizer offers filters in several passes; the last offer must be that of the final plan.
    if not isinstance(plan, TableScan) or len(plan.filters()) != len(probe.offered):
        return None
    return probe.offered


def implied(condition: str, schema: pa.Schema) -> list[Predicate]:
    """Conjuncts that every row meets for which `condition` is true: all but those that DataFusion
    offers to no table.

    Raises InvalidCallError when it does not parse or names an unknown column.
    """
    probe = _Probe(schema, lambda filters, _: ["inexact"] * len(filters))
    _plan(condition, probe)
    return [predicate_of(predicate) for predicate in probe.offered]


def is_never_true(condition: str, schema: pa.Schema) -> bool:
    """Whether DataFusion finds that no row can meet the condition, such as `1 = 0` or `id =
    NULL`."""
    probe = _Probe(schema, lambda filters, _: ["exact"] * len(filters))
    return isinstance(_plan(condition, probe), EmptyRelation)


def prefilters(condition: str, schema: pa.Schema) -> tuple[Condition, ...] | None:
    """The conjuncts of a condition, all to be applied before the ranking; None if no row can meet
    it.

    Raises InvalidCallError for a condition that can't be applied before the ranking.
    """
    if is_never_true(condition, schema):
        return None
    predicates = conjuncts(condition, schema, lambda filters, _: ["exact"] * len(filters))
    if predicates is None:
        raise UnsupportedError(
            f"filter={condition!r} has a part, such as random(), that can't be applied before the "
            "ranking"
        )
    return tuple(condition_of(predicate, schema) for predicate in predicates)


def filtered(frame: datafusion.DataFrame, condition: str) -> datafusion.DataFrame:
    """The rows of `frame` for which the condition is true."""
    check_expression(condition)
    with condition_errors(condition):
        return frame.filter(frame.parse_sql_expr(condition))


@contextmanager
def condition_errors(condition: str) -> Iterator[None]:
    """A context in which DataFusion's errors about a condition are InvalidCallErrors that name
    it."""
    try:
        yield
    except Exception as error:  # DataFusion raises nothing more specific
        original = original_error(error)
        outside = _FROM_OUTSIDE.search(str(error)) and not _REGEX.search(str(error))
        if original is None and is_native(error) and not outside:
            reason = shortened(_reason(str(error), condition)) + date_remedy(str(error))
            original = InvalidCallError(f"filter={condition!r} can't be used: {reason}")
        if original is None or original is error:
            raise
        raise original from error


def _reason(message: str, condition: str) -> str:
    """DataFusion's message, without the internal name of the table and of what DataFusion did."""
    message = _STEP.sub("", message).replace(f"{_NAME}.", "")
    unknown = _UNKNOWN.search(message)
    if unknown is not None and f'"{unknown[1]}"' in condition:
        message += f" Write texts in single quotes, as '{unknown[1]}'."
    return message


def _frame(context: datafusion.SessionContext) -> datafusion.DataFrame:
    # DataFusion runs signal handlers here, and turns what they raise into a KeyError.
    return beyond_signals(partial(context.table, _NAME))


def _session(table: MountedTable) -> datafusion.SessionContext:
    context = datafusion.SessionContext()
    register_scalar_functions(context)
    context.register_table(_NAME, table)
    return context


def _plan(condition: str, probe: _Probe) -> object:
    context = _session(MountedTable(probe))
    frame = filtered(_frame(context), condition)
    with condition_errors(condition):
        return frame.optimized_logical_plan().to_variant()


class _Probe:
    """A table without rows that remembers the conjuncts that DataFusion's optimizer offers it."""

    def __init__(self, schema: pa.Schema, answers: Answers) -> None:
        self.schema = schema
        self.offered: Sequence[memwal_native.Predicate] = ()
        self._answers = answers

    def supports_filters_pushdown(self, filters: Sequence[memwal_native.Predicate]) -> list[str]:
        """The answers that a real table gives."""
        self.offered = filters
        return self._answers(filters, self.schema)


def pushed_filters(condition: str, schema: pa.Schema) -> tuple[Condition, ...] | None:
    """The conjuncts of a condition, if every source applies all of them as DataFusion would.

    Raises InvalidCallError when it does not parse or names an unknown column.
    """
    if not isinstance(condition, str):
        raise InvalidCallError(f"filter={condition!r} must be a SQL condition as text")
    # Without functions it means the same each time; with `now()` it would not.
    read = conjuncts if _calls_functions(condition) else _known_conjuncts
    predicates = read(condition, schema, answers)
    if predicates is None:
        return None
    return tuple(condition_of(predicate, schema) for predicate in predicates)


@lru_cache(maxsize=256)
def _calls_functions(condition: str) -> bool:
    parsed = parsed_expression(condition)
    return parsed is None or parsed.calls_functions()


def datafusion_scan(
    table: SqlTable,
    columns: Sequence[str],
    condition: str,
    limit: int | None,
    consistency: str,
) -> pa.RecordBatchReader:
    """The live rows for which `condition` is true, streamed, by a plan of DataFusion. If all
    filters are pushed down, `pushed_filters` saves the milliseconds of its planning."""
    context = _session(MountedTable(TableProvider(None, table, consistency)))
    frame = filtered(_frame(context), condition)
    if limit is not None:
        frame = frame.limit(limit)
    schema = pa.schema([table.schema.field(name) for name in columns])
    return pa.RecordBatchReader.from_batches(schema, _batches(context, frame, schema, condition))


_known_conjuncts = lru_cache(maxsize=256)(conjuncts)


def _batches(
    context: datafusion.SessionContext,
    frame: datafusion.DataFrame,
    schema: pa.Schema,
    condition: str,
) -> Iterator[pa.RecordBatch]:
    # An empty projection must still carry the number of rows.
    quoted = (name.replace('"', '""') for name in schema.names)
    names = [datafusion.col(f'"{name}"') for name in quoted] or [datafusion.lit(1)]
    with condition_errors(condition):
        for part in frame.select(*names).execute_stream():
            batch = part.to_pyarrow()
            yield batch.select([]) if not schema.names else batch.cast(schema)
    del context  # the mounted table needs its session for as long as the stream runs
