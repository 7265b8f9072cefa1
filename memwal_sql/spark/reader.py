"""Batch reading: partitions of one pinned snapshot, each a plan of its own.

Without the jar Spark plans a Python source once for each relation, whatever statements use it and
how often, so all of them see the snapshot of the first. What Spark would push into the reader for
one use, 4.3 applies to all others too, so nothing is taken over: every use has all rows, and Spark
filters them. Option `filter` is part of the relation. With the jar `driver/scan` plans each use.

The driver pins the snapshot and deals its parts out: the base table's fragments and the regions. A
task masks its fragments by the keys of the regions that their keys belong to, as these may hold
newer rows, and reads its own regions alone, as a key lives in one region only (protocol rule 10). A
part that is too large for a task is cut: each of its tasks scans a slice of the rows, of a region
one of each source, and the keys of the whole region decide which rows are stale. So a row is
returned by exactly one task.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import NoReturn, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from exec_nodes.base.lazy import lazy_property
from exec_nodes.evolution.known import NO_IDS
from exec_nodes.lance.scan import row_bytes
from exec_nodes.node import Node, opened
from exec_nodes.sources.sliced_source import Slice, SlicedSource
from exec_nodes.sources.source import Source
from memwal_sql.errors import InvalidCallError, SourceGoneError
from memwal_sql.read.pinned import PinnedSnapshot
from memwal_sql.read.planning import scan, stream
from memwal_sql.session.filter_text import datafusion_scan, implied, pushed_filters
from memwal_sql.session.scalar_functions import analyzed
from memwal_sql.spark.options import Options
from memwal_sql.spark.tables import pinned_table_of, table_of
from memwal_sql.spark.types import as_spark, read_schema
from memwal_sql.state.base_table import BaseTable
from memwal_sql.table import Table
from planner.model import Planner, Query, RegionSources, Snapshot
from planner.plan import MAX_LOOKUP_KEYS
from planner.predicates.expr import Predicate
from planner.predicates.tuple_domain import key_equalities

# A task shall read so much at most, as Spark does it with files, and be worth its start.
_TASK_BYTES = 128 * 1024 * 1024
_LEAST_ROWS = 50_000
_GONE = (
    "the rows of {uri} that this DataFrame or view reads, as they were when a query first used it, "
    'were merged and collected since: load them again, spark.read.format("memwal").load(...), and '
    "create the views over them again; to run the same query again does not help"
)
Item = TypeVar("Item", bound=Hashable)


@dataclass(frozen=True)
class Share(InputPartition):
    """The share of one task: fragments of the base table and regions by their place in the
    snapshot, or a slice of the only one; with `whole` everything, for a lookup by key.

    The snapshot goes to tasks with the function that they run, which Spark sends to an executor
    once; a share goes with each task, and so does not grow with the number of regions.
    """

    fragments: frozenset[int] = frozenset()
    regions: tuple[int, ...] = ()
    whole: bool = False
    slice: Slice | None = None


PartSizes = Mapping[tuple[bool, int], int]
"""Rows by part: a fragment of the base, as (True, its id), or a region, as (False, its place)."""


def parts_of(options: Options, pinned: PinnedSnapshot) -> PartSizes:
    """The parts of a snapshot that tasks can share."""
    base = pinned_table_of(options).base(pinned.version)
    parts: dict[tuple[bool, int], int] = {}
    for fragment in base.dataset.get_fragments():
        parts[(True, fragment.fragment_id)] = fragment.metadata.num_rows
    for number, region in enumerate(pinned.regions):
        merged = base.details.merged_generations.get(region.manifest.region_id, 0)
        if rows := region.rows(merged):
            parts[(False, number)] = rows
    return parts


def shares_of(parts: PartSizes, tasks: int) -> list[Share]:
    """The parts in at most so many shares of about the same size."""
    return [
        Share(
            frozenset(number for in_base, number in share if in_base),
            tuple(sorted(number for in_base, number in share if not in_base)),
        )
        for share in deal(parts, tasks)
    ]


def sliced_shares(parts: PartSizes, rows: int) -> list[Share]:
    """The parts in shares of at most about so many rows: a larger part is cut into slices, each a
    share of its own."""
    shares = []
    for (in_base, number), size in parts.items():
        pieces = -(-size // rows)
        for piece in range(pieces if pieces > 1 else 0):
            fragments = frozenset([number]) if in_base else frozenset[int]()
            regions = () if in_base else (number,)
            shares.append(Share(fragments, regions, slice=Slice(piece, pieces)))
    whole = {part: size for part, size in parts.items() if size <= rows}
    return shares + shares_of(whole, -(-sum(whole.values()) // rows))


class BatchReader(DataSourceReader):
    """Reads the rows of a table, or those that meet option `filter`."""

    def __init__(self, options: Options, schema: StructType, parallelism: int) -> None:
        """`parallelism` is how many tasks run at once."""
        self._options = options
        self._schema = schema
        self._parallelism = parallelism
        self._filter = options.values.get("filter")
        table = table_of(options)
        self._columns = columns_of(table, schema.names)
        self._table_schema = table.schema
        # Spark makes a reader to plan one read, and pickles it for the tasks before `partitions`.
        self._pinned = table.pin(options.consistency, self._conditions)

    @property
    def _conditions(self) -> Sequence[Predicate]:
        return [] if self._filter is None else implied(self._filter, self._table_schema)

    def partitions(self) -> Sequence[Share]:
        """The snapshot, shared out."""
        table = table_of(self._options)
        shares, _ = shared_out(
            self._options, table, self._pinned, self._conditions, self._columns, self._parallelism
        )
        return shares

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one share, in Spark's types.

        Raises SourceGoneError when files of the snapshot were collected since it was taken.
        """
        if isinstance(partition, Share):  # not so for a table without rows and regions
            task = ReadTask(
                self._options, self._pinned, self._schema, self._table_schema, self._filter
            )
            yield from task.rows(partition)


