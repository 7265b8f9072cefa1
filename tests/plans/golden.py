"""Golden files: cases of SQL, a line `----` and the plan; cases are divided by a line `====`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import datafusion
import pyarrow as pa

CASE = "\n====\n"
PLAN = "\n----\n"
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
_MANUAL = re.compile(r"region_([0-9a-f]{8})\b")


@dataclass(frozen=True)
class Case:
    """One query and its plan."""

    sql: str
    plan: str


def read_cases(path: Path) -> list[Case]:
    """The cases of a golden file, in order."""
    cases = []
    for text in path.read_text().strip().split(CASE):
        sql, _, plan = (text.rstrip() + "\n").partition(PLAN)
        cases.append(Case(sql.strip(), plan.strip("\n")))
    return cases


def write_cases(path: Path, cases: list[Case]) -> None:
    """Write a golden file; its cases in order."""
    path.write_text(CASE.join(f"{c.sql}{PLAN}{c.plan}" for c in cases) + "\n")


def physical_plan(context: datafusion.SessionContext, sql: str) -> str:
    """The physical plan of a query as EXPLAIN shows it, normalised."""
    result = context.sql(f"EXPLAIN {sql}").to_arrow_table()
    plans = dict(zip(result["plan_type"].to_pylist(), result["plan"].to_pylist(), strict=True))
    return normalise(plans["physical_plan"])


def normalise(plan: str) -> str:
    """The plan without what the mount adds, and without ids that differ from run to run."""
    plan = plan.replace("FFI_ExecutionPlan: ", "")
    plan = re.sub(r", number_of_children=\d+", "", plan)
    plan = re.sub(r"(gen=-1\], version)=\d+", r"\1=<n>", plan)
    plan = _UUID.sub("<uuid>", plan)
    plan = re.sub(r"input_partitions=\d+", "input_partitions=<processors>", plan)
    names: dict[str, str] = {}
    for found in _MANUAL.findall(plan):
        names.setdefault(found, f"<id {len(names) + 1}>")
    for found, name in names.items():
        plan = plan.replace(f"region_{found}", f"region_{name}")
    return plan.rstrip()


def sorted_rows(table: pa.Table) -> list[tuple[object, ...]]:
    """The rows of a result, in an order that does not depend on the plan."""
    rows: Iterator[tuple[object, ...]] = zip(*(c.to_pylist() for c in table.columns), strict=True)
    return sorted(rows, key=repr)
