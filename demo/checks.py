"""The checks of the demo: what the table says against what the plain CSV says."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import datafusion
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import memwal_sql as mw
from demo.examples import Example
from demo.flights import PRIMARY_KEY, SCHEMA

KEYS_TO_GET = 10_000
EVERYTHING = "SELECT * FROM flights"

RELATIVE_TOLERANCE = 1e-9
"""Sums of floating point numbers depend on the order of their terms."""


@dataclass(frozen=True)
class Outcome:
    """One thing that was checked. `problem` is None if it came out right."""

    title: str
    seconds: float
    problem: str | None
    plan: str | None = None
    answer: pa.Table | None = None


def check_table(table: mw.Table, expected: pa.Table) -> Iterator[Outcome]:
    """Compare every live row with `expected`, by a scan, and some of them by `get`."""
    order = [(name, "ascending") for name in PRIMARY_KEY]
    expected = expected.sort_by(order)

    start = time.perf_counter()
    actual = table.scan().read_all()
    seconds = time.perf_counter() - start
    problem = difference(actual.sort_by(order), expected, ordered=True)
    yield Outcome(f"table.scan: {actual.num_rows:,} rows, column by column", seconds, problem)

    chosen = np.random.default_rng(1).choice(
        expected.num_rows, min(KEYS_TO_GET, expected.num_rows), replace=False
    )
    live_rows = expected.take(pa.array(np.sort(chosen)))
    keys = live_rows.select(list(PRIMARY_KEY))
    start = time.perf_counter()
    rows_read = table.get(keys)
    seconds = time.perf_counter() - start
    problem = difference(rows_read.sort_by(order), live_rows, ordered=True)
    yield Outcome(f"table.get: {keys.num_rows:,} keys at once", seconds, problem)


def check_reopened(uri: str, oracle: Oracle) -> Outcome:
    """Open the table as another program would: rows that are not flushed come from the WAL."""
    start = time.perf_counter()
    actual = mw.open_table(uri).scan().read_all()
    seconds = time.perf_counter() - start
    problem = difference(actual, oracle.answer(EVERYTHING), ordered=False)
    return Outcome(f"opened anew: {actual.num_rows:,} rows", seconds, problem)


def run_example(context: datafusion.SessionContext, example: Example, oracle: Oracle) -> Outcome:
    """Explain and run one file, and compare its answer.

    After an INSERT the whole table is compared; a statement about the table itself (EXPLAIN,
    metadata) has no counterpart in the plain CSV and has to answer with at least one row.
    """
    plan = None if example.explains else explain(context, example.sql)
    start = time.perf_counter()
    answer = context.sql(example.sql).to_arrow_table()
    seconds = time.perf_counter() - start
    if example.writes:
        oracle.upsert(example)
        now = context.sql(EVERYTHING).to_arrow_table()
        problem = difference(now, oracle.answer(EVERYTHING), ordered=False)
    elif example.explains or example.reads_metadata:
        problem = None if answer.num_rows else "no rows"
    else:
        problem = difference(answer, oracle.answer(example.sql), ordered=example.ordered)
    if example.explains:
        plan, answer = plan_text(answer), None
    return Outcome(example.title, seconds, problem, plan, answer)


def explain(context: datafusion.SessionContext, sql: str) -> str:
    """The physical plan that DataFusion would run."""
    return plan_text(context.sql(f"EXPLAIN {sql}").to_arrow_table())


def plan_text(explained: pa.Table) -> str:
    """The physical plan out of an EXPLAIN's answer, with our nodes under their own names."""
    plans = dict(zip(*(column.to_pylist() for column in explained.columns), strict=True))
    text = plans.get("physical_plan") or plans["Plan with Metrics"]
    return re.sub(r"FFI_ExecutionPlan: |, number_of_children=\d+", "", str(text)).rstrip()


def difference(actual: pa.Table, expected: pa.Table, *, ordered: bool) -> str | None:
    """Say how `actual` differs from `expected`, or None if it does not.

    Without `ordered`, rows are compared as a multiset. Floating point columns may differ by
    `RELATIVE_TOLERANCE`; types of another width (int32 and int64) are equal if their values are.
    """
    if actual.column_names != expected.column_names:
        return f"columns {actual.column_names} instead of {expected.column_names}"
    if actual.num_rows != expected.num_rows:
        return f"{actual.num_rows} rows instead of {expected.num_rows}"
    if not ordered:
        actual, expected = _sorted(actual), _sorted(expected)
    for name in expected.column_names:
        same = _same(actual[name], expected[name])
        if not same.all():
            row = int(np.argmin(same))
            return (
                f"{name} is {actual[name][row].as_py()!r} instead of "
                f"{expected[name][row].as_py()!r} in row {row}"
            )
    return None


def _sorted(table: pa.Table) -> pa.Table:
    # Floats last: two that differ in their last digit only must not decide the order alone.
    floats = [
        name for name in table.column_names if pa.types.is_floating(table.schema.field(name).type)
    ]
    exact = [name for name in table.column_names if name not in floats]
    return table.sort_by([(name, "ascending") for name in [*exact, *floats]])


def _same(actual: pa.ChunkedArray, expected: pa.ChunkedArray) -> npt.NDArray[np.bool_]:
    """One bool for each row; null equals null."""
    if pa.types.is_floating(expected.type):
        left, right = (column.cast(pa.float64()).to_numpy() for column in (actual, expected))
        close: npt.NDArray[np.bool_] = np.isclose(
            left, right, RELATIVE_TOLERANCE, 0.0, equal_nan=True
        )
        null_alike = actual.is_valid().to_numpy() == expected.is_valid().to_numpy()
        return np.asarray(close & null_alike, dtype=np.bool_)
    equal = pc.equal(actual.cast(expected.type), expected)
    both_null = pc.and_(actual.is_null(), expected.is_null())
    return np.asarray(
        pc.fill_null(pc.or_kleene(equal, both_null), False).to_numpy(), dtype=np.bool_
    )


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
