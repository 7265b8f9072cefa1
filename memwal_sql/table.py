"""The table handle: what a program does with a MemWAL table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import pyarrow as pa
from rich.tree import Tree

from exec_nodes.kernels.keys import KeyBatch, as_key_table
from exec_nodes.kernels.one_key import one_key
from exec_nodes.sources.at_once import at_once
from memwal_sql.errors import InvalidCallError
from memwal_sql.index.create import create_index, drop_index
from memwal_sql.maintain.check import check_table
from memwal_sql.maintain.checkpoint_records import Checkpoint
from memwal_sql.maintain.checkpoints import (
    Expires,
    drop_checkpoint,
    list_checkpoints,
    make_checkpoint,
)
from memwal_sql.maintain.findings import CheckReport
from memwal_sql.maintain.garbage import DEFAULT_GRACE, collect_garbage
from memwal_sql.maintain.index_builder import build_indexes
from memwal_sql.maintain.merger import Merger
from memwal_sql.maintain.progress import Report, report_nothing
from memwal_sql.maintain.region_snapshots import note_last_seen, record_regions
from memwal_sql.read import inspect
from memwal_sql.read.base import BaseTable, BaseTracker, load_base
from memwal_sql.read.change_offsets import Offsets
from memwal_sql.read.changes import change_offsets, changes
from memwal_sql.read.collector import SnapshotCollector
from memwal_sql.read.context import TableContext
from memwal_sql.read.lookup import distinct
from memwal_sql.read.pinned import PinnedSnapshot, PinnedTable
from memwal_sql.read.planning import plan_over, stream
from memwal_sql.read.point_reader import PointReader
from memwal_sql.read.recorded import check_whole
from memwal_sql.search.options import DEFAULT_K
from memwal_sql.search.searches import full_text_search, hybrid_search, vector_search
from memwal_sql.sql.filtered_scan import filtered_scan
from memwal_sql.sql.search_rows import search_rows
from memwal_sql.storage.base_indexes import IndexRecipe
from memwal_sql.storage.region_manifest import RegionManifest
from memwal_sql.view.html import render_html
from memwal_sql.view.overview import Overview, overview
from memwal_sql.view.terminal import render_tree
from memwal_sql.write.batch_marks import last_complete
from memwal_sql.write.generation_writer import GenerationWriter
from memwal_sql.write.live import live_table_writer
from memwal_sql.write.options import WriterOptions
from memwal_sql.write.staged import StagedTask, Stager, discard, staging_folder
from memwal_sql.write.staged_publish import Publisher, routing_spec
from memwal_sql.write.staged_replace import replace_rows
from memwal_sql.write.staged_rows import RowForm
from memwal_sql.write.table_writer import TableWriter
from planner.model import Query, Snapshot, TableInfo


class Table:
    """A Lance table with an LSM tree in front of it.

    Safe to share between threads. Reads are strongly consistent unless they say otherwise: what
    any writer has been told is durable is seen, and what this process's own writers have buffered.
    """

    def __init__(
        self,
        context: TableContext,
        dataset: Any,
        *,
        pinned: bool = False,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        self._context = context
        self._pinned = pinned
        self._tracker = BaseTracker(context, dataset)
        if pinned and checkpoint is None:
            check_whole(context, self._tracker.current)
        specs = self._tracker.current.info.region_specs
        held = None if checkpoint is None else checkpoint.snapshot(specs)
        self._collector = SnapshotCollector(context, self._tracker, pinned=pinned, held=held)
        self._points = PointReader(self._collector, self._tracker)
        self._insert_writer: TableWriter | None = None

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._context.uri

    @property
    def schema(self) -> pa.Schema:
        """The columns, in the base table's order."""
        return self._tracker.current.info.schema

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key's columns, in key order."""
        return self._tracker.current.info.primary_key

    @property
    def info(self) -> TableInfo:
        """The columns, the primary key and the region specs."""
        return self._tracker.current.info

    @property
    def version(self) -> int:
        """The newest base table version this handle has read."""
        return self._tracker.current.version

    @property
    def reads_base_alone(self) -> bool:
        """Whether this handle reads a version in which no region states were recorded (by
        `snapshot_regions` or a merge): only what had been merged by then is seen."""
        return self._pinned and self._collector.reads_base_alone

    def writer(self, *, region: str | None = None, **options: Any) -> TableWriter:
        """A writer, to be used as a context manager; it claims regions as rows come for them.

        Args:
            region: the region's name or UUID, for tables with manual regions only.
            options: the fields of `WriterOptions`, such as `durable=True, indexed=True`.
        """
        self._check_present("write")
        known = WriterOptions.__dataclass_fields__
        unknown = sorted(set(options) - set(known))
        if unknown:
            raise InvalidCallError(f"unknown writer options {unknown}; there are {sorted(known)}")
        base = self._tracker.latest()
        return TableWriter(
            context=self._context,
            info=base.info,
            base=base.dataset,
            region_of=lambda spec_id, values: self._collector.manifest_of(base, spec_id, values),
            indexes=self._index_recipes,
            region=region,
            options=WriterOptions(**options),
        )

    def stager(self, job: str, form: RowForm) -> Stager:
        """Stages the rows of one task of a distributed write, for a `publisher` to publish.

        Args:
            job: names the folder of what the job's tasks stage; `discard_staged` removes it.
        """
        self._check_present("write")
        base = self._tracker.latest()
        return Stager(
            store=self._context.store,
            writer=GenerationWriter(self._context, base.info, base.dataset, self._index_recipes),
            spec=routing_spec(base.info),
            form=form,
            folder=staging_folder(job),
        )

    def publisher(self) -> Publisher:
        """Publishes what the tasks of a distributed write have staged."""
        self._check_present("write")
        return Publisher(
            context=self._context,
            base=self._tracker.latest,
            find=lambda spec_id, values: self._collector.manifest_of(
                self._tracker.current, spec_id, values
            ),
        )

    def replace_staged(self, tasks: Sequence[StagedTask]) -> int:
        """Replace all rows by what tasks have staged, in one step that readers see.

        Other writers are fenced. Returns the base table version that has the new rows; raises what
        `Publisher.publish` raises, and RetryError when other commits kept coming in between.
        """
        self._check_present("write")

        def manifests() -> list[RegionManifest]:
            regions = self._collector.regions(self._tracker.latest())
            return [region.refresh() for region in regions]

        publisher = self.publisher()
        version = replace_rows(
            self._context,
            self._tracker.latest(),
            tasks,
            empty_wals=lambda: publisher.empty_wals(manifests()),
            merge=self.merge,
            manifests=manifests,
        )
        self.build_indexes()
        return version

    def last_batch(self, query_id: str) -> int:
        """The last batch of a query that is complete here; -1 when there is none."""
        return last_complete(self._context.store, query_id)

    def discard_staged(self, job: str) -> None:
        """Remove what the tasks of a job have staged and nobody has published."""
        discard(self._context.store, staging_folder(job))

    def get(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The live rows with these primary keys, in the order asked; absent keys give no row.

        Args:
            keys: one key or many: values, tuples for a composite key, or anything Arrow that has
                the key columns. A key given twice is answered once.
            columns: which columns; all of them by default.
        """
        base = self._tracker.current
        names = self._columns(columns)
        schema, primary_key = base.info.schema, base.info.primary_key
        batch = one_key(keys, schema, primary_key) or distinct(
            KeyBatch(as_key_table(keys, schema, primary_key))
        )
        if self._pinned:
            return self._points.get_in(self._collector.collect("eventual"), batch, names)
        return self._points.get(batch, names)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 (the word that Lance and its users use)
        limit: int | None = None,
        consistency: str = "strong",
    ) -> pa.RecordBatchReader:
        """The live rows, streamed in no particular order.

        Args:
            filter: a SQL condition as in WHERE.
            limit: at most so many rows.
        """
        names = self._columns(columns)
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise InvalidCallError(f"limit={limit!r} must be a number of rows, 0 or more")
        if filter is not None:
            return filtered_scan(self, names, filter, limit, consistency)
        return stream(plan_over(lambda: self.snapshot(consistency), Query(names, (), limit)), limit)

    def vector_search(
        self,
        column: str,
        query: Any,
        k: int = DEFAULT_K,
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        consistency: str = "strong",
        **options: Any,
    ) -> pa.Table:
        """The `k` live rows nearest to a vector, with `_distance` (float32), the nearest first.

        Args:
            query: a vector as a list, array or bytes; or several, as the rows of a matrix or a
                list of lists: then each has its `k` rows, and `query_index` (int32) says whose a
                row is.
            filter: a SQL condition; only rows that meet it are ranked.
            columns: which columns; all of them by default.
            options: `metric` (`"l2"`, squared; `"cosine"`, `"dot"`, `"hamming"`; that of the
                column's index when left out), `nprobes`, `refine_factor` and `ef` for how
                thoroughly an index is searched, `exact=True` to measure every row, `lower_bound`
                and `upper_bound` for distances within these only.

        A column needs no index: its rows are measured one by one then. Raises InvalidCallError
        naming the value and the remedy.
        """
        schema = self.schema
        search = vector_search(schema, column, query, k, options)
        return search_rows(self, schema, search, self._columns(columns), filter, consistency)

    def full_text_search(
        self,
        column: str | Sequence[str],
        query: Any,
        k: int = DEFAULT_K,
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        consistency: str = "strong",
        **options: Any,
    ) -> pa.Table:
        """The `k` live rows that match a text query best, with `_score` (float32), best first.

        Scores are those of BM25 over all live rows, whatever part of the table they are in.

        Args:
            column: the column to search, or several, of which the best one counts.
            query: words, any of which may match; a query of `lance.query`; or its JSON form, as
                a string or a mapping: `{"phrase": {"terms": "write ahead log", "slop": 1}}` (see
                `exec_nodes.text.parse_query`). An empty text and stop words find nothing.
            filter: a SQL condition; only rows that meet it are ranked. It changes no score.
            columns: which columns; all of them by default.
            options: of a query of words: `operator` (`"OR"`, `"AND"`), `boost`, `fuzziness`,
                `max_expansions`, `prefix_length`, `minimum_should_match`.

        A column needs no index: its texts are tokenized then. Raises InvalidCallError naming the
        value and the remedy.
        """
        schema = self.schema
        search = full_text_search(schema, column, query, k, options)
        return search_rows(self, schema, search, self._columns(columns), filter, consistency)

    def hybrid_search(
        self,
        vector_column: str,
        vector: Any,
        text_column: str | Sequence[str],
        text: Any,
        k: int = DEFAULT_K,
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        consistency: str = "strong",
        **options: Any,
    ) -> pa.Table:
        """The `k` live rows that do best in a vector and a text search together, best first.

        The two rankings are fused by reciprocal rank: a row gets `weight / (60 + rank)` from each
        that knows it. Adds `_distance` and `_score` (null where that search does not know the
        row) and `_relevance_score` (float32).

        Args:
            options: those of the two searches, and `candidates`, how many rows of each ranking
                count (four times `k`), `vector_weight` and `text_weight` (1), and `rrf_k` (60).
        """
        schema = self.schema
        search = hybrid_search(schema, vector_column, vector, text_column, text, k, options)
        return search_rows(self, schema, search, self._columns(columns), filter, consistency)

    def snapshot(self, consistency: str = "strong", filters: Sequence[str] = ()) -> Snapshot:
        """One consistent, immutable state of the table; see `SnapshotCollector.collect`."""
        return self._collector.collect(consistency, filters)

    def pin(self, consistency: str = "strong", filters: Sequence[str] = ()) -> PinnedSnapshot:
        """What `snapshot` would read, by name: it pickles, and any process rebuilds the same."""
        return self._collector.pin(consistency, filters)

    def pinned_table(self) -> PinnedTable:
        """Rebuilds snapshots that a handle of the same table pinned, here or elsewhere."""
        return PinnedTable(self._context)

    def writer_for_insert(self) -> TableWriter:
        """The writer that INSERT uses: one this process has open for the table, or its own.

        Claiming anew for every statement would fence the writer of the statement before.
        """
        self._check_present("write")
        writer = live_table_writer(self.uri)
        if writer is None:
            writer = self._insert_writer = self.writer()
        return writer

    def regions(self) -> pa.Table:
        """One row a region: its values, epoch, positions and generations."""
        self._check_present("show the present")
        return inspect.regions(self._tracker.latest(), self._collector)

    def generations(self) -> pa.Table:
        """One row a generation that is not merged yet, MemTables included."""
        self._check_present("show the present")
        return inspect.generations(self._tracker.latest(), self._collector)

    def wal(self) -> pa.Table:
        """One row a WAL entry that is there, in order of region and position."""
        self._check_present("show the present")
        return inspect.wal(self._context, self._tracker.latest(), self._collector)

    def indexes(self) -> pa.Table:
        """One row an index of the base table."""
        base = self._tracker.current if self._pinned else self._tracker.latest()
        return inspect.indexes(base)

    def merge(self, progress: Report | None = None, regions: Sequence[str] | None = None) -> int:
        """Move what has been flushed by now into the base table, and record the regions.

        Any number of processes may merge at the same time, and write and read meanwhile.

        Args:
            progress: is called with the rows merged so far, of one generation after the other.
            regions: only the regions with these names or ids; all by default.

        Returns how many generations this call has merged. Raises RepairError where the files of
        a generation are missing or damaged; everything is still read as it was then.
        """
        self._check_present("merge")
        found = self._collector.regions(self._tracker.latest())
        if regions is not None:
            known = {name: one for one in found for name in (one.name, str(one.region_id))}
            unknown = sorted(set(regions) - set(known))
            if unknown:
                raise InvalidCallError(
                    f"there are no regions {unknown}; there are {[one.name for one in found]}"
                )
            found = [one for one in found if {one.name, str(one.region_id)} & set(regions)]
        return Merger(self._context, self.snapshot_regions, progress or report_nothing).run(found)

    def create_index(
        self,
        column: str,
        index_type: str,
        *,
        name: str | None = None,
        replace: bool = False,
        **parameters: Any,
    ) -> None:
        """Build an index over the base table; every generation gets the same from now on.

        Open writers build it from their next flush on, and queries use it at once. Rows that no
        index covers are found all the same, by reading them.

        Args:
            index_type: `"IVF_FLAT"`, `"IVF_PQ"`, `"IVF_SQ"`, `"IVF_RQ"`, `"IVF_HNSW_FLAT"`,
                `"IVF_HNSW_PQ"` or `"IVF_HNSW_SQ"` on a column of vectors, `"FTS"` on one of
                strings; for filters on the base table `"BTREE"` or `"BITMAP"`.
            name: `{column}_idx` when left out. Two indexes of one column need two names.
            replace: build the index of this name anew.
            parameters: as Lance names them. Of vectors: `metric` (`"l2"`, `"cosine"`, `"dot"`,
                `"hamming"`), `num_partitions` or `target_partition_size`, `sample_rate`,
                `ivf_centroids`; `num_sub_vectors`, `num_bits`, `pq_codebook`; `m`,
                `ef_construction`, `max_level`. Of texts: `base_tokenizer`, `language`, `stem`,
                `remove_stop_words`, `custom_stop_words`, `lower_case`, `ascii_folding`,
                `max_token_length`, `min_ngram_length`, `max_ngram_length`, `prefix_only`,
                `with_position`, ...

        Raises InvalidCallError before anything is written when the arguments do not fit, or when
        the base table has too few rows to train on; RetryError when the base table changed so
        that Lance could not commit.
        """
        self._check_present("write")
        create_index(
            self._context, column, index_type, name=name, replace=replace, parameters=parameters
        )

    def drop_index(self, name: str) -> None:
        """Remove an index from the base table; generations get it no more.

        Raises InvalidCallError for an unknown name and for the index of the primary key.
        """
        self._check_present("write")
        drop_index(self._context, name)

    def build_indexes(
        self, progress: Report | None = None, indexes: Sequence[str] | None = None
    ) -> list[str]:
        """Bring the base table's indexes up to date with what was merged into it.

        Vector indexes keep their centroids and codebooks: nothing is trained.

        Args:
            progress: is called after each index.
            indexes: only those with these names; all by default.

        Returns the names of the indexes that were behind.
        """
        self._check_present("build indexes")
        return build_indexes(self._context, progress or report_nothing, indexes)

    def snapshot_regions(self) -> int:
        """Record the state of all regions in the MemWAL index, for `eventual` readers.

        Returns the base table version that holds the record.
        """
        self._check_present("write")
        base = self._tracker.latest()
        regions = self._collector.regions(base)
        store = self._context.store
        manifests = at_once(lambda region: note_last_seen(store, region.refresh()), regions)
        return record_regions(self._context, manifests, base.info.region_specs)

    def changes(
        self,
        region: str | UUID | None = None,
        after: Offsets | None = None,
        until: Offsets | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """The rows written after a place, region by region in the order of writing, as the table's
        columns and `_change` (`upsert` or `delete`), `_region` (id), `_position` (in the region's
        WAL) and `_generation`. Deletes have their key only. What is durable is here, and nothing
        else; the stream ends with what was there when it came to the region. What others change
        in the base table itself is not here: rows from before `enable`, Lance's own writes, a
        replacement of all rows.

        Args:
            region: its id or name; all regions by default.
            after: a WAL position, or `[position, generation]` as the last row read has them; by
                region id or name for several regions. A region that is not named is read from its
                beginning.
            until: the last place to be read, the same way; a region that is not named is not read.
            columns: which columns of the table; all of them by default.

        Raises ChangesCollectedError, here or in the middle of the stream, where changes after
        `after` were collected, and InvalidCallError for a place or a region that is not there.
        """
        self._check_present("follow changes")
        return changes(
            self._context,
            self._tracker.latest(),
            self._collector,
            region=region,
            after=after,
            until=until,
            columns=self._columns(columns),
        )

    def change_offsets(self) -> dict[str, list[int]]:
        """The place after everything written so far, `[position, generation]` by region id."""
        self._check_present("follow changes")
        return change_offsets(self._context, self._tracker.latest(), self._collector)

    def checkpoint(self, name: str, expires: Expires = None) -> int:
        """Hold the table as a strong reader sees it now, for `open_table(uri, checkpoint=name)`.

        Nothing is copied or flushed: the base version (by a Lance tag), the flushed generations
        and the WAL entries that the checkpoint reads are not collected while it lasts.

        Args:
            name: letters, digits, dots, dashes and underscores.
            expires: a time with a time zone, or a timedelta from now; None: until it is dropped.

        Returns the base table version that it holds.
        """
        self._check_present("make checkpoints")
        return make_checkpoint(self._context, self._collector, self._base_of, name, expires)

    def checkpoints(self) -> pa.Table:
        """One row a checkpoint, by name, expired ones too until they are collected."""
        return list_checkpoints(self._context)

    def drop_checkpoint(self, name: str) -> None:
        """Let go of what a checkpoint holds."""
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
        manifests, what failed flushes and dead processes left, and checkpoints that ended.

        A generation goes once it is in the base table and in the indexes that are maintained, and
        no retained base version's region snapshot and no checkpoint reads it. Any number of
        collectors may run, beside readers, writers and mergers; one that dies is made up for by
        the next.

        Args:
            dry_run: only say what would be deleted.
            older_than: readers that are at it for longer may get a SourceGoneError and must begin
                again; change feeds that fall behind further must begin anew.
            versions_older_than: let Lance clean up base versions older than this, too, except
                tagged ones; what their region snapshots hold goes with them. None keeps them all.
            progress: is told how many files have been deleted.

        Returns one row a thing deleted: kind, region_id, path, bytes, files, reason.
        """
        self._check_present("collect garbage")
        self._tracker.latest()  # raises for a base table that was overwritten
        return collect_garbage(
            self._context,
            dry_run=dry_run,
            older_than=older_than,
            versions_older_than=versions_older_than,
            report=progress or report_nothing,
        )

    def overview(self) -> Overview:
        """The table's tree as numbers: regions, generations, sizes, merge and index progress; of
        a handle on a version, as they were recorded there."""
        base = self._tracker.current if self._pinned else self._tracker.latest()
        return overview(self._context, base, self._collector, pinned=self._pinned)

    def check(self, progress: Report | None = None) -> CheckReport:
        """Look at every invariant of the table: manifests, write-ahead logs, generations with
        their bloom filters and indexes, keys and their regions, merge progress, region snapshots,
        checkpoints, and what is left over.

        Reads all that is not merged, and the keys of the base table. Nothing is changed. It may
        run beside writers and jobs: what looks wrong is looked at again.

        Returns a report that prints; `report.ok` says whether every row is there and right, and
        iterating gives the findings, the worst first.
        """
        self._check_present("check")
        return check_table(self._context, self._tracker.reload, progress or report_nothing)

    def close(self) -> None:
        """Close the writer that INSERT statements opened, if any."""
        if self._insert_writer is not None:
            self._insert_writer.close()
            self._insert_writer = None

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __rich__(self) -> Tree:
        return render_tree(self.overview())

    def _repr_html_(self) -> str:
        return render_html(self.overview())

    def __repr__(self) -> str:
        key = ", ".join(self.primary_key)
        return f"Table({self.uri!r}, version={self.version}, primary_key=[{key}])"

    def _base_of(self, version: int) -> BaseTable:
        """A base version that a snapshot has just been taken of."""
        base = self._tracker.current
        if base.version != version:
            dataset = base.dataset.checkout_version(version)
            base = load_base(self._context, dataset, base.info)
        return base

    def _index_recipes(self) -> Sequence[IndexRecipe]:
        return self._tracker.latest().indexes.recipes()

    def _check_present(self, what: str) -> None:
        if self._pinned:
            raise InvalidCallError(
                f"this handle reads version {self.version}; open_table(uri) without a version "
                f"gives one that can {what}"
            )

    def _columns(self, columns: Sequence[str] | None) -> tuple[str, ...]:
        names = self.schema.names
        if columns is None:
            return tuple(names)
        if isinstance(columns, str):
            raise InvalidCallError(f"columns={columns!r} must be a list: [{columns!r}]")
        unknown = [name for name in columns if name not in names]
        if unknown:
            raise InvalidCallError(f"unknown columns {unknown}; the table has {names}")
        if len(set(columns)) != len(columns):
            raise InvalidCallError(f"columns={list(columns)} names a column twice")
        return tuple(columns)
