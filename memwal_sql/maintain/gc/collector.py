"""The garbage collector (specification 2, "Garbage Collector"; protocol rules 4, 8, 18, 21, 22).

Everything is listed once and deleted in bulk. The order of changes is what keeps readers, writers,
mergers, checkpoints and other collectors right, and what makes a collector that dies anywhere
harmless: floors are raised, region manifests shrink, checkpoints are looked at again, files go;
manifest versions go last, in ascending order. Whatever is left over is garbage for the next run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from operator import call
from typing import Any, TypeVar
from uuid import UUID

import pyarrow as pa

from exec_nodes.base.tasks import map_concurrently, map_in_threads
from exec_nodes.lance.errors import BASE_NAME, lance_errors
from memwal_sql.errors import (
    CorruptFileError,
    InvalidCallError,
    NotFoundError,
    TableReplacedError,
)
from memwal_sql.life_log import life_log
from memwal_sql.maintain.catch_up import CatchUp
from memwal_sql.maintain.checkpoint.records import (
    Checkpoint,
    all_checkpoints,
    retained_by_checkpoints,
)
from memwal_sql.maintain.details import latest_dataset
from memwal_sql.maintain.gc.checkpoints import checkpoint_garbage, remove_checkpoints
from memwal_sql.maintain.gc.listing import RegionFiles, survey_files
from memwal_sql.maintain.gc.orphans import orphans
from memwal_sql.maintain.gc.rules import (
    Garbage,
    Kind,
    RegionState,
    established_manifest,
    region_garbage,
)
from memwal_sql.maintain.gc.transactions import RecordCollection
from memwal_sql.maintain.lease import MAINTENANCE, PUBLISHING, delete_old_records
from memwal_sql.maintain.progress import Progress, Report, report_nothing
from memwal_sql.maintain.retention import Holds, retained_by_versions
from memwal_sql.state.context import TableContext
from memwal_sql.storage import paths
from memwal_sql.storage.base.memwal_index import IndexDetails
from memwal_sql.storage.base.merge_token import MergeProgress
from memwal_sql.storage.base.refs import branches_of, tags_of
from memwal_sql.storage.base.versions import BaseVersion, base_versions, version_numbers
from memwal_sql.storage.deadlines import check_deadline
from memwal_sql.storage.objects.concurrent import ReadWindow, ask_remote, run_with
from memwal_sql.storage.objects.store_time import now_by_store
from memwal_sql.storage.records.gc_watermarks import (
    Watermark,
    Watermarks,
    check_watermarks,
    raise_watermarks,
    read_watermarks,
)
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.region.versions import ManifestChanges, RegionManifests
from memwal_sql.storage.wal.log import Wal

_log = life_log(__name__)

T = TypeVar("T")
R = TypeVar("R")

_PARALLEL_REGIONS = 16
_APART = 1.0  # seconds: times of files have less than those of clocks, and take a while to be made
_BATCH_FILES = 1000  # of one bulk request of S3
_ASKED_FOR = (Kind.WAL_ENTRY, Kind.MANIFEST)
# Their rows may be in the base table by now, which is then the last to have them.
_WITH_ROWS = (Kind.GENERATION, Kind.ORPHAN, Kind.WAL_ENTRY)

REPORT = pa.schema(
    [
        pa.field("kind", pa.string(), nullable=False),
        pa.field("region_id", pa.string()),
        pa.field("path", pa.string(), nullable=False),
        pa.field("bytes", pa.int64()),
        pa.field("files", pa.int64(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True)
class GarbagePlan:
    """The files that a collection would delete, and the region manifests that decided it."""

    garbage: tuple[Garbage, ...]
    manifests: Mapping[UUID, RegionManifest]
    checkpoints: tuple[Checkpoint, ...]


def collect_garbage(
    context: TableContext,
    *,
    dry_run: bool = False,
    older_than: timedelta,
    versions_older_than: timedelta | None = None,
    report: Report = report_nothing,
    clock: Callable[[], float] | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> pa.Table:
    """Delete unneeded files; see `Table.collect_garbage`. Returns the files that were deleted, or
    would be. Where anything is, the store is asked for the time, in case this machine is ahead of
    it; a dry run, which puts nothing, does not ask. `clock` gives the time instead, in seconds
    since 1970. On an object store it waits for `ReadWindow.seconds`
    before it deletes what readers ask for side by side (`read/region_probe`).
    """
    if not isinstance(dry_run, bool):
        raise InvalidCallError(f"dry_run={dry_run!r} must be true or false")
    of_versions = timedelta(0) if versions_older_than is None else versions_older_than
    for name, age in (("older_than", older_than), ("versions_older_than", of_versions)):
        if not isinstance(age, timedelta) or age < timedelta(0):
            raise InvalidCallError(f"{name}={age!r} must be a timedelta, and not negative")
    now = time.time() if clock is None else clock()
    collector = _Collector(context, older_than.total_seconds(), now, report)
    asks_store = clock is None and not dry_run
    # Read before the versions: others may merge and collect in between.
    watermarks = read_watermarks(context.store)
    versions = base_versions(context.store, context.scope)
    # Checked before any clean-up: the table may have to be restored to an older version.
    _check_progress(context, versions[-1], watermarks)
    doomed = collector.old_versions(versions, versions_older_than)
    if doomed and asks_store and collector.was_ahead():
        doomed = collector.old_versions(versions, versions_older_than)
    if not dry_run:
        doomed = collector.clean_up(doomed)
    gone = frozenset(version.number for version in doomed)
    plan = collector.plan(versions, gone, watermarks)
    if plan.garbage and asks_store and collector.was_ahead():
        plan = collector.plan(versions, gone, watermarks)
    if not dry_run:
        if context.store.remote and any(item.kind in _ASKED_FOR for item in plan.garbage):
            check_deadline(f"{context.uri}: waiting for readers", ReadWindow.seconds)
            sleep(ReadWindow.seconds)
        plan = collector.carry_out(plan)
        _log.info(
            "collected %d files of %s", sum(len(item.files) for item in plan.garbage), context.uri
        )
    return _table([*doomed, *plan.garbage])


class _Collector:
    """One run: everything is decided by the same moment and the same version of the base table."""

    def __init__(self, context: TableContext, grace: float, now: float, report: Report) -> None:
        self._context = context
        self._store = context.store
        self._grace = grace
        self._now = now
        self._report = report
        self._base_is_durable = False
        self._asked = False
        self.dataset = latest_dataset(context)

    def old_versions(
        self, versions: Sequence[BaseVersion], age: timedelta | None
    ) -> tuple[Garbage, ...]:
        """The base versions older than `age`, and than the grace period, that neither a tag nor
        a branch keeps. The version that was the newest by then stays: it was read until the next
        commit, however old it is itself."""
        if age is None:
            return ()
        limit = self._now - max(self._grace, age.total_seconds())
        old = [version for version in versions if version.timestamp <= limit]
        kept = {tag["version"] for tag in tags_of(self._store, self.dataset).values()}
        kept |= {
            branch["parent_version"] for branch in branches_of(self._store, self.dataset).values()
        }
        reason = f"older than {age}, and no tag's or branch's"
        return tuple(
            Garbage(
                Kind.BASE_VERSION,
                None,
                paths.base_manifest_path(version.version),
                None,
                reason,
                number=version.version,
            )
            for version in old[:-1]
            if version.version not in kept and version.version < self.dataset.version
        )

    def was_ahead(self) -> bool:
        """Whether this machine's clock is ahead of the store's, so that less is old than was
        decided; from now on the store's counts. Asked once."""
        if self._asked:
            return False
        machine, self._asked = time.time(), True  # not the collection's, which may be long ago
        ahead = machine - now_by_store(self._store, machine)
        if ahead > _APART:
            self._now -= ahead
        return ahead > _APART

    def make_base_durable(self) -> None:
        """Sync what merges have written, once: Lance leaves it to the system when that reaches the
        disk, and what goes is the last that a power failure would leave of these rows."""
        if not self._base_is_durable:
            for folder in paths.BASE_FOLDERS:
                self._store.sync(folder)
            self._base_is_durable = True

    def clean_up(self, doomed: tuple[Garbage, ...]) -> tuple[Garbage, ...]:
        """Let Lance remove base versions; returns those that it has removed."""
        if not doomed:
            return ()
        self.make_base_durable()
        self._store.refuse_links()
        with lance_errors(BASE_NAME, self._context.uri):
            self.dataset.cleanup_old_versions(
                versions=[version.number for version in doomed], error_if_tagged_old_versions=False
            )
        present = set(version_numbers(self._store))
        return tuple(version for version in doomed if version.number not in present)

    def plan(
        self, versions: Sequence[BaseVersion], gone: frozenset[int], watermarks: Watermarks
    ) -> GarbagePlan:
        """Decide what is garbage, given all base versions, which of them are kept no more, and up
        to where files were collected."""
        retained = [version for version in versions if version.version not in gone]
        checkpoints: list[Checkpoint] = []
        survey = run_with(
            self._store.remote,
            lambda: survey_files(self._store),
            lambda: checkpoints.extend(all_checkpoints(self._store)),
        )
        holds = retained_by_versions(self._store, retained, self._context.scope)
        holds |= self._retained(checkpoints)
        through = self._through(versions)

        def decide(files: RegionFiles) -> tuple[RegionManifest, list[Garbage]] | None:
            manifest = self._manifest(files)
            if manifest is None:
                return None  # its creator has not come to the manifest yet
            region_id = files.region_id
            recorded = watermarks.get(region_id, Watermark()).wal
            flushed = self._flushed(files, manifest)
            cutoff = self._now - self._grace
            state = RegionState(files, manifest, through(region_id), recorded, cutoff, flushed)
            is_fence = partial(_is_fence, Wal(self._store, region_id))
            return manifest, list(region_garbage(state, holds, is_fence))

        files = [survey.regions[region_id] for region_id in sorted(survey.regions)]
        decided = [
            region_files for region_files in self._each(decide, files) if region_files is not None
        ]
        manifests = {manifest.region_id: manifest for manifest, _ in decided}
        garbage = [item for _, garbage in decided for item in garbage]
        garbage += self._old_records(RecordCollection(self._context, survey, manifests))
        garbage += orphans(survey, retained, self._now, self._grace)
        garbage += checkpoint_garbage(checkpoints, self._now - self._grace)
        return GarbagePlan(
            tuple(garbage),
            manifests,
            tuple(checkpoints),
        )

    def _old_records(self, records: RecordCollection) -> list[Garbage]:
        decided = self._each(records.decide, records.old(self._now, self._grace))
        return [garbage for garbage in decided if garbage is not None]

    def carry_out(self, plan: GarbagePlan) -> GarbagePlan:
        """Delete the garbage, without files that a checkpoint has come to hold meanwhile; returns
        what is deleted. Old records that nobody reads are deleted too."""
        kept = self._delete_files(plan) if plan.garbage else ()
        ask_remote(
            self._store.remote,
            (
                partial(delete_old_records, self._store, MAINTENANCE),
                partial(delete_old_records, self._store, PUBLISHING),
                partial(remove_checkpoints, self._context, plan.checkpoints, kept),
            ),
        )
        return replace(plan, garbage=kept)

    def _delete_files(self, plan: GarbagePlan) -> tuple[Garbage, ...]:
        if any(item.kind in _WITH_ROWS for item in plan.garbage):
            self.make_base_durable()
        raise_watermarks(self._store, _watermarks(plan.garbage))
        going: dict[UUID, set[str]] = {}
        for item in plan.garbage:
            if item.kind is Kind.GENERATION and item.region is not None:
                going.setdefault(item.region, set()).add(item.path.rpartition("/")[2])
        # On a disk, too: it joins what is synced at the same time.
        shrunk = [partial(self._shrink, plan.manifests[region], going[region]) for region in going]
        map_in_threads(call, shrunk, _PARALLEL_REGIONS)
        # A checkpoint that is recorded after this finds the floors above what it needs.
        retained_files = self._retained(all_checkpoints(self._store))
        kept = tuple(item for item in plan.garbage if not _is_retained(item, retained_files))
        self._delete(kept)
        return kept

    def _retained(self, checkpoints: Iterable[Checkpoint]) -> Holds:
        return retained_by_checkpoints(checkpoints, self._now - self._grace)

    def _through(self, versions: Sequence[BaseVersion]) -> Callable[[UUID], int]:
        """The last generation of a region whose files may be deleted.

        Readers that began before the grace period read the merge progress of that time. If some
        version has more progress than the latest one, an index commit has erased it and will put it
        back (protocol rule 19), or the table was restored: nothing of that region is collected
        until merges have caught up.
        """
        latest, cutoff = versions[-1], self._now - self._grace
        old = next((version for version in reversed(versions) if version.timestamp <= cutoff), None)
        established = {} if old is None else _merged(old)
        now = _merged(latest)
        most: dict[UUID, int] = {}
        for version in versions:
            for region_id, generation in _merged(version).items():
                most[region_id] = max(generation, most.get(region_id, 0))
        caught_up = CatchUp(self._at(latest.version), latest.details or IndexDetails())

        def through(region_id: UUID) -> int:
            merged = now.get(region_id, 0)
            if most.get(region_id, 0) > merged:
                return 0
            return min(established.get(region_id, 0), caught_up.through(region_id, merged))

        return through

    def _at(self, version: int) -> Any:
        if self.dataset.version != version:
            with lance_errors(BASE_NAME, self._context.uri):
                self.dataset = self.dataset.checkout_version(version)
        return self.dataset

    def _manifest(self, files: RegionFiles) -> RegionManifest | None:
        manifests = RegionManifests(self._store, files.region_id)
        if not files.manifests:
            return None
        try:
            return manifests.read(max(files.manifests))
        except NotFoundError:
            return manifests.latest()  # another collector was quicker

    def _flushed(self, files: RegionFiles, latest: RegionManifest) -> int:
        """Up to which WAL position a region had been flushed before the grace period: readers that
        began since read what came later from the log, and so do those of a time in it."""
        version = established_manifest(files, self._now - self._grace)
        if version is None:
            return 0
        if version == latest.version:
            return latest.replay_after_wal_entry_position
        try:
            then = RegionManifests(self._store, files.region_id).read(version)
        except NotFoundError:  # another collector was quicker
            return 0
        return then.replay_after_wal_entry_position

    def _shrink(self, latest: RegionManifest, going: set[str]) -> None:
        """Take the generations that go out of a region's manifest."""

        def without(manifest: RegionManifest) -> ManifestChanges:
            flushed = manifest.flushed_generations
            kept = tuple(generation for generation in flushed if generation.path not in going)
            return {"flushed_generations": kept} if len(kept) < len(flushed) else {}

        RegionManifests(self._store, latest.region_id).change(latest, without)

    def _delete(self, garbage: Sequence[Garbage]) -> None:
        unordered = [p for item in garbage if item.kind is not Kind.MANIFEST for p in item.files]
        ordered: dict[UUID | None, list[str]] = {}
        for item in sorted(garbage, key=lambda item: item.number):
            if item.kind is Kind.MANIFEST:
                ordered.setdefault(item.region, []).extend(item.files)
        total = len(unordered) + sum(map(len, ordered.values()))
        for start in range(0, len(unordered), _BATCH_FILES):
            self._report(Progress("collect_garbage", None, start, total, "files"))
            self._store.delete_in_bulk(unordered[start : start + _BATCH_FILES])
        self._report(Progress("collect_garbage", None, len(unordered), total, "files"))
        # Each only after the one before it has gone (protocol rule 8).
        self._each(self._store.delete, ordered.values())
        self._report(Progress("collect_garbage", None, total, total, "files"))

    def _each(self, call: Callable[[T], R], items: Iterable[T]) -> list[R]:
        return (
            map_concurrently(call, items) if self._store.remote else [call(item) for item in items]
        )


