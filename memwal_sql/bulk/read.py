"""Reads the staged rows of a job's tasks, region by region, every key once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader

from exec_nodes.arrow.arrays import Mask
from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.base.tasks import map_in_threads
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.evolution.project import ByFieldId, numbered, project_batch
from exec_nodes.keys.codes import KeyCodes, concat
from exec_nodes.keys.keys import key_column
from exec_nodes.lance.errors import lance_errors, lance_panics
from exec_nodes.lance.reading import rows_of
from memwal_sql.bulk.rows import ORDER
from memwal_sql.bulk.stage import StagedPiece, StagedTask
from memwal_sql.errors import InvalidCallError, MemWalError, NotFoundError, SourceGoneError
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.state.memtable import conform, memtable_schema
from memwal_sql.storage.decoding import decoding
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.wal.arrow_stream import read_stream
from memwal_sql.write.router import RegionKey, RegionValues

PARALLEL = 8  # regions
_NAME = "what a task has staged"


class StagedTables(Thresholds):
    """The bytes of a region that are read at once, or the largest piece if that is larger."""

    nbytes = 64 << 20


class LogLimits(Thresholds):
    """Which parts of batches go through the WAL.

    Attributes:
        rows: the most rows of a region in its WAL, with those of the batch; native code opens no
            larger unflushed MemTable than the default.
        nbytes: the most bytes of a region's part of a batch.
    """

    rows = 100_000
    nbytes = 8 << 20


@dataclass(frozen=True, slots=True)
class RegionBatch:
    """A region's part of a batch, every key once.

    Attributes:
        whole: pieces staged as generations, which can stay as they are.
        rows: the number of the other rows.
        nbytes: their most bytes in memory.
        tables: reads them, in a MemTable's schema, in tables of a bounded size.
    """

    whole: tuple[StagedPiece, ...]
    rows: int
    nbytes: int
    tables: Callable[[], Iterator[pa.Table]]

    @property
    def goes_through_log(self) -> bool:
        """Whether its rows become one WAL entry."""
        return self.rows <= LogLimits.rows and self.nbytes <= LogLimits.nbytes and not self.whole

    def read(self) -> pa.RecordBatch:
        """The other rows, being few."""
        tables = self.tables()
        return concatenated([batch for table in tables for batch in table.to_batches()])


@dataclass(frozen=True, slots=True)
class StagedRegion:
    """A region's part of a job: `rows` were staged, of which `batch` are the newest."""

    key: RegionKey
    values: RegionValues
    rows: int
    batch: RegionBatch


def staged_regions(
    context: TableContext, base: BaseTable, tasks: Sequence[StagedTask]
) -> list[StagedRegion]:
    """The pieces that the tasks staged for each region.

    Raises InvalidCallError, naming a key, when two tasks have it and no order tells the newer one,
    and SourceGoneError for files that can't be read here.
    """
    by_region: dict[RegionKey, list[tuple[int, StagedPiece]]] = {}
    for number, task in enumerate(tasks):
        for piece in task.pieces:
            by_region.setdefault(piece.key, []).append((number, piece))
    batches = map_in_threads(StagedReader(context, base).batch, by_region.values(), PARALLEL)
    return [
        StagedRegion(key, pieces[0][1].values, sum(piece.rows for _, piece in pieces), batch)
        for (key, pieces), batch in zip(by_region.items(), batches, strict=True)
    ]


