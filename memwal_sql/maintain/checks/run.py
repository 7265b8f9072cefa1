"""`table.check()`: every invariant of a table, looked at one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from memwal_sql.maintain.checks.base_indexes import check_base_indexes
from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import CheckReport, Finding, Severity
from memwal_sql.maintain.checks.generation_indexes import check_generation_indexes
from memwal_sql.maintain.checks.generations import check_blooms, check_generations
from memwal_sql.maintain.checks.leftovers import check_leftovers
from memwal_sql.maintain.checks.manifests import check_manifests
from memwal_sql.maintain.checks.merge_progress import check_merge_progress
from memwal_sql.maintain.checks.recorded import check_checkpoints, check_recorded
from memwal_sql.maintain.checks.region_keys import check_base_keys, check_region_keys
from memwal_sql.maintain.checks.state import CheckState
from memwal_sql.maintain.checks.wal import check_wal
from memwal_sql.maintain.progress import Progress, Report
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext

Check = Callable[[CheckState], Iterator[Finding]]

CHECKS: Mapping[str, Check] = {
    "manifests": check_manifests,
    "wal": check_wal,
    "generations": check_generations,
    "bloom filters": check_blooms,
    "generation indexes": check_generation_indexes,
    "base indexes": check_base_indexes,
    "base keys": check_base_keys,
    "region keys": check_region_keys,
    "merge progress": check_merge_progress,
    "region snapshots": check_recorded,
    "checkpoints": check_checkpoints,
    "leftovers": check_leftovers,
}
_LOOKS = 3


def check_table(
    context: TableContext, latest: Callable[[], BaseTable], report: Report
) -> CheckReport:
    """Run all checks over the base version that `latest` gives.

    A table in use changes while it is looked at: what is written, merged or collected between two
    glances looks damaged. So what seems wrong is looked at again, all of it anew, and only what is
    found at the same place every time counts.
    """
    base = latest()
    findings = _run(CheckState(context, base), report)
    for _ in range(_LOOKS - 1):
        found = {(one.check, one.where) for one in findings if one.severity is not Severity.INFO}
        if not found:
            break
        base = latest()
        again = _run(CheckState(context, base), report)
        findings = [
            one for one in again if one.severity is Severity.INFO or (one.check, one.where) in found
        ]
    order = list(Severity)
    findings.sort(key=lambda one: order.index(one.severity))
    return CheckReport(context.uri, base.version, tuple(CHECKS), tuple(findings))


def _run(state: CheckState, report: Report) -> list[Finding]:
    found: list[Finding] = []
    for done, (name, check) in enumerate(CHECKS.items()):
        report(Progress("check", None, done, len(CHECKS), "checks"))
        found += [replace(one, check=name) for one in contained(partial(check, state))]
    report(Progress("check", None, len(CHECKS), len(CHECKS), "checks"))
    return found
