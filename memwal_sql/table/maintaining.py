"""The background jobs and the indexes as methods of a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Unpack

import pyarrow as pa

from exec_nodes.base.tasks import map_concurrently
from memwal_sql.arguments import is_number, is_whole, name_list
from memwal_sql.errors import InvalidCallError
from memwal_sql.history.tags import Tags
from memwal_sql.index.create import IndexKind, IndexParameters, create_index, drop_index
from memwal_sql.maintain.checkpoint.checkpoints import (
    Expires,
    drop_checkpoint,
    list_checkpoints,
    make_checkpoint,
)
from memwal_sql.maintain.checks.findings import CheckReport
from memwal_sql.maintain.checks.run import check_table
from memwal_sql.maintain.compact.compactor import Compactor, Extent
from memwal_sql.maintain.gc.collector import DEFAULT_GRACE, collect_garbage
from memwal_sql.maintain.index_builder import build_indexes
from memwal_sql.maintain.merge.merger import Merger
from memwal_sql.maintain.merge.passes import Passes
from memwal_sql.maintain.progress import Report, report_nothing
from memwal_sql.maintain.region_snapshots import note_last_seen, record_regions
from memwal_sql.state.base_table import BaseTable
from memwal_sql.storage.objects.concurrent import run_with
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.table.handle import TableHandle


class MaintainedTable(TableHandle):
    """Merging, indexing, recording region states, checkpoints, garbage collection and checks."""

    def merge(self, progress: Report | None = None, regions: Sequence[str] | None = None) -> int:
        """Move all flushed generations into the base table, and record the regions.

        Any number of processes may merge at the same time, and write and read meanwhile.

        Args:
            progress: called with the number of rows merged so far, one generation after the other.
            regions: only the regions with these names or ids; all by default.

        Returns the number of generations that this call merged. Raises RepairError if files of a
        generation are missing or damaged; reads are as before then.

        Examples:
            >>> table.flush(), table.merge() > 0
            (2, True)
        """
        self._check_present("merge")
        context = self._context
        regions_to_merge = run_with(
            context.store.remote, self._collector.regions_to_merge, context.check_writes
        )
        if regions is not None:
            regions = name_list("regions", regions)
            names = {
                name: region
                for region in regions_to_merge
                for name in (region.name, str(region.region_id))
            }
            unknown = sorted(set(regions) - set(names))
            if unknown:
                raise InvalidCallError(
                    f"there are no regions {unknown}; "
                    f"there are {[region.name for region in regions_to_merge]}"
                )
            regions_to_merge = [
                region
                for region in regions_to_merge
                if {region.name, str(region.region_id)} & set(regions)
            ]
        passes = Passes(context, progress or report_nothing)
        merger = Merger(context, self._regions_now, passes.choose)
        return merger.run(regions_to_merge, self._tracker.loaded).total()

    def compact(
        self,
        progress: Report | None = None,
        *,
        fragments: int | None = None,
        deleted: float = 0.1,
        dry_run: bool = False,
    ) -> int:
        """Join small fragments of the base table, and drop their deleted rows.

        Any number of processes may compact at the same time, and write, read and merge meanwhile.
        Versions, tags and checkpoints stay as they are. Indexes are brought up to date before and
        after; fragments in different segments of a vector index are not joined.

        Args:
            progress: called with the number of fragments rewritten.
            fragments: join this many adjacent fragments, 2 or more, that together have twice the
                size of the largest one, as the background jobs do: each time that a row is
                rewritten, its fragment has at least doubled. None: join all fragments of less than
                a million rows and 256 MiB, which is large enough.
            deleted: rewrite fragments that have lost this share of their rows, above 0 and up to 1;
                given `fragments`, only once the whole table has.
            dry_run: only return how many fragments would be rewritten.

        Returns the number of fragments rewritten. Raises RetryError if others kept changing them;
        fragments compacted by then stay so. Raises UnsupportedError if another client has compacted
        the table with `defer_index_remap`, as indexes would be wrong.
        """
        if fragments is not None and not is_whole(fragments, least=2):
            raise InvalidCallError(f"fragments={fragments!r} must be a whole number, 2 or more")
        if not is_number(deleted) or not 0 < deleted <= 1:
            raise InvalidCallError(f"deleted={deleted!r} must be a number above 0, up to 1")
        (self._check_present if dry_run else self._check_writable)("compact")
        extent, dataset = Extent(fragments, deleted), self._tracker.latest().dataset
        if dry_run:
            return sum(map(len, extent.groups(dataset)))
        report = progress or report_nothing
        return Compactor(self._context, self._regions_now, report).run(extent, dataset)

    def create_index(
        self,
        column: str,
        index_type: IndexKind,
        *,
        name: str | None = None,
        replace: bool = False,
        **parameters: Unpack[IndexParameters],
    ) -> None:
        """Build an index over the base table; queries use it at once.

        For vectors and texts, every generation gets the same index from now on; open writers build
        it from their next flush on. For other columns the index serves filters over the base table
        only (`maintained` is false in `indexes()`): generations are small, and reading them is
        faster than a lookup. `build_indexes` extends indexes of every kind to rows merged since.
        Rows that no index covers are found by reading them.

        Args:
            index_type: `"IVF_FLAT"`, `"IVF_PQ"`, `"IVF_SQ"`, `"IVF_RQ"`, `"IVF_HNSW_FLAT"`,
                `"IVF_HNSW_PQ"` or `"IVF_HNSW_SQ"` for a vector column, `"FTS"` for a string column;
                for filters on the base table `"BTREE"`, `"BITMAP"`, `"ZONEMAP"` or `"BLOOMFILTER"`.
                Lance's other kinds answer conditions that this package does not pass to Lance.
            name: `{column}_idx` by default, with `_` for the dots of a path. Two indexes of one
                column need two names.
            replace: rebuild the index of this name.
            parameters: Lance's names. For vectors: `metric` (`"l2"`, `"cosine"`, `"dot"`,
                `"hamming"`), `num_partitions` or `target_partition_size`, `sample_rate`,
                `ivf_centroids`; `num_sub_vectors`, `num_bits`, `pq_codebook`; `m`,
                `ef_construction`, `max_level`. For texts: `base_tokenizer`, `language`, `stem`,
                `remove_stop_words`, `custom_stop_words`, `lower_case`, `ascii_folding`,
                `max_token_length`, `min_ngram_length`, `max_ngram_length`, `prefix_only`,
                `with_position`, ... Indexes for filters have none.

        Raises InvalidCallError before anything is written if the arguments do not fit, or the base
        table has too few rows to train on; RetryError if the base table changed so that Lance could
        not commit.

        Examples:
            >>> table.merge() > 0
            True
            >>> table.create_index("city", "FTS")
            >>> table.full_text_search("city", "rome", columns=["id"])["id"].to_pylist()
            [2]
        """
        self._check_writable("write")
        create_index(
            self._context, column, index_type, name=name, replace=replace, parameters=parameters
        )
        self._afterwards("reading by the new indexes", self.catch_up)

    def drop_index(self, name: str) -> None:
        """Remove an index from the base table; later generations are built without it.

        Raises InvalidCallError for an unknown name and for the index of the primary key.
        """
        self._check_writable("write")
        drop_index(self._context, name)
        self._afterwards("reading by the new indexes", self.catch_up)

    def build_indexes(
        self, progress: Report | None = None, indexes: Sequence[str] | None = None
    ) -> list[str]:
        """Extend the base table's indexes to rows merged since they were built.

        Vector indexes keep their centroids and codebooks: nothing is trained.

        Args:
            progress: called after each index.
            indexes: only the indexes with these names; all by default.

        Returns the names of the indexes that were behind.
        """
        self._check_writable("build indexes")
        if indexes is not None:
            indexes = name_list("indexes", indexes)
        return build_indexes(self._context, progress or report_nothing, indexes)

    def snapshot_regions(self) -> int:
        """Record the state of all regions in the MemWAL index, for `eventual` readers.

        Returns the base version with the record; a new version unless everything is recorded
        already.
        """
        self._check_writable("write")
        base = self._tracker.latest()
        return record_regions(self._context, base, self._regions_now(base))

    @property
    def tags(self) -> Tags:
        """The names of base versions."""
        return Tags(self._context, self.snapshot_regions)

    def _regions_now(self, base: BaseTable) -> list[RegionManifest]:
        """The recorded states of all regions."""
        store = self._context.store
        return map_concurrently(
            lambda region: region.with_values(note_last_seen(store, region.refresh())),
            self._collector.registry.regions(base),
        )

    def checkpoint(self, name: str, expires: Expires = None) -> int:
        """Retain the current state, as a strong reader sees it, for `open_table(uri,
        checkpoint=name)`.

        Nothing is copied or flushed: the base version (by a Lance tag), the flushed generations and
        the WAL entries that the checkpoint reads are not collected while it exists.

        Args:
            name: letters, digits, dots, dashes and underscores.
            expires: a time with a time zone, or a timedelta from now; None: never.

        Returns the base version that it retains.

        Examples:
            >>> version = table.checkpoint("monday", timedelta(days=7))
            >>> table.as_of(checkpoint="monday").count_rows()
            2
        """
        self._check_writable("make checkpoints")
        return make_checkpoint(self._context, self._collector, self._base_of, name, expires)

    def checkpoints(self) -> pa.Table:
        """One row per checkpoint, by name, including expired ones until they are collected."""
        return list_checkpoints(self._context)

    def drop_checkpoint(self, name: str) -> None:
        """Drop a checkpoint."""
        self._context.check_writes()
        drop_checkpoint(self._context, name)

    def collect_garbage(
        self,
        *,
        dry_run: bool = False,
        older_than: timedelta = DEFAULT_GRACE,
        versions_older_than: timedelta | None = None,
        progress: Report | None = None,
    ) -> pa.Table:
        """Delete files that no reader needs: merged generations, flushed WAL entries, old region
        manifests, leftovers of failed flushes and dead processes, and expired checkpoints.

        A generation is deleted once it is in the base table and in the maintained indexes, and no
        checkpoint and no region snapshot of a retained base version reads it. Any number of
        collectors may run beside readers, writers and mergers; if one dies, the next one completes
        its work.

        Args:
            dry_run: only return what would be deleted.
            older_than: readers that run for longer may get a SourceGoneError and must start again;
                change feeds that fall behind further must start again.
            versions_older_than: also let Lance clean up base versions older than this, except
                tagged ones, together with the files that their region snapshots retain. None keeps
                all.
            progress: called with the number of files deleted.

        Returns one row per deletion: kind, region_id, path, bytes, files, reason.
        """
        (self._check_present if dry_run else self._check_writable)("collect garbage")
        self._collector.not_below_watermarks(self._tracker.latest())  # raises for other rows
        return collect_garbage(
            self._context,
            dry_run=dry_run,
            older_than=older_than,
            versions_older_than=versions_older_than,
            report=progress or report_nothing,
        )

    def check(self, progress: Report | None = None) -> CheckReport:
        """Check every invariant of the table: manifests, write-ahead logs, generations with their
        bloom filters and indexes, keys and their regions, merge progress, region snapshots,
        checkpoints and leftovers. Reads all unmerged rows, and the keys of the base table. Changes
        nothing. It may run beside writers and jobs: a state that looks wrong is read again before
        it is reported.

        Returns a report that prints. `report.ok` says whether every row is present and right;
        iterating gives the findings, the worst first.

        Examples:
            >>> table.check().ok
            True
        """
        self._check_present("check")
        return check_table(self._context, self._tracker.reload, progress or report_nothing)
