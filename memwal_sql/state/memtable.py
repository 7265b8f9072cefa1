"""The rows of a region that are not flushed yet, with their primary key hash index.

Specification 1, "MemTable": conceptually a list of record batches in the order of writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import RLock
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.ffi_alignment import aligned
from exec_nodes.arrow.nested import relabelled
from exec_nodes.arrow.text_columns import column_of, texts_at
from exec_nodes.base.columns import TOMBSTONE_FIELD
from exec_nodes.evolution.widen import widened
from exec_nodes.keys.hash_index import KeyIndex
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.memory_postings import ColumnTexts
from exec_nodes.sources.memtable_source import MemTableSource

# Bytes of postings for a byte of text: about 12 for each distinct token of a row.
_POSTING_BYTES_PER_BYTE = 2
# So many neighbours of one level become one batch of the next. A row is copied once a level, and
# a scan meets at most this many batches a level.
_FAN_IN = 16
_LARGE_BATCH_ROWS = 4096
_LARGE_BATCH_BYTES = 1 << 20
_TOP_LEVEL = 3


def memtable_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a MemTable, a WAL entry and a generation: the table's and `_tombstone`."""
    return pa.schema([*schema, TOMBSTONE_FIELD])


FindTexts = Callable[[], Iterable[tuple[str, Analyzer]]]


class _Rows(NamedTuple):
    """The rows of a MemTable, which are replaced as a whole: an interrupt leaves all or none of a
    batch."""

    batches: list[pa.RecordBatch]
    levels: list[int]
    rows: int
    nbytes: int


class MemTable:
    """One generation of a region while it is in memory; append-only.

    Row positions count from 0 in the order of appending and never change. Appends come from one
    thread at a time; snapshots may be taken from any, also by what interrupts an append.
    """

    def __init__(
        self,
        region_name: str,
        generation: int,
        schema: pa.Schema,
        primary_key: Sequence[str],
        texts: FindTexts = tuple,
    ) -> None:
        """`texts` gives the columns with a maintained full-text index; asked once, when texts are
        first indexed."""
        self.region_name = region_name
        self.generation = generation
        self.schema = memtable_schema(schema)
        self.primary_key = tuple(primary_key)
        self._key_places = [schema.get_field_index(name) for name in self.primary_key]
        self._rows = _Rows([], [], 0, 0)
        self._index = KeyIndex()
        self._find_texts = texts
        self._maintained: tuple[tuple[str, Analyzer], ...] | None = None
        self._texts = ColumnTexts()
        self._snapshot: MemTableSource | None = None
        # Never equal to another MemTable's, also after this one is gone.
        self.identity = object()
        self._lock = RLock()

    @property
    def rows(self) -> int:
        """Rows appended."""
        return self._rows.rows

    @property
    def bytes(self) -> int:
        """Memory held by rows and index, in bytes; an estimate."""
        return self._rows.nbytes + self._index.nbytes

    def append(self, batch: pa.RecordBatch, size: int | None = None) -> None:
        """Add the rows of `batch`, which has this MemTable's schema.

        `size` are its bytes, when the caller has counted them.
        """
        if batch.num_rows == 0:
            return
        with self._lock:
            if len(self._index) != self._rows.rows:  # an append was interrupted
                self._index = self._index_of(self._rows.batches)
            self._index.append(self._keys(batch))  # not read before the rows are there
            self._rows = self._with(batch, size)

    def index_texts(self) -> None:
        """Tokenize the maintained text columns of all rows so far.

        A search does it otherwise, so this only decides who waits for it.
        """
        if self._maintained is None:
            self._maintained = tuple(self._find_texts())
        if self._maintained:
            rows = self.snapshot()
            for column, analyzer in self._maintained:
                rows.text(column, analyzer)

    def snapshot(self) -> MemTableSource:
        """All rows so far, immutable, within microseconds."""
        with self._lock:
            if self._snapshot is None or self._snapshot.rows != self._rows.rows:
                self._snapshot = MemTableSource(
                    identity=self.identity,
                    region=self.region_name,
                    generation=self.generation,
                    primary_key=self.primary_key,
                    batches=self._rows.batches,
                    rows=self._rows.rows,
                    index=self._index,
                    schema=self.schema,
                    texts=self._texts,
                )
            return self._snapshot

    def newest_rows(self) -> pa.Table:
        """The newest version of every key, tombstones included, in the order of appending."""
        with self._lock:
            table = pa.Table.from_batches(self._rows.batches, self.schema)
            superseded = self._index.superseded(self._rows.rows)
        if not len(superseded):
            return table
        keep = np.ones(table.num_rows, np.bool_)
        keep[superseded] = False
        return table.filter(pa.array(keep))

    def rows_from(self, start: int) -> list[pa.RecordBatch]:
        """The rows from a position on, in the order of appending."""
        rows = pa.Table.from_batches(self._rows.batches, self.schema).slice(start)
        return list(rows.to_batches())

    def _keys(self, batch: pa.RecordBatch) -> list[pa.Array]:
        return [batch.column(place) for place in self._key_places]

    def _index_of(self, batches: Iterable[pa.RecordBatch]) -> KeyIndex:
        index = KeyIndex()
        for batch in batches:
            index.append(self._keys(batch))
        return index

    def _with(self, batch: pa.RecordBatch, size: int | None) -> _Rows:
        batch = aligned(batch)
        before = self._rows
        batches, levels = [*before.batches, batch], [*before.levels, 0]
        size = batch.nbytes if size is None else size
        if size >= _LARGE_BATCH_BYTES:
            levels[-1] = _TOP_LEVEL  # a copy of many would be large, and gain nothing
        elif batch.num_rows >= _LARGE_BATCH_ROWS:
            levels[-1] = _TOP_LEVEL - 1
        nbytes = before.nbytes + size
        for column, _ in self._maintained or ():
            texts = texts_at(batch.column(column_of(column)), column)
            nbytes += _POSTING_BYTES_PER_BYTE * texts.nbytes
        _consolidate(batches, levels)
        return _Rows(batches, levels, before.rows + batch.num_rows, nbytes)


def _consolidate(batches: list[pa.RecordBatch], levels: list[int]) -> None:
    while (
        len(levels) >= _FAN_IN
        and (level := levels[-1]) < _TOP_LEVEL
        and levels[-_FAN_IN] == level
        and levels[-_FAN_IN:] == [level] * _FAN_IN
    ):
        batches[-_FAN_IN:] = [pa.concat_batches(batches[-_FAN_IN:])]
        levels[-_FAN_IN:] = [level + 1]


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A stored batch in a MemTable's schema: metadata dropped, columns added later all null,
    columns removed since left out, types widened since cast. Raises SourceGoneError as `widened`
    does."""
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    present = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = [_stored_column(present.get(field.name), field, batch.num_rows) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _stored_column(column: pa.Array | None, field: pa.Field, rows: int) -> pa.Array:
    if column is None:
        if field.equals(TOMBSTONE_FIELD):
            return pa.repeat(pa.scalar(False), rows)
        return pa.nulls(rows, field.type)
    if column.type == field.type:
        return relabelled(column, field.type)  # without an entry's ids of nested fields
    return widened(column, field)