def columns_of(table: Table, names: Sequence[str]) -> pa.Schema:
    """The columns of these names. Raises InvalidCallError for names that the table lacks, as those
    of a schema that is given to Spark may be."""
    unknown = [name for name in names if name not in table.schema.names]
    if unknown:
        raise InvalidCallError(f"{table.uri} has no columns {unknown}; it has {table.schema.names}")
    return pa.schema([table.schema.field(name) for name in names])


def shared_out(
    options: Options,
    table: Table,
    pinned: PinnedSnapshot,
    conditions: Sequence[Predicate],
    columns: pa.Schema,
    parallelism: int,
) -> tuple[list[Share], int]:
    """The shares of a read of `columns`, and about how many rows they have.

    They are as many as tasks run at once, or more where one would have too much, unless they would
    have next to nothing. A lookup by key is one.
    """
    keys = key_equalities(conditions, table.primary_key, table.schema)
    if keys is not None and len(keys) <= MAX_LOOKUP_KEYS:
        return [Share(whole=True)], len(keys)
    parts = parts_of(options, pinned)
    rows = sum(parts.values())
    rows_a_task = options.number("rowsPerPartition")
    if rows_a_task is None:
        size = rows * max(1, row_bytes(columns))
        tasks = min(-(-rows // _LEAST_ROWS), max(parallelism, -(-size // _TASK_BYTES)))
        rows_a_task = max(1, -(-rows // max(1, tasks)))
    return sliced_shares(parts, rows_a_task), rows


@dataclass(frozen=True)
class ReadTask:
    """What a task does with its share of a snapshot: `schema`'s columns of the rows that meet
    `filter`, and no more than `limit`."""

    options: Options
    pinned: PinnedSnapshot
    schema: StructType
    table_schema: pa.Schema
    filter: str | None
    limit: int | None = None

    def rows(self, share: Share) -> Iterator[pa.RecordBatch]:
        """The rows, in Spark's types.

        Raises SourceGoneError when files of the snapshot were collected since it was taken.
        """
        target = read_schema(self.schema)
        with _gone(self.options):
            rows = self._read(share, tuple(target.names))
            for batch in _batches(rows, self.limit):
                yield as_spark(batch, target)

    def count(self, share: Share) -> int:
        """The number of the rows, without reading them where the share knows it."""
        with _gone(self.options):
            rows = self._read(share, ())
            if share.slice is None and isinstance(rows, Node) and rows.statistics.exact:
                known = rows.statistics.num_rows
                if known is not None:
                    return known
            return sum(batch.num_rows for batch in _batches(rows, None))

    def _read(self, share: Share, names: tuple[str, ...]) -> Node | pa.RecordBatchReader:
        """The plan over a share, or its rows if DataFusion has to filter them."""
        table = ShareTable(self.options, self.pinned, share, self.table_schema)
        if not table.snapshot.sources:  # what was in its regions' WALs were fences
            return pa.table({name: [] for name in names}).to_reader()
        filters = () if self.filter is None else pushed_filters(self.filter, table.schema)
        if filters is None:
            consistency = self.options.consistency
            return datafusion_scan(table, names, str(self.filter), self.limit, consistency)

        def planned(snapshot: Snapshot) -> Node:
            return scan(Query(names, analyzed(filters, snapshot), self.limit), snapshot)

        return table.planned(planned)


def _batches(rows: Node | pa.RecordBatchReader, limit: int | None) -> Iterator[pa.RecordBatch]:
    yield from stream(rows, limit) if isinstance(rows, Node) else rows


@contextmanager
def _gone(options: Options) -> Iterator[None]:
    try:
        yield
    except SourceGoneError as error:  # to run the query again would not help here
        raise SourceGoneError(_GONE.format(uri=options.uri)) from error


class ShareTable:
    """One task's share of a pinned snapshot, as scans want a table."""

    answers = None

    def __init__(
        self, options: Options, pinned: PinnedSnapshot, share: Share, schema: pa.Schema
    ) -> None:
        self._table = pinned_table_of(options)
        self._pinned = pinned
        self._share = share
        self.schema = schema
        self.field_ids = NO_IDS

    def planned(
        self, planner: Planner, consistency: str = "strong", filters: Sequence[Predicate] = ()
    ) -> Node:
        """The plan of a query over the share. What filters rule out was left out when it was
        pinned."""
        del consistency, filters
        return opened(planner(self.snapshot))

    @property
    def base(self) -> BaseTable:
        """The whole base table."""
        return self._table.base(self._pinned.version)

    @lazy_property
    def snapshot(self) -> Snapshot:
        """The share, with the regions that may have newer rows than its fragments."""
        share, pinned = self._share, self._pinned
        if share.whole:
            return self._table.snapshot(pinned)
        info = self.base.info
        regions = self._table.regions(pinned, share.regions)
        if share.slice is not None:
            regions = tuple(_sliced(region, share.slice) for region in regions)
        if not share.fragments:
            return Snapshot(info, None, regions, pinned.regions_pruned)
        base: Source = self.base.source.share(share.fragments)
        if share.slice is not None:
            base = SlicedSource(base, share.slice)
        above = self._table.places_above(pinned, base)
        others = self._table.regions(pinned, sorted(set(above) - set(share.regions)))
        masks = tuple(source for region in others for source in region.sources)
        return Snapshot(info, base, regions, pinned.regions_pruned, masks=masks)

    def insert(self, rows: pa.Table, columns: pa.Schema) -> NoReturn:
        """A share takes no rows."""
        raise InvalidCallError("a share of a snapshot takes no rows")


def _sliced(region: RegionSources, place: Slice) -> RegionSources:
    return replace(region, sources=tuple(SlicedSource(each, place) for each in region.sources))


def deal(items: Mapping[Item, int], shares: int) -> list[list[Item]]:
    """The items, with their sizes, in at most `shares` shares of about the same size."""
    dealt: list[tuple[int, int, list[Item]]] = [(0, number, []) for number in range(shares)]
    for item, size in sorted(items.items(), key=lambda item: -item[1]):
        size_so_far, number, share = heapq.heappop(dealt)
        share.append(item)
        heapq.heappush(dealt, (size_so_far + size, number, share))
    return [share for _, _, share in sorted(dealt) if share]
