"""Checks of the base table: its MemWAL index fits the regions, and the files of its indexes,
versions and checkpoints exist. Lance itself keeps index progress at or below merge progress."""

from __future__ import annotations

import time
from collections.abc import Container, Iterable, Iterator, Mapping
from uuid import UUID

from exec_nodes.lance.indexes import indexes_of
from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.maintain.checkpoint.records import checkpoint_names, find
from memwal_sql.maintain.checks.findings import (
    Finding,
    Probe,
    error,
    first_line,
    lacking_in,
    warning,
)
from memwal_sql.maintain.checks.state import CheckState
from memwal_sql.state.defaults import default_of
from memwal_sql.storage.base.index_identity import is_own
from memwal_sql.storage.base.manifest import CLONE
from memwal_sql.storage.base.memwal_index import IndexDetails
from memwal_sql.storage.base.merge_token import regions_in
from memwal_sql.storage.base.refs import tags_of
from memwal_sql.storage.base.versions import BaseVersion, recorded_manifests
from memwal_sql.storage.objects.memory import is_in_memory
from memwal_sql.storage.paths import base_manifest_path
from memwal_sql.storage.records.gc_watermarks import read_watermarks
from memwal_sql.storage.records.table import read_record
from memwal_sql.storage.region.manifest import RegionManifest
from planner.regions.values import region_name

_REGION_FROM_A_COPY = "restore its folder in _mem_wal from a copy; without one, its rows are lost"
_NEW_RECORD = "table.snapshot_regions() makes a new one"


def check_base_indexes(state: CheckState) -> Iterator[Finding]:
    """Queries read the files of an index, and fail without them."""
    if is_in_memory(state.context.uri):
        return  # only Lance can list its files of a table in memory
    for index in indexes_of(state.base.dataset):
        for segment in index.segments:
            expected = segment.size_bytes
            if not expected or segment.base_id is not None:
                continue  # in the manifest, unrecorded, or in the folder of another table
            folder = f"_indices/{segment.uuid}"
            size = sum(file.size for file in state.store.list(folder))
            if size < expected:
                yield error(
                    folder,
                    f"the index {index.name!r} of the base table has {size} of {expected} bytes: "
                    "files are missing or cut, and queries that use the index fail",
                    f"build it again: table.create_index({index.field_names[0]!r}, "
                    f"{index.index_type.upper()!r}, name={index.name!r}, replace=True)",
                )


def check_defaults(state: CheckState) -> Iterator[Finding]:
    """Writers read the defaults of columns, and are refused if one is not a value of its type."""
    for field in state.base.dataset.schema:
        try:
            default_of(field)
        except InvalidCallError as reason:
            yield error(
                base_manifest_path(state.base.version),
                f"{first_line(reason)}; writers can't be opened",
                f"table.set_default({field.name!r}, None) removes it",
            )


def check_merge_progress(state: CheckState) -> Iterator[Finding | Probe]:
    """Protocol rules 19 and 22."""
    where = f"the MemWAL index of version {state.base.version}"
    regions = {region.region_id: region for region in state.regions}
    other = _other_index(state, where)
    yield from other
    yield from _copied(state, where)
    for region_id, merged in regions_in(state.base.details.merged_generations).items():
        if region_id not in state.survey.regions:
            what = f"generation {merged} of region {region_id} was merged, but the region is gone"
            yield error(where, what, _REGION_FROM_A_COPY)
        elif region_id in regions:
            current = regions[region_id].manifest.current_generation
            if merged >= current:
                yield error(
                    where,
                    f"generation {merged} of region {regions[region_id].name} is recorded as "
                    f"merged, but its next generation is only {current}",
                    "the region's manifest is an older copy: restore the newest one",
                )
    if state.has_own_index:
        yield Probe("the record of collected generations", where, _collected(state, where))
    for number, version in state.versions.items():
        if isinstance(version, MemWalError):
            what = f"version {number} can't be read: {first_line(version)}"
            remedy = "restore the file from a copy, or let Lance clean up the version"
            yield error(base_manifest_path(number), what, remedy)
    if not other:
        yield from _went_back(state, where)
    yield Probe("the indexes of the base table", where, _maintained(state, where))


