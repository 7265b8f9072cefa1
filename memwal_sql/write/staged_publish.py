"""Publishing a batch that tasks have staged: one publisher a region (protocol rule 24).

Publishers of one table take turns, by a lease of their own, so that two streams into it wait for
each other instead of fencing each other. The turn is courtesy: what keeps rows right is the claim
of each region.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

import lance
import pyarrow as pa

from memwal_sql.errors import InvalidCallError, SourceGoneError
from memwal_sql.maintain.lease import maintenance_lease
from memwal_sql.read.base import BaseTable
from memwal_sql.read.context import TableContext
from memwal_sql.storage.base_indexes import IndexRecipe
from memwal_sql.storage.field_ids import field_ids
from memwal_sql.storage.memory_store import lance_uri
from memwal_sql.storage.region_manifest import RegionManifests
from memwal_sql.storage.region_values import value_types
from memwal_sql.storage.wal_entry import entry_schema
from memwal_sql.write.batch_marks import BatchMark, complete, last_complete
from memwal_sql.write.generation_writer import GenerationWriter
from memwal_sql.write.memtable import conform, memtable_schema
from memwal_sql.write.region_opener import FindRegion, create_region, memtables_of
from memwal_sql.write.router import RegionKey
from memwal_sql.write.staged import StagedPiece, StagedTask
from memwal_sql.write.staged_keys import PieceKeys, winners
from memwal_sql.write.staged_region import PublishLimits, RegionBatch, RegionPublisher
from memwal_sql.write.staged_rows import ORDER
from memwal_sql.write.table_writer import active_spec
from planner.model import TableInfo
from planner.regions.spec import RegionSpec

_TURN = "publishing"
_PARALLEL_REGIONS = 8


@dataclass(frozen=True, slots=True)
class PublishResult:
    """`rows` of a batch were published into so many `regions`; 0 and 0 when they had it already."""

    rows: int
    regions: int


class Publisher:
    """Publishes batches into one table, one after the other. Keeps its claims between them."""

    def __init__(
        self,
        *,
        context: TableContext,
        base: Callable[[], BaseTable],
        find: FindRegion,
        limits: PublishLimits | None = None,
    ) -> None:
        """`base` gives the newest version of the base table, `find` the manifest of the region with
        a spec id and values, if there is one."""
        self._context = context
        self._base = base
        self._find = find
        self._limits = limits or PublishLimits()
        self._regions: dict[RegionKey, RegionPublisher] = {}
        self._info = base().info

    def publish(self, tasks: Sequence[StagedTask], mark: BatchMark | None = None) -> PublishResult:
        """Make what the tasks staged part of the table, region by region.

        With a mark, a batch that the table has already changes nothing, and one that a crash has
        cut through is completed. Raises InvalidCallError, before anything is published, when two
        tasks have the same key and no order tells the newer one; FencedError when another writer
        takes a region meanwhile.
        """
        context = self._context
        if mark is not None and mark.batch_id <= last_complete(context.store, mark.query_id):
            return PublishResult(0, 0)
        by_region: dict[RegionKey, list[tuple[int, StagedPiece]]] = {}
        for number, task in enumerate(tasks):
            for piece in task.pieces:
                by_region.setdefault(piece.key, []).append((number, piece))
        base = self._base()
        if base.info is not self._info:
            self._regions, self._info = {}, base.info
        job = f"publishing {mark or uuid4().hex[:8]}"
        with ThreadPoolExecutor(_PARALLEL_REGIONS, "memwal-publish") as pool:
            batches = dict(
                zip(
                    by_region, pool.map(partial(self._batch, base), by_region.values()), strict=True
                )
            )
            with maintenance_lease(context.store, job, name=_TURN):
                for key, pieces in by_region.items():
                    if key not in self._regions:
                        self._regions[key] = self._region(base, pieces[0][1])
                futures = {
                    key: pool.submit(self._regions[key].publish, batch, mark)
                    for key, batch in batches.items()
                }
                errors = [e for f in futures.values() if (e := f.exception()) is not None]
                if errors:
                    raise errors[0]
        done = [key for key, future in futures.items() if future.result()]
        rows = sum(piece.rows for key in done for _, piece in by_region[key])
        if mark is not None:
            complete(context.store, mark, rows)
        return PublishResult(rows, len(done))

    def _region(self, base: BaseTable, piece: StagedPiece) -> RegionPublisher:
        context, spec = self._context, routing_spec(base.info)
        found = self._find(spec.spec_id, piece.values) or create_region(context, spec, piece.values)
        writer = GenerationWriter(context, base.info, base.dataset, self._recipes)
        return RegionPublisher(
            store=context.store,
            manifests=RegionManifests(context.store, found.region_id, value_types(spec)),
            make_memtable=memtables_of(base.info, found.region_id, piece.values),
            entry_schema=entry_schema(base.info.schema, field_ids(base.dataset)),
            write=writer.write,
            limits=self._limits,
        )

    def _batch(self, base: BaseTable, pieces: Sequence[tuple[int, StagedPiece]]) -> RegionBatch:
        """A region's pieces, with every key once among those of different tasks."""
        primary_key = base.info.primary_key
        kept = None
        if len(pieces) > 1:
            keys = [PieceKeys(task, self._keys(base, piece)) for task, piece in pieces]
            kept = winners(keys, primary_key)
        generations, tables = [], []
        for number, (_, piece) in enumerate(pieces):
            mask = None if kept is None or kept[number].all() else kept[number]
            if piece.folder is not None and mask is None:
                generations.append(piece)
                continue
            rows = self._rows(base, piece)
            tables.append(rows if mask is None else rows.filter(pa.array(mask)))
        schema = memtable_schema(base.info.schema)
        rows = pa.concat_tables([schema.empty_table(), *tables])
        return RegionBatch(rows, tuple(generations))

    def _keys(self, base: BaseTable, piece: StagedPiece) -> pa.Table:
        columns = list(base.info.primary_key)
        if piece.order is not None:
            return _read(self._context.store.get(piece.order))
        if piece.folder is not None:
            return self._open(piece.folder).to_table(columns=columns)
        rows = self._arrow(piece)
        return rows.select([*columns, *([ORDER] if ORDER in rows.column_names else [])])

    def _rows(self, base: BaseTable, piece: StagedPiece) -> pa.Table:
        found = self._arrow(piece) if piece.folder is None else self._open(piece.folder).to_table()
        schema = memtable_schema(base.info.schema)
        batches = [conform(batch, schema) for batch in found.to_batches()]
        return pa.Table.from_batches(batches, schema)

    def _arrow(self, piece: StagedPiece) -> pa.Table:
        return _read(piece.data or self._context.store.get(str(piece.path)))

    def _open(self, folder: str) -> lance.LanceDataset:
        uri = f"{lance_uri(self._context.uri)}/{folder}"
        try:
            return lance.dataset(uri, storage_options=self._context.storage_options)
        except (OSError, ValueError) as error:
            raise SourceGoneError(
                f"{uri}, which a task has staged, can't be read here: the driver and all "
                f"executors must reach the table under the same URI ({error})"
            ) from error

    def _recipes(self) -> Sequence[IndexRecipe]:
        return self._base().indexes.recipes()


def routing_spec(info: TableInfo) -> RegionSpec:
    """The region spec that rows are divided by. Raises InvalidCallError for manual regions."""
    spec = active_spec(info)
    if spec is None:
        raise InvalidCallError(
            "the regions of this table are given by hand, so nothing says which one a row belongs "
            "to: write it with table.writer(region=...)"
        )
    return spec


def _read(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        return reader.read_all()
