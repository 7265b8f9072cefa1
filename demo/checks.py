"""The checks of the demo: what the table says against what the plain CSV says."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import datafusion
import numpy as np
import pyarrow as pa

import memwal_sql as mw
from demo.compare import difference
from demo.examples import Example
from demo.flights import PRIMARY_KEY
from demo.oracle import Oracle

KEYS_TO_GET = 10_000
EVERYTHING = "SELECT * FROM flights"


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
    wanted = expected.take(pa.array(np.sort(chosen)))
    keys = wanted.select(list(PRIMARY_KEY))
    start = time.perf_counter()
    found = table.get(keys)
    seconds = time.perf_counter() - start
    problem = difference(found.sort_by(order), wanted, ordered=True)
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
