"""Golden files: cases of SQL, a line `----` and the plan; cases are divided by a line `====`.

`MEMWAL_UPDATE_PLANS=1` writes the golden files anew: read the difference before you commit it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
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


def cases_in(folder: Path) -> list[tuple[Path, int, Case]]:
    """The cases of all golden files of a folder, each with its file and its number there."""
    files = sorted(folder.glob("*.plan"))
    return [(path, number, case) for path in files for number, case in enumerate(read_cases(path))]


def check_plan(path: Path, number: int, plan: str) -> None:
    """Fail unless this is the plan of a case."""
    cases = read_cases(path)
    if os.environ.get("MEMWAL_UPDATE_PLANS") == "1":
        cases[number] = replace(cases[number], plan=plan)
        path.write_text(CASE.join(f"{c.sql}{PLAN}{c.plan}" for c in cases) + "\n")
    assert plan == cases[number].plan


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
