"""Reads the staged rows of a job's tasks, region by region, every key once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader

from exec_nodes.arrow.arrays import Mask
from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.base.tasks import map_in_threads
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.evolution.match import FIELD_ID_KEY
from exec_nodes.evolution.project import ByFieldId, numbered, project_batch
from exec_nodes.lance.errors import lance_errors, lance_panics
from exec_nodes.lance.reading import rows_of
from memwal_sql.bulk.changes import CHANGE, Bits, once_in_pieces
from memwal_sql.bulk.files import SmallPieces
from memwal_sql.bulk.key_runs import sharing
from memwal_sql.bulk.rows import GIVEN, ORDER, RowForm
from memwal_sql.bulk.stage import StagedPiece, StagedTask
from memwal_sql.bulk.stored import StoredLimits, StoredRows
from memwal_sql.bulk.winners import UnreadPiece, newest_rows
from memwal_sql.errors import MemWalError, NotFoundError, SourceGoneError
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.state.memtable import conform, memtable_schema
from memwal_sql.storage.decoding import decoding
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.wal.arrow_stream import read_stream
from memwal_sql.storage.wal.entry import TOMBSTONE
from memwal_sql.write.ingest.missing import KEEP
from memwal_sql.write.router import RegionKey, RegionValues

PARALLEL = 8  # regions
_NAME = "what a task has staged"
_EXTRAS = (ORDER, GIVEN, CHANGE)


class StagedTables(Thresholds):
    """The bytes of a region that are read at once, or the largest piece if that is larger."""

    nbytes = 64 << 20


class LogLimits(Thresholds):
    """Which parts of batches go through the WAL.

    Attributes:
        rows: the most rows of a region in its WAL, with those of the batch; native code opens no
            larger unflushed MemTable than the default.
        nbytes: the most bytes of a region's part of a batch, as staged, and as written.
    """

    rows = 100_000
    nbytes = 8 << 20


@dataclass(frozen=True, slots=True)
class KeptPiece:
    """A piece, and what is written of it.

    Attributes:
        form: how its rows were read.
        mask: true for rows that are written; None for all of them.
        lacking: columns that its rows lack, and in which the table's rows keep their values.
        bits: those of the rows that are written, if another piece has changes of their keys.
    """

    piece: StagedPiece
    form: RowForm
    mask: Mask | None = None
    lacking: tuple[str, ...] = ()
    bits: Bits | None = None

    @property
    def rows(self) -> int:
        """The number of rows that are written."""
        return self.piece.rows if self.mask is None else int(self.mask.sum())

    @property
    def is_whole(self) -> bool:
        """Whether it can stay as it is."""
        return self.piece.large and self.mask is None and not self.lacking

    @property
    def depends(self) -> bool:
        """Whether what the table has decides about its rows."""
        return self.form.when is not None or bool(self.lacking)


@dataclass(frozen=True, slots=True)
class RegionBatch:
    """A region's part of a batch, every key once.

    Attributes:
        pieces: those with rows to write.
        reader: reads them.
        stored: the table's rows, once they are known.
    """

    pieces: tuple[KeptPiece, ...]
    reader: StagedReader
    stored: StoredRows | None = None

    @property
    def whole(self) -> list[StagedPiece]:
        """Those that were staged as generations or data files, and stay as they are."""
        return [kept.piece for kept in self.pieces if kept.is_whole]

    @property
    def rows(self) -> int:
        """The number of rows."""
        return sum(kept.rows for kept in self.pieces)

    @property
    def goes_through_log(self) -> bool:
        """Whether its rows become one WAL entry, unless `read` finds them too large."""
        nbytes = sum(kept.piece.size for kept in self.pieces)
        return self.rows <= LogLimits.rows and nbytes <= LogLimits.nbytes and not self.whole

    def over(self, stored: StoredRows) -> RegionBatch:
        """The batch without the rows that do not replace those that the table has now."""
        pieces = (self._compared(kept, stored) for kept in self.pieces)
        return RegionBatch(tuple(kept for kept in pieces if kept.rows), self.reader, stored)

    def keys(self, kept: KeptPiece) -> pa.Table:
        """The keys of the rows that are written, and what their condition names."""
        keys = self.reader.keys(kept.piece)
        keys = keys if kept.mask is None else keys.filter(pa.array(kept.mask))
        if kept.bits is None:
            return keys
        return keys.set_column(keys.column_names.index(CHANGE), CHANGE, pa.array(kept.bits))

    def read(self) -> pa.RecordBatch | None:
        """The rows of all pieces but the whole ones, being few; None if they are too large for one
        WAL entry with the values that they keep."""
        batches, nbytes = [self.reader.no_rows], 0
        for table in self._tables():
            nbytes += table.nbytes
            if nbytes > LogLimits.nbytes:
                return None
            batches += table.to_batches()
        return concatenated(batches)

    def tables(self) -> Iterator[pa.Table]:
        """These, in a MemTable's schema, in tables of a bounded size."""
        gathered: list[pa.Table] = []
        for table in self._tables():
            gathered.append(table)
            if sum(table.nbytes for table in gathered) >= StagedTables.nbytes:
                yield pa.concat_tables(gathered)
                gathered = []
        if gathered:
            yield pa.concat_tables(gathered)

    def _tables(self) -> Iterator[pa.Table]:
        others = [kept for kept in self.pieces if not kept.is_whole]
        for some in _side_by_side(others):
            tables = map_in_threads(lambda kept: self.reader.rows(kept.piece), some, PARALLEL)
            for kept, rows in zip(some, tables, strict=True):
                if kept.mask is not None:
                    rows = rows.filter(pa.array(kept.mask))
                if kept.lacking and self.stored is not None:
                    yield from self.stored.filled(rows, kept.lacking)
                else:
                    yield rows

    def _compared(self, kept: KeptPiece, stored: StoredRows) -> KeptPiece:
        # Rows that are not whole are filled when they are read.
        if kept.form.when is None and not (kept.piece.large and kept.lacking):
            return kept
        written, exist = stored.compared(self.keys(kept), kept.form)
        if not exist and stored.are_null(kept.lacking):
            kept = replace(kept, lacking=())
        if written.all():
            return kept
        mask = np.ones(kept.piece.rows, np.bool_) if kept.mask is None else kept.mask.copy()
        mask[mask] = written
        return replace(kept, mask=mask)