def _other_index(state: CheckState, where: str) -> list[Finding]:
    """A finding if another program has made the MemWAL index in place of the table's own, which
    tables from before its identity tell by their region specs only."""
    base = state.base
    own = state.has_own_index
    before = [
        number
        for number, details in _details(state)
        if number < base.version and not (own and details.region_specs == base.details.region_specs)
    ]
    if own and not before:
        return []
    restore = ""
    if before:
        restore = (
            f"if nothing was written since, restore version {max(before)}: "
            f"lance.dataset(uri, version={max(before)}).restore(); else "
        )
    return [
        error(
            where,
            "another program has dropped the MemWAL index and made another one, as LanceDB does to "
            "change its write spec: merged rows may be taken for new ones, or old ones for newer",
            f"stop all writers; {restore}write the rows into a new table: docs/lancedb.md shows "
            "how",
        )
    ]


def _copied(state: CheckState, where: str) -> Iterator[Finding]:
    """A clone of a native table is refused until a native program has written to it."""
    versions = [each for each in state.versions.values() if isinstance(each, BaseVersion)]
    is_copy = state.base.found.is_copy or any(each.operation == CLONE for each in versions)
    if is_copy and read_record(state.store) is None:
        yield warning(
            where,
            "the table is a clone or a branch that plain Lance has made of another one: rows of "
            "that which were not merged then are not here",
            "copy that table's whole folder instead, if they are missed",
        )


def _collected(state: CheckState, where: str) -> Iterator[Finding]:
    for region_id, watermark in read_watermarks(state.store).items():
        merged = state.merged(region_id)
        if merged < watermark.generation:
            yield error(
                where,
                f"the base table holds generations of region {region_id} up to {merged}, but those "
                f"up to {watermark.generation} were collected",
                "restore the base table to a version that has the progress, such as the newest "
                "before",
            )


def _went_back(state: CheckState, where: str) -> Iterator[Finding]:
    most: dict[UUID, tuple[int, int]] = {}
    for number, details in _details(state):
        if number <= state.base.version:
            for region_id, merged in regions_in(details.merged_generations).items():
                most[region_id] = max(most.get(region_id, (0, 0)), (merged, number))
    for region_id, (merged, number) in most.items():
        if merged > state.merged(region_id):
            yield warning(
                where,
                f"version {number} had merged generation {merged} of region {region_id}, but this "
                f"one only {state.merged(region_id)}: the table was restored, or an index commit "
                "erased the progress",
                "merge: generations that still exist are merged again, with the same result",
            )


def _maintained(state: CheckState, where: str) -> Iterator[Finding]:
    present = {index.name for index in indexes_of(state.base.dataset)}
    for name in state.base.details.maintained_indexes:
        if name not in present:
            what = f"the index {name!r} is to be maintained, but the base table does not have it"
            yield warning(where, what, "create it, or drop it with table.drop_index()")


def check_recorded(state: CheckState) -> Iterator[Finding | Probe]:
    """Protocol rules 18 and 23."""
    details = state.base.details
    where = f"the MemWAL index of version {state.base.version}"
    if details.snapshot_ts_millis:
        yield Probe("the region snapshot", where, _recorded(state, details, where), _NEW_RECORD)
    for number, old in _details(state):
        if number != state.base.version:
            where = f"version {number} of the base table"
            yield Probe(where, where, _old_version(state, old, where))


def _recorded(state: CheckState, details: IndexDetails, where: str) -> Iterator[Finding]:
    manifests = recorded_manifests(state.store, details, state.base.info.region_specs)
    if manifests is None:
        what = "the file of the region snapshot is gone, as after a progress mark"
        yield warning(where, f"{what}: eventual readers read the manifests", _NEW_RECORD)
    values = {region.region_id: region.values for region in state.regions}
    for manifest in manifests or ():
        own = values.get(manifest.region_id)
        if own is not None and manifest.region_values not in (None, own):
            what = f"region {region_name(manifest.region_id, own)} is recorded as another one"
            yield error(where, f"{what}: queries of its keys pass over it", _NEW_RECORD)
        # The check of merge progress names merged regions.
        if manifest.region_id not in state.survey.regions and not state.merged(manifest.region_id):
            what = f"region {manifest.region_id} is recorded, but its folder is gone"
            yield error(where, what, _REGION_FROM_A_COPY)


