"""Rewriting the details of the MemWAL index without losing merge progress (protocol rule 19).

Lance takes an index commit over a version that came in between, whatever that changed: a merge's
progress is erased then. So such commits are made under the maintenance lease, noted before they
are made, and looked at afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

import lance
from lance.mem_wal import CompactedSsTable

from exec_nodes.lance.errors import BASE_NAME, lance_errors
from memwal_sql.errors import ConflictError, NotFoundError, RepairError
from memwal_sql.maintain.lease import Lease, Unfinished, maintenance_lease
from memwal_sql.state.base_table import open_latest
from memwal_sql.state.context import TableContext
from memwal_sql.state.schema import primary_key_of
from memwal_sql.storage.base.commits import base_commit
from memwal_sql.storage.base.memwal_index import (
    IndexDetails,
    commit_details,
    read_details,
    read_details_at,
)
from memwal_sql.storage.base.merge_token import MergeProgress, pass_shard, regions_in
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.paths import WRITTEN_FOLDERS
from memwal_sql.storage.retries import over_conflicts


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Details about to be replaced: as they are, the dataset they were read with, and the id that
    the new index entry will have."""

    details: IndexDetails
    dataset: Any
    index_uuid: UUID


def latest_dataset(context: TableContext, *, for_tags: bool = False) -> Any:
    """The latest version of the base table, with a handle of its own: Lance's merges move it;
    `for_tags` as for `open_latest`.

    Every job commits by such a handle, so this refuses links in the place of the folders that Lance
    writes to: it would write through them. Raises CorruptFileError.
    """
    context.store.refuse_links(WRITTEN_FOLDERS)
    return open_latest(context, for_tags=for_tags)


def dataset_at(context: TableContext, version: int) -> Any:
    """The base table at a version, for a task that writes files which another process commits."""
    context.store.refuse_links(WRITTEN_FOLDERS)
    with lance_errors(BASE_NAME, context.uri):
        return lance.dataset(
            lance_uri(context.uri), version=version, storage_options=context.storage_options
        )


@contextmanager
def maintenance(context: TableContext, job: str) -> Iterator[Lease]:
    """Hold the maintenance lease; unchecked commits of earlier holders are put right first.

    Raises UnknownFormatError where this package is too old to write the table.
    """
    with maintenance_lease(context.store, job) as lease:
        context.check_writes()
        if lease.unfinished:
            _settle(context, lease)
        yield lease


def _settle(context: TableContext, lease: Lease) -> None:
    """Check possible commits of earlier holders, and make sure that no more can come.

    A holder that sleeps may wake and commit long after others took over. Lance refuses a rewrite of
    details over another rewrite, so where one has not landed yet, the details are committed as they
    are: whatever was read before that comes too late.
    """

    def settle() -> None:
        unfinished = lease.unfinished
        landed = [restore_progress(context, rewrite) for rewrite in unfinished]
        if all(landed):
            lease.forget_notes()
            return
        dataset = latest_dataset(context)
        details = details_of(context, dataset)
        fence = Unfinished(dataset.version, uuid4())
        lease.rewrites(*unfinished, fence)
        commit_details(dataset, details, fence.index_uuid)  # refused: one has landed just now
        for rewrite in (*unfinished, fence):
            restore_progress(context, rewrite)
        lease.forget_notes()

    over_conflicts(settle, context.uri)


def change_details(
    context: TableContext,
    job: str,
    change: Callable[[Rewrite], IndexDetails | None],
    dataset: Any = None,
) -> int:
    """Commit changed details as a new base version, and return that version.

    `change` is called again when Lance refuses the commit in favour of somebody else's; what it
    returns is committed, and nothing when that is None. If it is None for `dataset`, a version
    that has just been the newest, the lease is not taken. Raises RetryError when
    others keep coming in between.
    """
    if dataset is not None and change(_rewrite_of(context, dataset)) is None:
        return int(dataset.version)

    def commit() -> int:
        with maintenance(context, job) as lease:
            return rewrite_details(context, lease, latest_dataset(context), change)

    return over_conflicts(commit, context.uri)