@dataclass(frozen=True, slots=True)
class StagedRegion:
    """A region's part of a job: `rows` were staged, of which `batch` are the newest, but for those
    that were `skipped`."""

    key: RegionKey
    values: RegionValues
    rows: int
    batch: RegionBatch
    skipped: int = 0

    def over(self, stored: StoredRows) -> StagedRegion:
        """The part without the rows that do not replace those that the table has now."""
        batch = self.batch.over(stored)
        return replace(self, batch=batch, skipped=self.batch.rows - batch.rows)


def over_stored(parts: Sequence[StagedRegion], stored: StoredRows) -> list[StagedRegion]:
    """The parts without the rows that do not replace those that the table has now. Few keys are
    looked up together."""
    pieces = [(p.batch, kept) for p in parts for kept in p.batch.pieces if kept.depends]
    small = all(part.batch.goes_through_log for part in parts)
    if pieces and small and sum(kept.rows for _, kept in pieces) <= StoredLimits.keys:
        columns = [name for _, kept in pieces for name in stored.named(kept.form, kept.lacking)]
        stored = stored.ahead([batch.keys(kept) for batch, kept in pieces], columns)
    return map_in_threads(lambda part: part.over(stored), parts, PARALLEL)


def staged_regions(
    context: TableContext, base: BaseTable, tasks: Sequence[StagedTask]
) -> list[StagedRegion]:
    """The pieces that the tasks staged for each region.

    Raises InvalidCallError, naming a key, when several rows have it and nothing orders them, and
    SourceGoneError for files that can't be read here.
    """
    by_region: dict[RegionKey, list[tuple[int, StagedPiece]]] = {}
    for number, task in enumerate(tasks):
        for piece in task.pieces:
            by_region.setdefault(piece.key, []).append((number, piece))
    reader = StagedReader(context, base)
    reader.small.keep(piece for task in tasks for piece in task.pieces)
    lacking = [reader.lacking(task) for task in tasks]

    def batch(pieces: Sequence[tuple[int, StagedPiece]]) -> RegionBatch:
        kept = [KeptPiece(p, tasks[n].form, lacking=lacking[n]) for n, p in pieces]
        return reader.batch(kept, [number for number, _ in pieces])

    batches = map_in_threads(batch, by_region.values(), PARALLEL)
    return [
        StagedRegion(key, pieces[0][1].values, sum(piece.rows for _, piece in pieces), batch)
        for (key, pieces), batch in zip(by_region.items(), batches, strict=True)
    ]


