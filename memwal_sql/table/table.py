"""The table handle: everything that a program does with a MemWAL table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Self, Unpack
from uuid import UUID

import pyarrow as pa

from memwal_native import MountedTable
from memwal_sql.arguments import name_list
from memwal_sql.errors import InvalidCallError
from memwal_sql.index.kinds import IndexKind, IndexParameters
from memwal_sql.maintain.progress import Report, report_nothing
from memwal_sql.read.pinned import PinnedSnapshot, PinnedTable
from memwal_sql.read.snapshots import Consistency
from memwal_sql.search.options import DEFAULT_K, HybridOptions, Rerank, TextOptions, VectorOptions
from memwal_sql.state.batch_marks import last_complete
from memwal_sql.state.context import TableContext
from memwal_sql.table.handle import TableHandle, named_columns
from memwal_sql.table.lookups import get_rows
from memwal_sql.table.moments import check_moment
from planner.predicates.expr import Predicate

if TYPE_CHECKING:
    from lance.fragment import FragmentMetadata
    from pyarrow.dataset import Dataset

    from memwal_sql.bulk.publish import Publisher
    from memwal_sql.bulk.rows import RowForm
    from memwal_sql.bulk.stage import StagedTask, StageLimits, Stager
    from memwal_sql.history.tags import Tags
    from memwal_sql.maintain.checkpoint.checkpoints import Expires
    from memwal_sql.maintain.checks.findings import CheckReport
    from memwal_sql.maintain.columns import ColumnShare
    from memwal_sql.maintain.compact.compactor import Compactor
    from memwal_sql.maintain.merge.shares import MergedShare, MergeShare, Run
    from memwal_sql.maintain.unflushed import UnflushedLog
    from memwal_sql.read.changes.offsets import Offsets
    from memwal_sql.state.open_writers import OpenTable
    from memwal_sql.table.columns import Added
    from memwal_sql.view.overview import Overview
    from memwal_sql.write.conditional.resolve import ReadChanges
    from memwal_sql.write.coordinator import Description
    from memwal_sql.write.options import WriterArguments
    from memwal_sql.write.result import WriteResult
    from memwal_sql.write.table_writer import TableWriter

DEFAULT_GRACE = timedelta(hours=1)


class Table(TableHandle):
    """A Lance table with an LSM tree in front of it.

    Safe to share between threads. Reads are strongly consistent by default: they see every row that
    any writer reported as durable, and those that this process's own writers have buffered.

    A table has the Arrow PyCapsule interface: pyarrow, polars, DuckDB, pandas and others take the
    table itself, any number of times, and read the current state each time.

    Rows follow their columns, when these are changed, wherever they are: in the base table, in
    generations, in logs and in memory. An open writer keeps the columns it was opened with in the
    regions that it has: its rows have nulls in added columns, and its values of dropped columns are
    not read. It claims no other region, as others may have written columns there that it does not
    know: ReopenError.
    """

    def get(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The live rows with these primary keys, in the order of the keys; absent keys give no row.

        Args:
            keys: one key or many: values, tuples for a composite key, or any Arrow data with the
                key columns. A key given twice is answered once.
            columns: the columns; all of them by default.

        Examples:
            >>> table.get([2, 7], ["id", "degrees"]).to_pylist()
            [{'id': 2, 'degrees': 16.0}]
        """
        return get_rows(self, keys, columns)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002 (the word that Lance and its users use)
        limit: int | None = None,
        consistency: Consistency = "strong",
    ) -> pa.RecordBatchReader:
        """The live rows, streamed in no particular order.

        Args:
            filter: a SQL condition as in WHERE.
            limit: the most rows to return.

        Examples:
            >>> table.scan(["id"], filter="degrees > 10").read_all().to_pylist()
            [{'id': 2}]
        """
        from memwal_sql.table import scanning

        return scanning.scanned(self, lambda rows: rows, columns, filter, limit, consistency)

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
        consistency: Consistency = "strong",
    ) -> pa.Table:
        """The rows of `scan` as a table in memory."""
        from memwal_sql.table import scanning

        return scanning.to_arrow(self, columns, filter, limit, consistency)

    def to_pandas(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
        consistency: Consistency = "strong",
    ) -> Any:
        """`to_arrow` as a pandas frame."""
        return self.to_arrow(columns, filter, limit, consistency).to_pandas()

    def to_polars(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        limit: int | None = None,
        consistency: Consistency = "strong",
        *,
        lazy: bool = False,
    ) -> Any:
        """`to_arrow` as a polars frame. Raises UnsupportedError where polars is not installed.

        Args:
            lazy: return a LazyFrame, which reads the current rows each time that it is collected:
                only the columns, and as far as conditions and limits reach the scan only the rows,
                that its query needs.
        """
        from memwal_sql.table import scanning

        return scanning.polars_frame(self, columns, filter, limit, consistency, lazy=lazy)

    def to_dataset(
        self,
        filter: str | None = None,  # noqa: A002
        consistency: Consistency = "strong",
    ) -> Dataset:
        """The table as a dataset of pyarrow, for DuckDB and others that read datasets; each scan
        reads the current rows.

        Only the columns that a query names are read, and rows that do not meet its conditions do
        not go over; which parts of the table are read depends on `filter` alone.
        """
        from memwal_sql.table import scanning

        return scanning.dataset(self, filter, consistency)

    def count_rows(
        self,
        filter: str | None = None,  # noqa: A002
        consistency: Consistency = "strong",
    ) -> int:
        """The number of live rows, or of those that meet `filter`, a SQL condition.

        Examples:
            >>> table.count_rows("degrees > 10")
            1
        """
        from memwal_sql.table import scanning

        return scanning.count_rows(self, filter, consistency)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """The current live rows as a stream of the Arrow PyCapsule interface."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def __datafusion_table_provider__(self, session: Any) -> Any:
        """For `ctx.register_table(name, table)` and `ctx.read_table(table)`: strong reads, each
        when its query begins. `memwal_sql.register` also registers the table functions and the
        metadata tables."""
        from memwal_sql.session.provider import TableProvider

        provider = MountedTable(TableProvider(self.uri, self))
        return provider.__datafusion_table_provider__(session)

    def vector_search(
        self,
        column: str,
        query: Any,
        k: int = DEFAULT_K,
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        consistency: Consistency = "strong",
        rerank: Rerank | None = None,
        candidates: int | None = None,
        **options: Unpack[VectorOptions],
    ) -> pa.Table:
        """The `k` live rows nearest to a vector, nearest first, with `_distance` (float32).

        Args:
            query: a vector as a list, array or bytes; or several, as the rows of a matrix or a list
                of lists. Each of several has its `k` rows, and `query_index` (int32) gives its
                position. If rows have lists of vectors, several are one query: `_distance` sums the
                least distance of each of them.
            filter: a SQL condition; only rows that meet it are ranked.
            columns: the columns; all of them by default.
            rerank: a function that takes a `pyarrow.Table` of the `candidates` best rows (by
                default four times `k`) and returns an array with a score for each. The `k` rows
                with the highest scores are returned, and `_relevance_score` (float32).
            options: `metric` (`"l2"`, squared; `"cosine"`, `"dot"`, `"hamming"`; by default the
                column's index decides), `nprobes`, `refine_factor` and `ef` for how thoroughly an
                index is searched, `exact=True` to measure every row, `lower_bound` and
                `upper_bound` for distances between these only.

        Without an index on the column every row is measured. Raises InvalidCallError naming the
        value and the remedy.

        Examples:
            >>> schema = pa.schema({"id": pa.int64(), "vec": pa.list_(pa.float32(), 2)})
            >>> points = mw.create_table("points", schema, "id")
            >>> vectors = [[0.0, 1.0], [3.0, 0.0]]
            >>> with points.writer() as writer:
            ...     result = writer.upsert({"id": [1, 2], "vec": vectors})
            >>> points.vector_search("vec", [0.0, 0.5], k=1, columns=["id"]).to_pylist()
            [{'id': 1, '_distance': 0.25}]
        """
        from memwal_sql.search.request import vector_search
        from memwal_sql.search.rerank import candidate_count
        from memwal_sql.table.searching import searched

        rows = candidate_count(k, rerank, candidates)
        search = partial(vector_search, column=column, query=query, k=rows, options=options)
        return searched(self, search, filter, columns, consistency, rerank, k)

    def full_text_search(
        self,
        column: str | Sequence[str],
        query: Any,
        k: int = DEFAULT_K,
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        consistency: Consistency = "strong",
        rerank: Rerank | None = None,
        candidates: int | None = None,
        **options: Unpack[TextOptions],
    ) -> pa.Table:
        """The `k` live rows that match a text query best, best first, with `_score` (float32).

        Scores are BM25 scores over all live rows, whatever part of the table they are in.

        Args:
            column: the column to search, or several, of which the best one counts: texts, lists of
                texts, which count as one text, or fields of structs with these, as `about.title`.
            query: words, any of which may match; or a query in the JSON form, a string or a
                mapping: `{"phrase": {"query": "write ahead log", "slop": 1}}` (see
                `exec_nodes.text.query.parse`). An empty text and stop words find nothing. In words,
                AND, OR, NOT, quotation marks, + and - have no meaning: `operator="AND"` asks for
                all words, and the JSON form has `boolean` and `phrase`. With `plain=True` any text
                is words, even one that begins with `{`: for texts that users type.
            filter: a SQL condition; only rows that meet it are ranked. It changes no score.
            columns: the columns; all of them by default.
            rerank, candidates: as in `vector_search`.
            options: for a query of words: `operator` (`"OR"`, `"AND"`), `boost`, `fuzziness`,
                `max_expansions`, `prefix_length`, `minimum_should_match`, `plain`.

        Without an index on the column its texts are tokenized. Raises InvalidCallError naming the
        value and the remedy.

        Examples:
            >>> table.full_text_search("city", "rome", columns=["id"])["id"].to_pylist()
            [2]
        """
        from memwal_sql.search.request import full_text_search
        from memwal_sql.search.rerank import candidate_count
        from memwal_sql.table.searching import searched

        rows = candidate_count(k, rerank, candidates)
        search = partial(full_text_search, column=column, query=query, k=rows, options=options)
        return searched(self, search, filter, columns, consistency, rerank, k)

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
        consistency: Consistency = "strong",
        rerank: Rerank | None = None,
        **options: Unpack[HybridOptions],
    ) -> pa.Table:
        """The `k` live rows that rank best in a vector and a text search together, best first.

        The two rankings are fused by reciprocal rank: a row gets `weight / (60 + rank)` from each
        ranking that has it. Adds `_distance` and `_score` (null if that search does not have the
        row) and `_relevance_score` (float32).

        Args:
            rerank: as in `vector_search`; it gets all candidates of both rankings, ordered by
                `_relevance_score`, and the scores that it returns replace that.
            options: the options of the two searches, and `candidates`, the number of rows of each
                ranking that count (four times `k`), `vector_weight` and `text_weight` (1), and
                `rrf_k` (60).
        """
        from memwal_sql.search.request import hybrid_search
        from memwal_sql.table.searching import searched

        search = partial(
            hybrid_search,
            vector_column=vector_column,
            vector=vector,
            text_column=text_column,
            text=text,
            k=k,
            options=options,
            whole=rerank is not None,
        )
        return searched(self, search, filter, columns, consistency, rerank, k)

    def writer(
        self, *, region: str | None = None, **options: Unpack[WriterArguments]
    ) -> TableWriter:
        """A writer, to use as a context manager; it claims regions when rows come for them.

        Args:
            region: the region's name or UUID, only for tables with manual regions.
            options: the fields of `WriterOptions`, such as `durable=True, indexed=True`.

        Examples:
            >>> with table.writer() as writer:
            ...     result = writer.upsert([{"id": 4, "city": "Lima", "degrees": 19.0}])
            >>> table.count_rows()
            3
        """
        from memwal_sql.table import writing

        return writing.writer(self, region, options)

    def changes(
        self,
        region: str | UUID | None = None,
        after: Offsets | None = None,
        until: Offsets | None = None,
        columns: Sequence[str] | None = None,
        *,
        old_rows: bool = False,
    ) -> pa.RecordBatchReader:
        """The rows written after a place, region by region in the order of writing, with the
        table's columns and `_change` (`upsert` or `delete`), `_region` (id), `_position` (in the
        region's WAL), `_generation` and `_transaction` (its id; null for rows of none). Deletes
        have their key only. The stream has durable rows only, and ends with those that existed when
        it came to the region, or before a transaction that is not decided yet. Changes in the base
        table itself are not included: rows from before `enable`, Lance's own writes, a replacement
        of all rows.

        Args:
            region: its id or name; all regions by default.
            after: a WAL position, or `[position, generation]` as in the last row read; by region id
                or name for several regions. A region that is not named is read from its beginning.
            until: the last place to read, in the same form; a region that is not named is not read.
            columns: the columns of the table; all of them by default.
            old_rows: adds the column `_before`, a struct of the columns: the row that the key had
                right before the change, in the region's order; null where it had none.

        Raises ChangesCollectedError, here or in the middle of the stream, if changes after `after`,
        or their old rows, were collected, and InvalidCallError for a place or a region that does
        not exist.

        Examples:
            >>> sorted(row["id"] for batch in table.changes() for row in batch.to_pylist())
            [1, 2, 2, 3, 3]
        """
        from memwal_sql.read.changes.feed import changes

        self.check_present("follow changes")
        return changes(
            self.context,
            self.collector.versions.not_below_watermarks(self.tracker.latest()),
            self.collector.registry,
            region=region,
            after=after,
            until=until,
            columns=named_columns(columns, self.schema),
            old_rows=old_rows,
        )

    def change_offsets(self) -> dict[str, list[int]]:
        """The place after everything written so far, `[position, generation]` by region id.

        Of a handle on a checkpoint or a time, the place after everything that this state has: who
        has read its rows, and follows from there, misses no change and gets none twice. Raises
        InvalidCallError for a version, whose place is not known.
        """
        from memwal_sql.read.changes.feed import change_offsets, past_offsets

        if self._fixed is not None:
            return past_offsets(self.context, self.tracker.loaded, self._fixed.pin())
        self.check_present("say where its changes end, as one of a checkpoint or a time can")
        base = self.collector.versions.not_below_watermarks(self.tracker.latest())
        return change_offsets(self.context, base, self.collector.registry)

    def as_of(
        self,
        version: int | str | None = None,
        *,
        timestamp: datetime | str | None = None,
        checkpoint: str | None = None,
    ) -> Table:
        """A handle on a past state of the table. Give one of the arguments, which are those of
        `open_table`."""
        check_moment(version, timestamp, checkpoint)
        if version is None and timestamp is None and checkpoint is None:
            raise InvalidCallError("give a version, a timestamp or a checkpoint")
        return Table.pinned(self.context, version, timestamp, checkpoint)

    @classmethod
    def pinned(
        cls,
        context: TableContext,
        version: int | str | None,
        timestamp: datetime | str | None,
        checkpoint: str | None,
        dataset: Any = None,
    ) -> Self:
        """A handle on a past state of the table at a context; `dataset` is the version, if it is
        open."""
        from memwal_sql.table import past

        return past.past_handle(cls, context, version, timestamp, checkpoint, dataset)

    def restore(
        self,
        version: int | str | None = None,
        *,
        timestamp: datetime | str | None = None,
        checkpoint: str | None = None,
    ) -> WriteResult:
        """Give the table the rows of a past state. Give one of the arguments, which are those of
        `open_table`.

        Nothing is rolled back: rows that differ are upserted and later rows are deleted, by the
        writer that statements use. Readers, feeds and logs see ordinary writes, the past stays
        readable, and another restore can undo this one. The columns do not change: columns added
        since become null, and dropped ones do not return. Like other statements it loses no
        concurrent write: rows that others write while it runs are compared again.

        Returns the number of rows written. Raises InvalidCallError for a version without a record
        of its regions, as that shows the base table alone, and the errors of `TableWriter.upsert`;
        some regions may have their rows then.
        """
        from memwal_sql.table import restoring

        self.check_writable("be restored")
        past = self.as_of(version, timestamp=timestamp, checkpoint=checkpoint)
        return restoring.restore(self, past)

    def history(self) -> pa.Table:
        """One row per base version that exists, ascending: `version`, `timestamp`, Lance's
        `operation`, rows, files and bytes of the base, the number of recorded regions (null: no
        record), and its tags."""
        from memwal_sql.history.tables import history

        self.check_present("show the present")
        return history(self.context, self.tracker.latest())

    def snapshots(self) -> pa.Table:
        """One row per name of a past state: `name`, `kind` (`checkpoint` or `tag`), base `version`,
        `created`, `expires`."""
        from memwal_sql.history.tables import snapshots

        self.check_present("show the present")
        return snapshots(self.context, self.tracker.latest())

    @property
    def tags(self) -> Tags:
        """The names of base versions."""
        from memwal_sql.history.tags import Tags

        return Tags(self.context, self.snapshot_regions)

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
        from memwal_sql.maintain.checkpoint.checkpoints import make_checkpoint

        self.check_writable("make checkpoints")
        return make_checkpoint(self.context, self.collector, self.base_of, name, expires)

    def checkpoints(self) -> pa.Table:
        """One row per checkpoint, by name, including expired ones until they are collected."""
        from memwal_sql.maintain.checkpoint.checkpoints import list_checkpoints

        return list_checkpoints(self.context)

    def drop_checkpoint(self, name: str) -> None:
        """Drop a checkpoint."""
        from memwal_sql.maintain.checkpoint.checkpoints import drop_checkpoint

        self.context.check_writes()
        drop_checkpoint(self.context, name)

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
        from memwal_sql.index.create import create_index

        self.check_writable("write")
        create_index(
            self.context, column, index_type, name=name, replace=replace, parameters=parameters
        )
        self.afterwards("reading by the new indexes", self.catch_up)

    def drop_index(self, name: str) -> None:
        """Remove an index from the base table; later generations are built without it.

        Raises InvalidCallError for an unknown name and for the index of the primary key.
        """
        from memwal_sql.index.create import drop_index

        self.check_writable("write")
        drop_index(self.context, name)
        self.afterwards("reading by the new indexes", self.catch_up)

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
        from memwal_sql.maintain.index_builder import build_indexes

        self.check_writable("build indexes")
        if indexes is not None:
            indexes = name_list("indexes", indexes)
        return build_indexes(self.context, progress or report_nothing, indexes)

    def indexes(self) -> pa.Table:
        """One row per index of the base table."""
        from memwal_sql.read import inspect

        return inspect.indexes(self.collector.versions.latest())

    def flush(self) -> int:
        """Flush every row written so far into files of the table.

        Each open writer of the table in this process flushes its rows. Every other region with rows
        in its log is claimed and flushed, whether its writer has died or is open in another
        process: that writer claims the region again at its next call; a buffered one stops with
        FencedError.

        Returns the number of regions claimed. Raises the errors of a writer's `flush`,
        CorruptFileError for a damaged log, and RetryError when others kept claiming regions.
        """
        from memwal_sql.table import flushing

        return flushing.flush(self)

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
        from memwal_sql.table import maintaining

        return maintaining.merge(self, progress, regions)

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
        from memwal_sql.table import maintaining

        return maintaining.compact(self, progress, fragments, deleted, dry_run=dry_run)

    def snapshot_regions(self) -> int:
        """Record the state of all regions in the MemWAL index, for `eventual` readers.

        Returns the base version with the record; a new version unless everything is recorded
        already.
        """
        from memwal_sql.maintain.region_snapshots import record_regions
        from memwal_sql.table.maintaining import regions_now

        self.check_writable("write")
        base = self.tracker.latest()
        return record_regions(self.context, base, regions_now(self, base))

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
        from memwal_sql.maintain.gc.collector import collect_garbage

        (self.check_present if dry_run else self.check_writable)("collect garbage")
        self.collector.versions.not_below_watermarks(self.tracker.latest())  # raises for other rows
        return collect_garbage(
            self.context,
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
        from memwal_sql.maintain.checks.run import check_table

        self.check_present("check")
        return check_table(self.context, self.tracker.reload, progress or report_nothing)

    def overview(self) -> Overview:
        """The table's tree as numbers: regions, generations, sizes, merge and index progress, and
        the rows that this handle keeps live, or why not; a handle on a version shows the state
        recorded in it."""
        from memwal_sql.view.collect import overview

        base = self.collector.versions.latest()
        live = None if self._image is None else self._image.state()
        return overview(self.context, base, self.collector.registry, live, pinned=self._pinned)

    def regions(self) -> pa.Table:
        """One row per region: its values, epoch, positions and generations."""
        from memwal_sql.read import inspect

        self.check_present("show the present")
        return inspect.regions(self.tracker.latest(), self.collector.registry)

    def generations(self) -> pa.Table:
        """One row per generation in memory or in files of its own, including merged ones."""
        from memwal_sql.read import inspect

        self.check_present("show the present")
        return inspect.generations(self.tracker.latest(), self.collector.registry)

    def wal(self) -> pa.Table:
        """One row per stored WAL entry, by region and position. `kind` is `rows`, `fence` (of a
        claim) or `read` (a transaction has read the region). `transaction` is the id of the one
        that wrote the entry, and `verdict` is `committed`, `aborted` or `undecided`; null for
        others."""
        from memwal_sql.read import inspect

        self.check_present("show the present")
        return inspect.wal(self.context, self.tracker.latest(), self.collector.registry)

    def files(self) -> pa.Table:
        """One row per file that holds current rows: `kind` (`base`, `deletion`, `generation`,
        `wal`), `region_id`, `number` of the fragment, generation or entry, `path` in the table's
        folder, `bytes`, where known."""
        from memwal_sql.history.tables import files

        self.check_present("show the present")
        return files(self.context, self.tracker.latest(), self.collector.registry)

    def add_columns(self, columns: Added) -> None:
        """Add columns at the end.

        Args:
            columns: fields, which are null in every row; or SQL expressions over the row by name,
                such as `{"total": "price * quantity"}`, whose values each existing row gets. For
                expressions all rows are flushed and merged first, and all regions are claimed
                afterwards: open writers get ReopenError then, and rows that were written meanwhile
                have nulls. Later rows have the values that they are written with.

        Raises InvalidCallError before anything is changed for names that are taken, fields that are
        not nullable and texts that are not expressions over the row; RetryError when other commits
        of the base table kept coming in between; UnsupportedError for expressions with manual
        regions.
        """
        from memwal_sql.table.columns import add_columns

        return add_columns(self, columns)

    def drop_columns(self, names: str | Iterable[str]) -> None:
        """Drop columns together with their indexes. Raises InvalidCallError for unknown names, and
        for columns of the primary key."""
        from memwal_sql.table.columns import drop_columns

        return drop_columns(self, names)

    def rename_column(self, name: str, new: str) -> None:
        """Rename a column; its indexes follow. Raises InvalidCallError for an unknown name, a new
        name that is taken, and a column of the primary key."""
        from memwal_sql.table.columns import rename_column

        return rename_column(self, name, new)

    def set_nullable(self, name: str, nullable: bool = True) -> None:
        """Make a column nullable.

        Raises InvalidCallError for an unknown name and a column of the primary key, and
        UnsupportedError for `nullable=False`, as open writers may write nulls.
        """
        from memwal_sql.table.columns import set_nullable

        return set_nullable(self, name, nullable)

    def set_type(self, name: str, kind: pa.DataType) -> None:
        """Widen a column's type: integers to wider ones, floats to wider ones, decimals to those
        with as many digits or more before and after the point. The column is written again in the
        base table; rows of open writers keep the old type, and are cast when they are read.

        Raises InvalidCallError for an unknown name, any other type, a column of the primary key,
        and one with an index: drop that first.
        """
        from memwal_sql.table.columns import set_type

        return set_type(self, name, kind)

    def set_default(self, name: str, value: Any) -> None:
        """Give a column a default, or none by `value=None`: the value of new rows that lack the
        column, when `upsert`, `insert` and statements of `mw.sql` write them. Open writers keep the
        default that they were opened with.

        It is in the field's metadata, as a text under `memwal_sql:default`. Raises InvalidCallError
        for an unknown name, a column of the primary key, and a value that is not of its type or has
        no text, such as a list.
        """
        from memwal_sql.table.columns import set_default

        return set_default(self, name, value)

    def insert(
        self, rows: pa.Table, columns: pa.Schema, description: Description | None = None
    ) -> WriteResult:
        """Upsert the rows of an INSERT statement, durably.

        They go through the writer that this process has open for the table, or through one that
        this handle keeps for statements: claiming for each would take the regions from the writer
        of the one before. The kept writer is opened again when the columns have changed, as SQL has
        no words for that; a program's writer is left to the program. A writer that is closed
        meanwhile is replaced.

        Args:
            columns: the columns that the statement was planned with.
            description: what the record of its transaction says, if it is one.

        Raises ReopenError if the table has other columns by now, and the errors of
        `TableWriter.upsert`.
        """
        from memwal_sql.table import writing

        return writing.insert(self, rows, columns, description)

    def change(
        self,
        read: ReadChanges,
        columns: pa.Schema,
        *,
        whole: bool = False,
        isolation: str = "snapshot",
        description: Description | None = None,
    ) -> WriteResult:
        """Write the changes that a statement computes from the rows it reads, durably, by the
        writer that `insert` uses; see `TableWriter.change`. If that is closed before anything is
        written, everything is read and computed again.

        Raises the errors of that, and ReopenError as `insert` does.
        """
        from memwal_sql.table import writing

        return writing.change(
            self, read, columns, whole=whole, isolation=isolation, description=description
        )

    def statement_writer(self, columns: pa.Schema) -> OpenTable:
        """The writer of statements that were planned with some columns: the program's own, if it
        is open, else one that this handle keeps. Raises ReopenError if the table has others."""
        from memwal_sql.table import writing

        return writing.statement_writer(self, columns)

    def replace_rows(self, rows: pa.Table | Callable[[], pa.Table]) -> int:
        """Replace all rows by these, whose keys must differ, in one step for readers.

        Give rows that are computed from the table's own rows as a function. It is called once other
        writers are fenced, and again if one of them has come back meanwhile, so that it has read
        every row that it replaces.

        Other writers are fenced. Returns the base version with the new rows; raises the errors of
        `replace_staged`.
        """
        from memwal_sql.table import staging

        return staging.replace_rows(self, rows)

    def unflushed_logs(
        self, *, with_ages: bool = False, refresh: bool = True
    ) -> list[UnflushedLog]:
        """The logs with unflushed rows, except those of this process's writers; for the jobs.
        Without `refresh` the regions are those of the last snapshot, as it has found them."""
        from memwal_sql.table import flushing

        return flushing.logs_of_others(self, with_ages=with_ages, refresh=refresh)

    def open_rows(self) -> int:
        """The unflushed rows of the open writers of this process."""
        from memwal_sql.table import flushing

        return flushing.open_rows(self)

    def flush_regions(self, regions: Collection[UUID]) -> int:
        """Claim these regions, flush their logs and return their number. Raises ConflictError when
        another writer claims a region meanwhile, as it is not silent then, and CorruptFileError for
        a damaged log, once the others are flushed."""
        from memwal_sql.table import flushing

        return flushing.flush_regions(self, regions)

    def pin(self, consistency: str = "strong", filters: Sequence[Predicate] = ()) -> PinnedSnapshot:
        """A description of the current snapshot; it pickles, and any process can rebuild it."""
        return self.collector.pin(consistency, filters)

    def pinned_table(self) -> PinnedTable:
        """Rebuilds snapshots that a handle on the same table pinned, here or elsewhere."""
        return PinnedTable(self.context)

    def stager(
        self, job: str, form: RowForm, limits: StageLimits | None = None, *, replaces: bool = False
    ) -> Stager:
        """Stages the rows of one task of a distributed write, for a `publisher` to publish, or for
        `replace_staged` to replace all rows with.

        Args:
            job: names the folder that the job's tasks stage into; `discard_staged` removes it.
            limits: says what is written when.
        """
        from memwal_sql.table import staging

        return staging.stager(self, job, form, limits, replaces=replaces)

    def publisher(self) -> Publisher:
        """Publishes what the tasks of a distributed write have staged."""
        from memwal_sql.table import staging

        return staging.publisher(self)

    def compactor(self) -> Compactor:
        """Compacts the base table in tasks that other processes execute; `compact` does it in one
        call."""
        from memwal_sql.table import maintaining

        self.check_writable("compact")
        return maintaining.compactor(self)

    def merge_in_tasks(self, run: Run, tasks: int) -> dict[str, int]:
        """Merge as `merge` does, by work that at most so many tasks share: `run` calls
        `merge_share` for each share, on handles of this table in any processes.

        Returns how many generations were merged, by region id.
        """
        from memwal_sql.table import staging

        return staging.merge_in_tasks(self, run, tasks)

    def merge_share(self, share: MergeShare) -> MergedShare:
        """Do the work of one task of a merge."""
        from memwal_sql.maintain.merge.shares import merge_share

        self.check_writable("merge")
        return merge_share(self.context, share)

    def add_columns_in_tasks(
        self,
        columns: Mapping[str, str],
        run: Callable[[Sequence[ColumnShare]], Sequence[list[FragmentMetadata]]],
        tasks: int,
    ) -> None:
        """Add columns of SQL expressions as `add_columns` does, computed by so many tasks at most:
        `run` calls `compute_columns` for each share, on handles of this table in any processes."""
        from memwal_sql.table.columns import add_columns_in_tasks

        return add_columns_in_tasks(self, columns, run, tasks)

    def compute_columns(self, share: ColumnShare) -> list[FragmentMetadata]:
        """Do the work of one task."""
        from memwal_sql.table.columns import compute_columns

        return compute_columns(self, share)

    def replace_staged(self, tasks: Sequence[StagedTask]) -> int:
        """Replace all rows by staged ones, in one step for readers.

        Other writers are fenced. Returns the base version with the new rows; raises the errors of
        `Publisher.publish`, and RetryError when other commits kept coming in between.
        """
        from memwal_sql.table import staging

        return staging.replace_staged(self, tasks)

    def last_batch(self, query_id: str) -> int:
        """The last complete batch of a query here; -1 if there is none."""
        return last_complete(self.context.store, query_id)

    def discard_staged(self, job: str) -> None:
        """Remove rows that the tasks of a job staged and nobody published."""
        from memwal_sql.table import staging

        return staging.discard_staged(self, job)

    def __rich__(self) -> Overview:
        return self.overview()

    def _repr_html_(self) -> str:
        return self.overview()._repr_html_()

    def __repr__(self) -> str:
        key = ", ".join(self.primary_key)
        return f"Table({self.uri!r}, version={self.version}, primary_key=[{key}])"

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
