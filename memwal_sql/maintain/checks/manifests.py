"""Checks of region manifests: every version is readable, none is missing, no number goes back."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from memwal_sql.errors import MemWalError
from memwal_sql.maintain.checks.findings import Finding, Probe, error, info, warning
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.maintain.gc.listing import RegionFiles
from memwal_sql.read.left_out_values import is_lancedbs
from memwal_sql.storage import paths
from memwal_sql.storage.region.versions import RegionManifests

_GROWING = (
    "writer_epoch",
    "replay_after_wal_entry_position",
    "wal_entry_position_last_seen",
    "current_generation",
)
_READ_BY_ALL = "every query reads it, and this package can't write the table"


def check_manifests(state: CheckState) -> Iterator[Finding | Probe]:
    """Protocol rules 3 and 8."""
    for region_id, files in sorted(state.survey.regions.items()):
        folder = paths.region_folder(region_id)
        yield Probe(f"the manifests of {region_id}", folder, _versions(state, files))
    for region in state.regions:
        yield Probe(f"region {region.name}", region.folder, _values(state, region))


def _versions(state: CheckState, files: RegionFiles) -> Iterator[Finding]:
    if not files.manifests:
        folder, what = paths.region_folder(files.region_id), "its creator died"
        remedy = "none needed: the next writer of the region creates it"
        yield info(folder, f"the region has no manifest: {what}", remedy)
    versions = []
    for version in sorted(files.manifests):
        try:
            versions.append(RegionManifests(state.store, files.region_id).read(version))
        except MemWalError as failure:
            state.note(failure)
            yield _unreadable(files, version, failure)
    for before, after in pairwise(sorted(files.manifests)):
        if after != before + 1:
            yield error(
                paths.manifest_folder(files.region_id),
                f"manifest versions {before + 1} to {after - 1} are missing between others",
                "restore them from a copy; without one, delete the older versions",
            )
    for older, newer in pairwise(versions):
        for name in _GROWING:
            if getattr(newer, name) < getattr(older, name):
                yield error(
                    paths.manifest_path(newer.region_id, newer.version),
                    f"{name} goes back from {getattr(older, name)} in version {older.version} to "
                    f"{getattr(newer, name)} in version {newer.version}",
                    "stop the program that wrote it; restore the region's folder from a copy",
                )


def _unreadable(files: RegionFiles, version: int, failure: MemWalError) -> Finding:
    path, newest = paths.manifest_path(files.region_id, version), max(files.manifests)
    if version == newest:
        return error(
            path,
            f"the newest manifest of the region can't be read: {failure}",
            "restore the file from a copy; without one, move it away: the previous version then "
            "counts, and rows flushed since are replayed as far as the WAL still has them",
        )
    remedy = f"none needed: version {newest} counts, and collect_garbage() deletes this one"
    return warning(path, f"an old manifest version can't be read: {failure}", remedy)


def _values(state: CheckState, region: CheckedRegion) -> Iterator[Finding]:
    spec_id, key = region.manifest.region_spec_id, state.base.info.primary_key
    if spec_id and region.spec is None:
        yield warning(
            region.folder,
            f"region {region.name} belongs to region spec {spec_id}, which the table does not "
            "have: every query reads it",
            "restore a version of the base table that has the spec",
        )
    elif region.spec is None or region.values is not None:
        return
    elif not region.spec.reads_only(key):
        yield warning(
            region.folder,
            f"region {region.name} is divided by the columns {list(region.spec.source_columns)}, "
            f"which are not all part of the primary key {list(key)}: {_READ_BY_ALL}",
            "make sure that no key is written with two values of them, and write with native code",
        )
    elif not is_lancedbs(state.context, state.base, region.manifest):
        yield warning(
            region.folder,
            f"region {region.name} has no region values, as native code leaves them out, and an id "
            f"that LanceDB does not derive from values: {_READ_BY_ALL}",
            "write with native code, or merge everything and enable the table again",
        )