class StagedReader:
    """Reads staged pieces of one table.

    Attributes:
        no_rows: no rows, in a MemTable's schema.
        small: reads the small pieces.
    """

    def __init__(self, context: TableContext, base: BaseTable) -> None:
        self._context = context
        self._primary_key = base.info.primary_key
        self._schema = memtable_schema(base.info.schema)
        self._stored = base.stored
        self.small = SmallPieces(context.store)
        self.no_rows = pa.RecordBatch.from_pylist([], self._schema)

    def batch(self, pieces: Sequence[KeptPiece], tasks: Sequence[int]) -> RegionBatch:
        """One region's pieces, each with the number of its task, and every key once."""
        kept = list(pieces)
        groups = sharing([each.piece.runs for each in pieces])
        alone = [pieces[group[0]].piece for group in groups if len(group) == 1]
        map_in_threads(self._check, alone, PARALLEL)
        for group in groups:
            if len(group) > 1:
                some, numbers = [pieces[n] for n in group], [tasks[n] for n in group]
                for place, each in zip(group, self._once(some, numbers), strict=True):
                    kept[place] = each
        return RegionBatch(tuple(each for each in kept if each.rows), self)

    def _once(self, pieces: Sequence[KeptPiece], tasks: Sequence[int]) -> list[KeptPiece]:
        """Pieces that may share keys, with every key once."""
        # What conditions name may be whole rows: it is read when they are compared, piece by piece.
        if pieces[0].form.changes:
            more = (CHANGE,)
            tables = map_in_threads(lambda kept: self.keys(kept.piece, more), pieces, PARALLEL)
            stay, bits = once_in_pieces(tables, self._primary_key)
            if stay is None:
                return list(pieces)
            return [
                replace(each, mask=None if mask.all() else mask, bits=some)
                for each, mask, some in zip(pieces, stay, bits, strict=True)
            ]
        unread = [
            UnreadPiece(task, kept.piece.rows, partial(self.keys, kept.piece, (ORDER,)))
            for kept, task in zip(pieces, tasks, strict=True)
        ]
        masks = newest_rows(unread, self._primary_key, pieces[0].form.duplicates)
        return [
            each if mask.all() else replace(each, mask=mask)
            for each, mask in zip(pieces, masks, strict=True)
        ]

    def lacking(self, task: StagedTask) -> tuple[str, ...]:
        """The columns that the rows of a task lack, and in which the table's keep their values."""
        if task.columns is None or task.form.missing != KEEP or task.form.deletes:
            return ()
        columns = (field for field in self._stored if field.name != TOMBSTONE)
        return tuple(f.name for f in columns if f.metadata[FIELD_ID_KEY] not in task.columns)

    def rows(self, piece: StagedPiece) -> pa.Table:
        """The rows of a piece in a MemTable's schema."""
        if piece.fragments:
            uri = lance_uri(self._context.uri)
            files = [f"{uri}/{path}" for path in data_files(piece)]
            batches = pa.concat_tables([self._file(file) for file in files]).to_batches()
        elif piece.folder is not None:
            dataset = self._open(piece.folder)
            stored = numbered(dataset.schema, dataset.lance_schema)
            with self._typed(piece.folder):
                rows = rows_of(dataset.scanner())
            batches = self._renamed(rows, stored)
        else:
            table = self._arrow(piece)
            names = [name for name in table.column_names if name not in _EXTRAS]
            table = table.select(names)
            batches = self._renamed(table, table.schema)
        conformed = [conform(batch, self._schema) for batch in batches]
        return pa.Table.from_batches(conformed, self._schema)

    def _renamed(self, rows: pa.Table, stored: pa.Schema) -> list[pa.RecordBatch]:
        by_id = ByFieldId(stored, self._stored)
        return [project_batch(batch, by_id) for batch in rows.to_batches()]

    def _check(self, piece: StagedPiece) -> None:
        """That it can be read here is known before anything is published."""
        if piece.folder is not None:
            self._open(piece.folder)
        for path in (*data_files(piece), *filter(None, [piece.path])):
            if not self.small.exists(path):
                raise self._gone(path)

    def keys(self, piece: StagedPiece, more: Sequence[str] = _EXTRAS) -> pa.Table:
        """The keys of a piece, and what orders and compares its rows, in memory of their own."""
        columns = list(self._primary_key)
        if piece.folder is not None and piece.order is None:
            with self._typed(piece.folder):
                return rows_of(self._open(piece.folder).scanner(columns=columns))
        rows = self._arrow(piece) if piece.order is None else self._read(piece.order)
        rows = rows.select([*columns, *(n for n in more if n in rows.column_names)])
        return rows.take(pa.array(np.arange(rows.num_rows)))  # the others' is let go of

    def _arrow(self, piece: StagedPiece) -> pa.Table:
        if piece.data is not None:
            return _decoded("a task's message", piece.data)
        path = str(piece.path)
        try:
            return _decoded(path, self.small.get_range(path, piece.start, piece.end))
        except NotFoundError as error:
            raise self._gone(path) from error

    def _read(self, path: str) -> pa.Table:
        return _decoded(path, self._context.store.get(path))

    def _open(self, folder: str) -> Any:
        uri = f"{lance_uri(self._context.uri)}/{folder}"
        try:
            with lance_panics(_NAME, uri):
                return lance.dataset(uri, storage_options=self._context.storage_options)
        except MemWalError:
            raise
        except (OSError, ValueError) as error:
            raise self._gone(folder) from error

    def _file(self, uri: str) -> pa.Table:
        with lance_errors(_NAME, uri):
            reader = LanceFileReader(uri, storage_options=self._context.storage_options)
            return rows_of(reader.read_all())

    def _typed(self, folder: str) -> AbstractContextManager[None]:
        return lance_errors(_NAME, f"{self._context.uri}/{folder}")

    def _gone(self, path: str) -> SourceGoneError:
        return SourceGoneError(
            f"{self._context.uri}/{path}, which a task has staged, can't be read here: the driver "
            "and all executors must reach the table under the same URI"
        )


def _decoded(path: str, stream: bytes) -> pa.Table:
    with decoding(path, "what a task has staged", "run the job again"):
        schema, batches = read_stream(stream)
        return pa.Table.from_batches([batch for batch, _ in batches], schema)


def _side_by_side(pieces: Sequence[KeptPiece]) -> Iterator[list[KeptPiece]]:
    """The pieces in groups that are read at once: of a bounded size, unless one is larger."""
    group: list[KeptPiece] = []
    for kept in pieces:
        if group and sum(k.piece.size for k in [*group, kept]) > StagedTables.nbytes:
            yield group
            group = []
        group.append(kept)
    if group:
        yield group


def data_files(piece: StagedPiece) -> list[str]:
    """The paths of a piece's data files from the table's root, in the order of its rows."""
    fragments = [json.loads(fragment) for fragment in piece.fragments]
    return [f"data/{file['path']}" for fragment in fragments for file in fragment["files"]]
