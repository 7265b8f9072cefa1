"""Recorded region states and checkpoints: what they need is there."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from functools import partial
from typing import Any
from uuid import UUID

from memwal_sql.errors import MemWalError, TornEntryError
from memwal_sql.maintain.checkpoint.records import checkpoint_names, find
from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import Finding, Severity, first_line, lacking_in
from memwal_sql.maintain.checks.state import CheckState
from memwal_sql.read.pinned import PinnedRegion
from memwal_sql.state.replay import read_listed
from memwal_sql.storage.base.memwal_index import IndexDetails
from memwal_sql.storage.base.refs import tags_of
from memwal_sql.storage.base.versions import recorded_manifests
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.wal.log import Wal


def check_recorded(state: CheckState) -> Iterator[Finding]:
    """Protocol rules 18 and 23."""
    details = state.base.details
    where = f"the MemWAL index of version {state.base.version}"
    if details.snapshot_ts_millis:
        found = _decoded(state, details)
        if isinstance(found, MemWalError):
            remedy = "table.snapshot_regions() makes it anew"
            yield Finding(Severity.ERROR, str(found), where, remedy)
        elif found is None:
            yield Finding(
                Severity.WARNING,
                "the file of the region snapshot is gone, as a progress mark leaves it behind: "
                "eventual readers read the manifests",
                where,
                "table.snapshot_regions() makes it anew",
            )
        else:
            yield from _gone(state, found, where)
    for version in state.versions:
        if version.details is not None and version.version != state.base.version:
            where = f"version {version.version} of the base table"
            yield from contained(partial(_of_version, state, version.details, where), where)


def _gone(state: CheckState, manifests: list[RegionManifest], where: str) -> Iterator[Finding]:
    """The regions without a folder; the check of merge progress names those that were merged."""
    for manifest in manifests:
        region_id = manifest.region_id
        if region_id not in state.survey.regions and not state.merged(region_id):
            yield Finding(
                Severity.ERROR,
                f"region {region_id} is recorded, and its folder is gone",
                where,
                "restore its folder in _mem_wal from a copy; without one, its rows are lost",
            )


def _of_version(state: CheckState, details: IndexDetails, where: str) -> Iterator[Finding]:
    found = _decoded(state, details)
    if isinstance(found, MemWalError):
        wrong, files = first_line(found), "file"
    elif lost := _lost(state, found or [], details.merged_generations):
        wrong, files = f"{', '.join(lost)} are missing", "folders"
    else:
        return
    yield Finding(
        Severity.WARNING,
        f"{where.partition(' of ')[0]} can't be read as it was: {wrong}",
        where,
        f"restore the {files} from a copy, or let Lance clean up the version",
    )


def check_checkpoints(state: CheckState) -> Iterator[Finding]:
    """Document 4's snapshots: every file of a checkpoint that has not ended."""
    tags: Container[str] | None = None
    try:
        tags = tags_of(state.store, state.base.dataset)
    except MemWalError as error:
        where, remedy = "_refs/tags", "restore the tag's file from a copy, or delete it"
        yield Finding(Severity.ERROR, f"tags can't be read: {first_line(error)}", where, remedy)
    for name in checkpoint_names(state.store):
        yield from contained(partial(_checkpoint, state, name, tags))


def _checkpoint(state: CheckState, name: str, tags: Container[str] | None) -> Iterator[Finding]:
    checkpoint = find(state.store, name)
    if checkpoint is None or not checkpoint.is_live(time.time()):
        return
    where = f"the checkpoint {name!r}"
    if tags is not None and checkpoint.tag not in tags:
        yield Finding(
            Severity.WARNING,
            f"the tag {checkpoint.tag} is gone: Lance may clean up version "
            f"{checkpoint.version}, which the checkpoint reads",
            where,
            f"tag version {checkpoint.version} as {checkpoint.tag}, or drop the checkpoint",
        )
    if checkpoint.version not in {version.version for version in state.versions}:
        yield Finding(
            Severity.ERROR,
            f"version {checkpoint.version} of the base table is gone",
            where,
            "drop the checkpoint",
        )
        return
    pinned = checkpoint.snapshot()
    lost = _lost(state, [one.manifest for one in pinned.regions], {})
    for region in pinned.regions:
        files = state.survey.regions.get(region.manifest.region_id)
        first = region.manifest.replay_after_wal_entry_position + 1
        gone = lacking_in(first, region.wal_end, () if files is None else files.wal)
        lost += [f"WAL entries {gone} of {region.manifest.region_id}"] if gone else []
        yield from _damaged(state, region, where)
    if lost:
        yield Finding(
            Severity.ERROR,
            f"files that it holds are missing: {', '.join(lost)}",
            where,
            "restore them from a copy, or drop the checkpoint",
        )


def _damaged(state: CheckState, region: PinnedRegion, where: str) -> Iterator[Finding]:
    """The WAL entries that a checkpoint holds: all of them were complete, or skipped by a fence
    below its end."""
    region_id = region.manifest.region_id
    files = state.survey.regions.get(region_id)
    covered = range(region.manifest.replay_after_wal_entry_position + 1, region.wal_end)
    wrong: dict[int, MemWalError] = {}
    listed = sorted(one for one in (() if files is None else files.wal) if one in covered)
    for position, entry in read_listed(Wal(state.store, region_id), listed):
        if isinstance(entry, MemWalError):
            wrong[position] = entry
        elif entry is not None:
            for skipped in entry.skipped:
                if isinstance(wrong.get(skipped), TornEntryError):
                    del wrong[skipped]
    for error in wrong.values():
        yield Finding(
            Severity.ERROR,
            f"a WAL entry that it holds can't be read: {error}",
            where,
            "restore the file from a copy, or drop the checkpoint",
        )


def _decoded(state: CheckState, details: Any) -> list[RegionManifest] | MemWalError | None:
    try:
        return recorded_manifests(state.store, details, state.base.info.region_specs)
    except MemWalError as error:
        return error


def _lost(
    state: CheckState, manifests: list[RegionManifest], merged: dict[UUID, int] | Any
) -> list[str]:
    """The generations above `merged` whose folders are missing."""
    lost = []
    for manifest in manifests:
        files = state.survey.regions.get(manifest.region_id)
        for one in manifest.flushed_generations:
            needed = one.generation > merged.get(manifest.region_id, 0)
            if needed and (files is None or one.path not in files.generations):
                lost.append(f"{manifest.region_id}/{one.path}")
    return lost