def _check_progress(context: TableContext, latest: BaseVersion, watermarks: Watermarks) -> None:
    if latest.details is None:
        raise TableReplacedError(
            f"version {latest.version} of {context.uri} has lost its MemWAL index: "
            "restore one that has it"
        )
    check_watermarks(context.store, latest.details.merged_generations, watermarks)


def _merged(version: BaseVersion) -> MergeProgress:
    return {} if version.details is None else version.details.merged_generations


def _is_fence(wal: Wal, position: int) -> bool:
    """Whether the small entry at a position may be a fence: a torn one holds its place as well."""
    try:
        entry = wal.read(position)
    except CorruptFileError:
        return True
    return entry is None or (entry.is_fence and entry.intent is None)


def _watermarks(garbage: Iterable[Garbage]) -> Watermarks:
    watermarks: dict[UUID, Watermark] = {}
    for item in garbage:
        if item.region is None:
            continue
        if item.kind is Kind.GENERATION:
            watermark = Watermark(generation=item.number)
        elif item.kind is Kind.WAL_ENTRY:
            watermark = Watermark(wal=item.number)
        else:
            continue
        watermarks[item.region] = watermarks.get(item.region, Watermark()).raised_by(watermark)
    return watermarks


def _is_retained(item: Garbage, holds: Holds) -> bool:
    if item.region is None:
        return False
    if item.kind is Kind.WAL_ENTRY:
        return holds.wal_entry(item.region, item.number)
    if item.kind in (Kind.GENERATION, Kind.ORPHAN):
        return holds.generation(item.region, item.path.rpartition("/")[2])
    return False


def _table(garbage: Sequence[Garbage]) -> pa.Table:
    order = list(Kind)
    rows = [
        {
            "kind": item.kind.value,
            "region_id": None if item.region is None else str(item.region),
            "path": item.path,
            "bytes": item.bytes,
            "files": len(item.files),
            "reason": item.reason,
        }
        for item in sorted(garbage, key=lambda item: order.index(item.kind))
    ]
    return pa.Table.from_pylist(rows, REPORT)
