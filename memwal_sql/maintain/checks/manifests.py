"""Region manifests: every version can be read, none is missing between two, nothing goes back."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from memwal_sql.errors import MemWalError
from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import Finding, Severity
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.maintain.gc.listing import RegionFiles
from memwal_sql.read.left_out_values import is_lancedbs
from memwal_sql.storage import paths
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import RegionManifests
from planner.regions.spec import RegionSpec

_GROWING = (
    "writer_epoch",
    "replay_after_wal_entry_position",
    "wal_entry_position_last_seen",
    "current_generation",
)


def check_manifests(state: CheckState) -> Iterator[Finding]:
    """Protocol rules 3 and 8."""
    for region_id in sorted(state.survey.regions):
        files = state.survey.regions[region_id]
        if not files.manifests:
            yield Finding(
                Severity.INFO,
                "the region has no manifest: whoever was creating it died",
                paths.region_folder(region_id),
                "none needed: the next writer of the region makes it",
            )
            continue
        yield from _gaps(files)
        versions = []
        for version in sorted(files.manifests):
            try:
                versions.append(RegionManifests(state.store, region_id).read(version))
            except MemWalError as error:
                yield _unreadable(files, version, error)
        for older, newer in pairwise(versions):
            yield from _steps_back(older, newer)
    for region in state.regions:
        spec_id = region.manifest.region_spec_id
        if spec_id and region.spec is None:
            yield Finding(
                Severity.WARNING,
                f"region {region.name} belongs to region spec {spec_id}, which the table does not "
                "have: it is read by every query",
                region.folder,
                "restore a version of the base table that has the spec",
            )
        elif region.spec is not None and region.values is None:
            look = partial(_without_values, state, region, region.spec)
            yield from contained(look, region.folder)


def _without_values(
    state: CheckState, region: CheckedRegion, spec: RegionSpec
) -> Iterator[Finding]:
    key = state.base.info.primary_key
    if not spec.reads_only(key):
        yield Finding(
            Severity.WARNING,
            f"region {region.name} is made by the columns {list(spec.source_columns)}, which are "
            f"not all part of the primary key {list(key)}: it is read by every query, and this "
            "package can't write the table",
            region.folder,
            "see to it that no key is written with two values of them, and write with native code",
        )
    elif not is_lancedbs(state.context, state.base, region.manifest):
        yield Finding(
            Severity.WARNING,
            f"region {region.name} has no region values, as native code leaves them out, and an id "
            "that LanceDB does not derive from values: it is read by every query, and this package "
            "can't write the table",
            region.folder,
            "write with native code, or merge everything and enable the table anew",
        )


def _gaps(files: RegionFiles) -> Iterator[Finding]:
    for older, newer in pairwise(sorted(files.manifests)):
        if newer != older + 1:
            yield Finding(
                Severity.ERROR,
                f"manifest versions {older + 1} to {newer - 1} are missing between others",
                paths.manifest_folder(files.region_id),
                "restore them from a copy; if there is none, delete the older versions",
            )


def _unreadable(files: RegionFiles, version: int, error: MemWalError) -> Finding:
    path = paths.manifest_path(files.region_id, version)
    if version == max(files.manifests):
        return Finding(
            Severity.ERROR,
            f"the newest manifest of the region can't be read: {error}",
            path,
            "restore the file from a copy; without one, move it away: the version before counts "
            "then, and what was flushed since is replayed as far as the WAL is there",
        )
    return Finding(
        Severity.WARNING,
        f"an old manifest version can't be read: {error}",
        path,
        f"none needed: version {max(files.manifests)} counts, and collect_garbage() deletes it",
    )


def _steps_back(older: RegionManifest, newer: RegionManifest) -> Iterator[Finding]:
    for name in _GROWING:
        before, after = getattr(older, name), getattr(newer, name)
        if after < before:
            yield Finding(
                Severity.ERROR,
                f"{name} goes back from {before} in version {older.version} to {after} in version "
                f"{newer.version}",
                paths.manifest_path(newer.region_id, newer.version),
                "stop the program that wrote it; restore the region's folder from a copy",
            )
