"""Calls for distributed engines: reads that are divided among tasks, and staged writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import uuid4

import pyarrow as pa

from memwal_sql.bulk.publish import Publisher, routing_spec
from memwal_sql.bulk.replace import Replacement
from memwal_sql.bulk.rows import RowForm
from memwal_sql.bulk.stage import FragmentStager, StagedTask, Stager, discard, staging_folder
from memwal_sql.maintain.compact.compactor import Compactor
from memwal_sql.maintain.merge.merger import Merger
from memwal_sql.maintain.merge.shares import MergedShare, MergeShare, Run, Shares, merge_share
from memwal_sql.read.pinned import PinnedSnapshot, PinnedTable
from memwal_sql.state.batch_marks import last_complete
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.table.maintaining import MaintainedTable
from memwal_sql.write.generation_writer import GenerationWriter
from planner.predicates.expr import Predicate


class SharedTable(MaintainedTable):
    """Pinned snapshots for the tasks of a read, and staged rows for the tasks of a write."""

    def pin(self, consistency: str = "strong", filters: Sequence[Predicate] = ()) -> PinnedSnapshot:
        """A description of the current snapshot; it pickles, and any process can rebuild it."""
        return self._collector.pin(consistency, filters)

    def pinned_table(self) -> PinnedTable:
        """Rebuilds snapshots that a handle on the same table pinned, here or elsewhere."""
        return PinnedTable(self._context)

    def stager(self, job: str, form: RowForm, *, replaces: bool = False) -> Stager:
        """Stages the rows of one task of a distributed write, for a `publisher` to publish, or for
        `replace_staged` to replace all rows with.

        Args:
            job: names the folder that the job's tasks stage into; `discard_staged` removes it.
        """
        self._check_writable("write")
        base = self._tracker.latest()
        store, folder = self._context.store, staging_folder(job)
        writer = GenerationWriter(self._context, base.info, base.dataset, self._index_recipes)
        if replaces:
            return FragmentStager(store=store, writer=writer, form=form, folder=folder)
        spec = routing_spec(base.info)
        return Stager(store=store, writer=writer, spec=spec, form=form, folder=folder)

    def publisher(self) -> Publisher:
        """Publishes what the tasks of a distributed write have staged."""
        self._check_writable("write")
        self._collector.check_watermarks(self._tracker.latest())
        return Publisher(
            context=self._context,
            base=self._tracker.latest,
            find=lambda spec_id, regions: self._collector.registry.manifests_of(
                self._tracker.loaded, spec_id, regions
            ),
        )

    def compactor(self) -> Compactor:
        """Compacts the base table in tasks that other processes execute; `compact` does it in one
        call."""
        self._check_writable("compact")
        return Compactor(self._context, self._regions_now)

    def merge_in_tasks(self, run: Run, tasks: int) -> dict[str, int]:
        """Merge as `merge` does, by work that at most so many tasks share: `run` calls
        `merge_share` for each share, on handles of this table in any processes.

        Returns how many generations were merged, by region id.
        """
        self._check_writable("merge")
        merger = Merger(self._context, self._regions_now, Shares(run, tasks).choose)
        regions = self._collector.regions_to_merge()
        merged = merger.run(regions, self._tracker.loaded)
        return {str(region.region_id): merged[region] for region in regions}

    def merge_share(self, share: MergeShare) -> MergedShare:
        """Do the work of one task of a merge."""
        self._check_writable("merge")
        return merge_share(self._context, share)

    def replace_staged(self, tasks: Sequence[StagedTask]) -> int:
        """Replace all rows by staged ones, in one step for readers.

        Other writers are fenced. Returns the base version with the new rows; raises the errors of
        `Publisher.publish`, and RetryError when other commits kept coming in between.
        """
        return self._replaced(lambda replace: replace.by(tasks))

    def _replaced(self, replace: Callable[[Replacement], int]) -> int:
        self._check_writable("write")
        publisher = self.publisher()
        version = replace(
            Replacement(
                self._context,
                self._tracker.latest(),
                empty_wals=lambda: publisher.empty_wals(self._manifests()),
                merge=self.merge,
                manifests=self._manifests,
            )
        )
        self._afterwards("bringing the indexes up to date", self.build_indexes)
        return version

    def _manifests(self) -> list[RegionManifest]:
        """The current manifests of all regions."""
        return [
            region.refresh() for region in self._collector.registry.regions(self._tracker.latest())
        ]

    def replace_rows(self, rows: pa.Table | Callable[[], pa.Table]) -> int:
        """Replace all rows by these, whose keys must differ, in one step for readers.

        Give rows that are computed from the table's own rows as a function. It is called once other
        writers are fenced, and again if one of them has come back meanwhile, so that it has read
        every row that it replaces.

        Other writers are fenced. Returns the base version with the new rows; raises the errors of
        `replace_staged`.
        """
        job = f"replace-{uuid4().hex}"

        def staged(rows: pa.Table) -> list[StagedTask]:
            return [self.stager(job, RowForm(), replaces=True).stage(rows.to_batches())]

        try:
            if isinstance(rows, pa.Table):
                return self.replace_staged(staged(rows))
            read = rows
            return self._replaced(
                lambda replacement: replacement.by_reading(lambda: staged(read()))
            )
        finally:
            self._afterwards("removing what was staged", lambda: self.discard_staged(job))

    def last_batch(self, query_id: str) -> int:
        """The last complete batch of a query here; -1 if there is none."""
        return last_complete(self._context.store, query_id)

    def discard_staged(self, job: str) -> None:
        """Remove rows that the tasks of a job staged and nobody published."""
        folder = staging_folder(job)
        self._context.check_writes()
        discard(self._context.store, folder)