def _old_version(state: CheckState, details: IndexDetails, where: str) -> Iterator[Finding]:
    try:
        manifests = recorded_manifests(state.store, details, state.base.info.region_specs)
        lost = _lost(state, manifests or (), details.merged_generations)
        wrong = f"{', '.join(lost)} are missing" if lost else ""
    except MemWalError as failure:
        state.note(failure)
        wrong = first_line(failure)
    if wrong:
        what = f"{where.partition(' of ')[0]} can't be read in its recorded state: {wrong}"
        remedy = "restore the files from a copy, or let Lance clean up the version"
        yield warning(where, what, remedy)


def check_checkpoints(state: CheckState) -> Iterator[Finding | Probe]:
    """Snapshots of document 4: every file of an unexpired checkpoint exists."""
    tags: Container[str] | None = None
    try:
        tags = tags_of(state.store, state.base.dataset)
    except MemWalError as failure:
        state.note(failure)
        remedy = "restore the tag's file from a copy, or delete it"
        yield error("_refs/tags", f"tags can't be read: {first_line(failure)}", remedy)
    for name in checkpoint_names(state.store):
        where = f"the checkpoint {name!r}"
        yield Probe(where, where, _checkpoint(state, name, tags, where))


def _checkpoint(
    state: CheckState, name: str, tags: Container[str] | None, where: str
) -> Iterator[Finding]:
    checkpoint = find(state.store, name)
    if checkpoint is None or not checkpoint.is_live(time.time()):
        return
    version, tag = checkpoint.version, checkpoint.tag
    if tags is not None and tag not in tags:
        yield warning(
            where,
            f"the tag {tag} is gone: Lance may clean up version {version}, which the checkpoint "
            "reads",
            f"tag version {version} as {tag}, or drop the checkpoint",
        )
    if not isinstance(state.versions.get(version), BaseVersion):
        yield error(where, f"version {version} of the base table is gone", "drop the checkpoint")
        return
    remedy = "restore the files from a copy, or drop the checkpoint"
    pinned = checkpoint.snapshot()
    lost = _lost(state, [region.manifest for region in pinned.regions], {})
    for region in pinned.regions:
        region_id, end = region.manifest.region_id, region.wal_end
        first = region.manifest.replay_after_wal_entry_position + 1
        files = state.survey.regions.get(region_id)
        gone = lacking_in(first, end, () if files is None else files.wal)
        lost += [f"WAL entries {gone} of {region_id}"] if gone else []
        for position, (failure, fence) in state.damaged[region_id].items():
            if first <= position < end and (fence is None or fence >= end):
                yield error(where, f"a WAL entry that it retains can't be read: {failure}", remedy)
    if lost:
        yield error(where, f"files that it retains are missing: {', '.join(lost)}", remedy)


def _details(state: CheckState) -> Iterator[tuple[int, IndexDetails]]:
    """The readable MemWAL indexes of the table's own versions: the history of a clone that was
    enabled begins with its source's."""
    metadata = state.base.dataset.schema.metadata
    for number, version in state.versions.items():
        details = version.details if isinstance(version, BaseVersion) else None
        if details is not None and is_own(metadata, details):
            yield number, details


def _lost(
    state: CheckState, manifests: Iterable[RegionManifest], merged: Mapping[UUID, int]
) -> list[str]:
    """The generations above `merged` whose folders are missing."""
    lost = []
    for manifest in manifests:
        files = state.survey.regions.get(manifest.region_id)
        for generation in manifest.flushed_generations:
            needed = generation.generation > merged.get(manifest.region_id, 0)
            if needed and (files is None or generation.path not in files.generations):
                lost.append(f"{manifest.region_id}/{generation.path}")
    return lost