class StagedReader:
    """Reads staged pieces of one table."""

    def __init__(self, context: TableContext, base: BaseTable) -> None:
        self._context = context
        self._primary_key = base.info.primary_key
        self._schema = memtable_schema(base.info.schema)
        self._stored = base.stored

    def batch(self, pieces: Sequence[tuple[int, StagedPiece]]) -> RegionBatch:
        """One region's pieces, each with the number of its task.

        Large ones stay as they are unless some of their rows are older than another piece's.
        """
        kept = None
        if len(pieces) > 1:
            keys = [PieceKeys(task, self._keys(piece)) for task, piece in pieces]
            kept = winners(keys, self._primary_key)
        else:
            self._check(pieces[0][1])
        whole: list[StagedPiece] = []
        others: list[tuple[StagedPiece, Mask | None]] = []
        for number, (_, piece) in enumerate(pieces):
            mask = None if kept is None or kept[number].all() else kept[number]
            if piece.large and mask is None:
                whole.append(piece)
            else:
                others.append((piece, mask))
        return RegionBatch(
            whole=tuple(whole),
            rows=sum(piece.rows if mask is None else int(mask.sum()) for piece, mask in others),
            nbytes=sum(piece.size for piece, _ in others),
            tables=partial(self._tables, others),
        )

    def _tables(self, pieces: Sequence[tuple[StagedPiece, Mask | None]]) -> Iterator[pa.Table]:
        gathered: list[pa.Table] = []
        for piece, mask in pieces:
            rows = self.rows(piece)
            gathered.append(rows if mask is None else rows.filter(pa.array(mask)))
            if sum(table.nbytes for table in gathered) >= StagedTables.nbytes:
                yield pa.concat_tables(gathered)
                gathered = []
        if any(table.num_rows for table in gathered):
            yield pa.concat_tables(gathered)

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
            table = table.select([name for name in table.column_names if name != ORDER])
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
            if not self._context.store.exists(path):
                raise self._gone(path)

    def _keys(self, piece: StagedPiece) -> pa.Table:
        columns = list(self._primary_key)
        if piece.order is not None:
            return self._read(piece.order)
        if piece.folder is not None:
            with self._typed(piece.folder):
                return rows_of(self._open(piece.folder).scanner(columns=columns))
        rows = self._arrow(piece)
        return rows.select([*columns, *([ORDER] if ORDER in rows.column_names else [])])

    def _arrow(self, piece: StagedPiece) -> pa.Table:
        try:
            return self._read(piece.path or "a task's message", piece.data)
        except NotFoundError as error:
            raise self._gone(str(piece.path)) from error

    def _read(self, path: str, data: bytes | None = None) -> pa.Table:
        stream = self._context.store.get(path) if data is None else data
        with decoding(path, "what a task has staged", "run the job again"):
            schema, batches = read_stream(stream)
            return pa.Table.from_batches([batch for batch, _ in batches], schema)

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


def data_files(piece: StagedPiece) -> list[str]:
    """The paths of a piece's data files from the table's root, in the order of its rows."""
    fragments = [json.loads(fragment) for fragment in piece.fragments]
    return [f"data/{file['path']}" for fragment in fragments for file in fragment["files"]]


@dataclass(frozen=True, slots=True)
class PieceKeys:
    """The keys of a piece, every one once, with `_order` last where rows are ordered."""

    task: int
    table: pa.Table


def winners(pieces: Sequence[PieceKeys], primary_key: Sequence[str]) -> list[Mask] | None:
    """One mask a piece, true for the rows that stay; None when all do.

    Of one task's pieces the later one is newer, unless rows are ordered. Raises InvalidCallError,
    naming a key, when two tasks have it and nothing says which row is newer.
    """
    if len(pieces) < 2:
        return None
    keys = concat([key_column(piece.table.select(primary_key).columns) for piece in pieces])
    numbers = KeyCodes(keys)
    codes = numbers.codes
    if not (np.bincount(codes, minlength=1) > 1).any():
        return None
    lengths = [piece.table.num_rows for piece in pieces]
    tasks = np.repeat([piece.task for piece in pieces], lengths)
    ordered = ORDER in pieces[0].table.column_names
    rows = np.arange(len(codes))
    if ordered:
        order = pa.chunked_array([chunk for piece in pieces for chunk in piece.table[ORDER].chunks])
        ranks = pc.rank(order, tiebreaker="dense").to_numpy().astype(np.int64)
        best = np.zeros(numbers.size, np.int64)
        np.maximum.at(best, codes, ranks)
        rows = np.flatnonzero(ranks == best[codes])
    last = np.empty(numbers.size, np.int64)
    last[codes[rows]] = rows  # of equal codes the last assignment stays
    contested = rows[tasks[last[codes[rows]]] != tasks[rows]]
    if len(contested):
        raise _contested(pieces, primary_key, int(contested[0]), ordered)
    kept = last[codes] == np.arange(len(codes))
    return list(np.split(kept, np.cumsum(lengths)[:-1]))


def _contested(
    pieces: Sequence[PieceKeys], primary_key: Sequence[str], row: int, ordered: bool
) -> InvalidCallError:
    table = pa.concat_tables([piece.table.select(primary_key) for piece in pieces])
    key = table.slice(row, 1).to_pylist()[0]
    if ordered:
        return InvalidCallError(
            f"two tasks have a row of the key {key} with the same value in the orderBy column: "
            "order by a column that tells which one is newer"
        )
    return InvalidCallError(
        f"two tasks have a row of the key {key}, and nothing says which one is newer: name a "
        'column that does with option("orderBy", ...), or drop duplicates first'
    )