def rewrite_details(
    context: TableContext,
    lease: Lease,
    dataset: Any,
    change: Callable[[Rewrite], IndexDetails | None],
) -> int:
    """The same once, over the latest version `dataset`. Raises ConflictError where Lance refuses,
    and MaintenanceLostError where the lease was lost: then nothing is committed."""
    rewrite = _rewrite_of(context, dataset)
    changed = change(rewrite)
    if changed is None:
        return int(dataset.version)
    unfinished = Unfinished(dataset.version, rewrite.index_uuid)
    lease.rewrites(unfinished)
    # Lance refuses where somebody else committed what it would not pass over.
    committed = commit_details(dataset, changed, rewrite.index_uuid)
    if committed.version != dataset.version + 1:
        restore_progress(context, unfinished)
    lease.forget_notes()
    return int(committed.version)


def _rewrite_of(context: TableContext, dataset: Any) -> Rewrite:
    return Rewrite(details_of(context, dataset), dataset, uuid4())


def details_of(context: TableContext, dataset: Any) -> IndexDetails:
    """The details at a dataset's version. Raises RepairError when it has none."""
    details = read_details(context.store, dataset)
    if details is None:
        raise RepairError(f"{context.uri} lost its MemWAL index in version {dataset.version}")
    return details.details


def restore_progress(context: TableContext, rewrite: Unfinished) -> bool:
    """Put back the progress of versions that a rewrite of the details passed over, if any; whether
    the rewrite has landed.

    Regions of which anything was merged again since then are left alone: the base table has what
    their marks say.
    """

    def restore() -> bool:
        dataset = latest_dataset(context)
        erased_progress = _find(context, rewrite, dataset.version)
        if erased_progress is None:
            return False
        rewritten, before = erased_progress
        now = details_of(context, dataset).merged_generations
        erased = {
            shard: generation
            for shard, generation in before.items()
            if rewritten.get(shard, 0) == now.get(shard, 0) < generation
            and rewritten.get(pass_shard(shard), 0) == now.get(pass_shard(shard), 0)
        }
        if erased and not _restored(dataset, now, erased):
            raise ConflictError("a merge came in between")
        return True

    return over_conflicts(restore, context.uri)


def _find(
    context: TableContext, rewrite: Unfinished, latest: int
) -> tuple[MergeProgress, MergeProgress] | None:
    """The progress that a rewrite committed, and the most that the versions before it had; None if
    it has not landed."""
    most: dict[UUID, int] = {}
    for version in range(rewrite.read_version + 1, latest + 1):
        try:
            details = read_details_at(context.store, version)
        except NotFoundError:
            continue  # cleaned up by Lance
        if details is None:
            continue
        if details.details.index_uuid == rewrite.index_uuid:
            return details.details.merged_generations, most
        for shard, generation in details.details.merged_generations.items():
            most[shard] = max(generation, most.get(shard, 0))
    return None


def _restored(dataset: Any, now: MergeProgress, erased: MergeProgress) -> bool:
    """Restore erased marks; False when a merge came in between.

    A merge that began on the erased progress merges a generation again, below newer rows that are
    in the base table already: then the higher mark would be wrong. So pass shards are first marked
    with the least that Lance refuses after such a merge, and only then with what they had.
    """
    present = regions_in({**now, **erased})
    regions = {shard for shard in erased if shard in present}
    guards = {pass_shard(region): now.get(pass_shard(region), 0) + 1 for region in regions}
    marks = {region: erased[region] for region in regions} | guards
    if marks and not mark_only(dataset, marks):
        return False
    marked = dict(now) | marks
    tokens = {s: g for s, g in erased.items() if s not in present and g > marked.get(s, 0)}
    return not tokens or mark_only(dataset, tokens)


def mark_only(dataset: Any, marks: MergeProgress) -> bool:
    """Commit marks without rows; False when Lance refuses, as somebody came in between."""
    keys = list(primary_key_of(dataset.schema))
    merge = dataset.merge_insert(keys).when_matched_update_all().use_index(False)
    merge = merge.conflict_retries(0).mark_sstables_as_compacted(
        [CompactedSsTable(str(shard), generation) for shard, generation in marks.items()]
    )
    try:
        with base_commit(dataset.uri, "the merge progress"):
            merge.execute(dataset.schema.empty_table())
    except ConflictError:
        return False
    return True
