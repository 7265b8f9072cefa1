"""The MemWAL index: merge progress fits the regions and never went back, and the indexes it names
are there. Lance itself keeps index progress at or below merge progress."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from uuid import UUID

from exec_nodes.lance.indexes import indexes_of
from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import Finding, Severity, first_line
from memwal_sql.maintain.checks.state import CheckState
from memwal_sql.storage.base.merge_token import regions_in
from memwal_sql.storage.paths import base_manifest_path
from memwal_sql.storage.records.gc_watermarks import read_watermarks

_RESTORE = "restore the base table to a version that has the progress, such as the newest before"


def check_merge_progress(state: CheckState) -> Iterator[Finding]:
    """Protocol rules 19 and 22."""
    where = f"the MemWAL index of version {state.base.version}"
    details = state.base.details
    regions = {region.region_id: region for region in state.regions}
    for region_id, merged in regions_in(details.merged_generations).items():
        region = regions.get(region_id)
        if region is None:
            if region_id not in state.survey.regions:
                yield Finding(
                    Severity.ERROR,
                    f"generation {merged} of region {region_id} was merged, and the region is gone",
                    where,
                    "restore its folder in _mem_wal from a copy; without one, the rows that were "
                    "not merged are lost",
                )
        elif merged >= region.manifest.current_generation:
            yield Finding(
                Severity.ERROR,
                f"generation {merged} of region {region.name} is said to be merged, and its next "
                f"generation is only {region.manifest.current_generation}",
                where,
                "the region's manifest is an older copy: restore the newest one",
            )
    yield from contained(partial(_watermarks, state, where))
    yield from _unreadable(state)
    yield from _went_back(state, where)
    yield from contained(partial(_indexes, state, where), where)


def _watermarks(state: CheckState, where: str) -> Iterator[Finding]:
    for region_id, watermark in read_watermarks(state.store).items():
        if state.merged(region_id) < watermark.generation:
            yield Finding(
                Severity.ERROR,
                f"the base table holds generations of region {region_id} up to "
                f"{state.merged(region_id)}, and those up to {watermark.generation} were collected",
                where,
                _RESTORE,
            )


def _unreadable(state: CheckState) -> Iterator[Finding]:
    for number, error in state.unreadable_versions.items():
        yield Finding(
            Severity.ERROR,
            f"version {number} can't be read: {first_line(error)}",
            base_manifest_path(number),
            "restore the file from a copy, or let Lance clean up the version",
        )


def _went_back(state: CheckState, where: str) -> Iterator[Finding]:
    most: dict[UUID, tuple[int, int]] = {}
    for version in state.versions:
        if version.details is None or version.version > state.base.version:
            continue
        for region_id, merged in regions_in(version.details.merged_generations).items():
            most[region_id] = max(most.get(region_id, (0, 0)), (merged, version.version))
    for region_id, (merged, number) in most.items():
        if merged > state.merged(region_id):
            yield Finding(
                Severity.WARNING,
                f"version {number} had merged generation {merged} of region {region_id}, this one "
                f"has only {state.merged(region_id)}: the table was restored, or an index commit "
                "erased the progress",
                where,
                "merge: generations that are still there are merged again, with the same result",
            )


def _indexes(state: CheckState, where: str) -> Iterator[Finding]:
    details = state.base.details
    present = {index.name for index in indexes_of(state.base.dataset)}
    for name in details.maintained_indexes:
        if name not in present:
            yield Finding(
                Severity.WARNING,
                f"the index {name!r} is to be maintained, and the base table does not have it",
                where,
                "create it, or drop it with table.drop_index()",
            )
