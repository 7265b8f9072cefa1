"""What the collector would delete: no harm, but room."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import Finding, Severity
from memwal_sql.maintain.checks.state import CheckState
from memwal_sql.maintain.gc.collector import collect_garbage
from memwal_sql.storage.paths import MEM_WAL_FOLDER, region_of


def check_leftovers(state: CheckState) -> Iterator[Finding]:
    """Protocol rule 21."""
    yield from contained(partial(_collectable, state))
    for name in sorted(state.store.list_folders(MEM_WAL_FOLDER)):
        if region_of(name) is None:
            yield Finding(
                Severity.INFO,
                f"{name!r} is no region's folder, and nobody reads it",
                f"{MEM_WAL_FOLDER}/{name}",
                "move it away",
            )


def _collectable(state: CheckState) -> Iterator[Finding]:
    report = collect_garbage(state.context, dry_run=True, older_than=timedelta(0))
    grouped = report.group_by("kind").aggregate([("bytes", "sum"), ("path", "count")])
    for row in grouped.sort_by("kind").to_pylist():
        count, size = row["path_count"], row["bytes_sum"] or 0
        yield Finding(
            Severity.INFO,
            f"{count} of kind {row['kind']!r}, {size:,} bytes, are not needed any more",
            MEM_WAL_FOLDER,
            "table.collect_garbage() deletes what is old enough",
        )
