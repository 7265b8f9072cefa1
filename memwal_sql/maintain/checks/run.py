"""`table.check()`: checks every invariant of a table, one after the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta

from exec_nodes.base.thresholds import Thresholds
from memwal_sql.maintain.checks.base import (
    check_base_indexes,
    check_checkpoints,
    check_defaults,
    check_merge_progress,
    check_recorded,
)
from memwal_sql.maintain.checks.findings import (
    CheckReport,
    Finding,
    Probe,
    Severity,
    error,
    first_line,
    info,
)
from memwal_sql.maintain.checks.generations import check_generations
from memwal_sql.maintain.checks.keys import check_base_keys, check_region_keys
from memwal_sql.maintain.checks.manifests import check_manifests
from memwal_sql.maintain.checks.state import CheckState
from memwal_sql.maintain.checks.transactions import check_transactions
from memwal_sql.maintain.checks.wal import check_wal
from memwal_sql.maintain.gc.collector import collect_garbage
from memwal_sql.maintain.progress import Progress, Report
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.paths import MEM_WAL_FOLDER, region_of


def check_leftovers(state: CheckState) -> Iterator[Finding | Probe]:
    """Protocol rule 21: files that the collector would delete do no harm, but take space."""
    yield Probe("collectable files", MEM_WAL_FOLDER, _collectable(state))
    for name in sorted(state.store.list_folders(MEM_WAL_FOLDER)):
        if region_of(name) is None:
            what = f"{name!r} is not a region's folder, and nobody reads it"
            yield info(f"{MEM_WAL_FOLDER}/{name}", what, "move it away")


def _collectable(state: CheckState) -> Iterator[Finding]:
    report = collect_garbage(state.context, dry_run=True, older_than=timedelta(0))
    grouped = report.group_by("kind").aggregate([("bytes", "sum"), ("path", "count")])
    for row in grouped.sort_by("kind").to_pylist():
        count, size = row["path_count"], row["bytes_sum"] or 0
        what = f"{count} of kind {row['kind']!r}, {size:,} bytes, are not needed any more"
        yield info(MEM_WAL_FOLDER, what, "table.collect_garbage() deletes them once old enough")


CHECKS: Mapping[str, Callable[[CheckState], Iterator[Finding | Probe]]] = {
    "manifests": check_manifests,
    "wal": check_wal,
    "transactions": check_transactions,
    "generations": check_generations,
    "base indexes": check_base_indexes,
    "base keys": check_base_keys,
    "region keys": check_region_keys,
    "merge progress": check_merge_progress,
    "region snapshots": check_recorded,
    "checkpoints": check_checkpoints,
    "defaults": check_defaults,
    "leftovers": check_leftovers,
}


class Passes(Thresholds):
    """So often a table is checked: what looks wrong each time is wrong."""

    most = 3


def check_table(
    context: TableContext, latest: Callable[[], BaseTable], report: Report
) -> CheckReport:
    """Run all checks over the base version that `latest` gives.

    A table in use changes during a check: files that are written, merged or collected between two
    requests look damaged. So everything is checked again, and only findings that appear at the same
    place every time count. A time at which the store refused a read did not see all: it rules no
    finding of another time out. What was seen once is proved by no time alone.
    """
    places: set[tuple[str, str]] | None = None
    times = Counter[tuple[str, str]]()
    findings, refused, complete = list[Finding](), "", 0
    for _ in range(Passes.most):
        base = latest()
        state = CheckState(context, base)
        found = [
            finding
            for finding in _run(state, report)
            if places is None
            or finding.severity is Severity.INFO
            or (finding.check, finding.where) in places
        ]
        wrong = {
            (finding.check, finding.where)
            for finding in found
            if finding.severity is not Severity.INFO
        }
        times.update(wrong)
        if state.refused:
            refused = first_line(state.refused[-1])
            findings = findings if complete else found
            continue
        findings, places, complete = found, wrong, complete + 1
        if not places:
            break
    enough = min(2, Passes.most)
    if places != set() and complete < enough:
        findings = [
            finding
            for finding in findings
            if finding.severity is Severity.INFO or times[finding.check, finding.where] >= enough
        ]
        what = f"the store refused a read, so not all was checked: {refused}"
        findings.append(error(context.uri, what, "check again", "reads"))
    findings.sort(key=lambda finding: list(Severity).index(finding.severity))
    return CheckReport(context.uri, base.version, tuple(CHECKS), tuple(findings))


def _run(state: CheckState, report: Report) -> list[Finding]:
    findings: list[Finding] = []
    for done, (name, check) in enumerate(CHECKS.items()):
        report(Progress("check", None, done, len(CHECKS), "checks"))
        findings += Probe(f"the table's {name}", state.context.uri, check(state)).run(
            name, state.note
        )
    report(Progress("check", None, len(CHECKS), len(CHECKS), "checks"))
    return findings
