"""Flushes the logs of a table's regions, whoever wrote them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from uuid import UUID

from memwal_sql.errors import ConflictError, FencedError
from memwal_sql.maintain.unflushed import UnflushedLog, newest_rows, unflushed_logs
from memwal_sql.state.open_writers import last_epoch, live_writer, open_table_writers
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.region.manifest import RegionManifest, RegionStatus
from memwal_sql.storage.retries import over_conflicts
from memwal_sql.table.staging import SharedTable


class FlushedTable(SharedTable):
    """Turns rows of logs and MemTables into generations."""

    def flush(self) -> int:
        """Flush every row written so far into files of the table.

        Each open writer of the table in this process flushes its rows. Every other region with rows
        in its log is claimed and flushed, whether its writer has died or is open in another
        process: that writer claims the region again at its next call; a buffered one stops with
        FencedError.

        Returns the number of regions claimed. Raises the errors of a writer's `flush`,
        CorruptFileError for a damaged log, and RetryError when others kept claiming regions.
        """
        self._check_writable("flush")

        def flush() -> int:
            self._flush_open_writers()
            others = [manifest for manifest in self._manifests() if not self._is_own(manifest)]
            context, fences = self._context, self._fences
            rows = map_remote(
                context.store.remote,
                lambda manifest: newest_rows(context, manifest, fences),
                others,
            )
            unflushed = [
                manifest for manifest, entry in zip(others, rows, strict=True) if entry is not None
            ]
            return self._claim_and_flush(unflushed)

        return over_conflicts(flush, self.uri, on=(FencedError, ConflictError))

    def unflushed_logs(
        self, *, with_ages: bool = False, refresh: bool = True
    ) -> list[UnflushedLog]:
        """The logs with unflushed rows, except those of this process's writers; for the jobs.
        Without `refresh` the regions are those of the last snapshot, as it has found them."""
        regions = [region.manifest for region in self._collector.registry.loaded()]
        manifests = self._manifests() if refresh else regions
        others = [manifest for manifest in manifests if not self._is_own(manifest)]
        identity = self._context.identity

        def is_closed(manifest: RegionManifest) -> bool:
            return last_epoch(identity, manifest.region_id) == manifest.writer_epoch

        return unflushed_logs(
            self._context, others, self._fences, with_ages=with_ages, is_closed=is_closed
        )

    def open_rows(self) -> int:
        """The unflushed rows of the open writers of this process."""
        identity, manifests = self._context.identity, self._manifests()
        own = [manifest.region_id for manifest in manifests if self._is_own(manifest)]
        writers = [live_writer(identity, region) for region in own]
        return sum(writer.unflushed_rows for writer in writers if writer is not None)

    def flush_regions(self, regions: Collection[UUID]) -> int:
        """Claim these regions, flush their logs and return their number. Raises ConflictError when
        another writer claims a region meanwhile, as it is not silent then, and CorruptFileError for
        a damaged log, once the others are flushed."""
        self._check_writable("flush")
        try:
            return self._claim_and_flush([m for m in self._manifests() if m.region_id in regions])
        except FencedError as error:
            raise ConflictError(str(error)) from error

    def _claim_and_flush(self, regions: Sequence[RegionManifest]) -> int:
        alive = [manifest for manifest in regions if manifest.status is not RegionStatus.SEALED]
        if alive:
            self.publisher().empty_wals(alive)
        return len(alive)

    def _flush_open_writers(self) -> None:
        for writer in open_table_writers(self._context.identity):
            writer.flush_usable()

    def _is_own(self, manifest: RegionManifest) -> bool:
        """Whether a writer of this process has the region."""
        writer = live_writer(self._context.identity, manifest.region_id)
        return writer is not None and writer.is_usable and writer.epoch == manifest.writer_epoch
