"""The rows of a region that are not flushed yet, with their primary key hash index.

Specification 1, "MemTable": conceptually a list of record batches in the order of writing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from threading import Lock

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.ffi_alignment import aligned
from exec_nodes.arrow.nested import with_metadata_of
from exec_nodes.base.columns import TOMBSTONE_FIELD
from exec_nodes.keys.hash_index import KeyIndex
from exec_nodes.sources.memtable_source import MemTableSource
from exec_nodes.text.postings.analyzer import Analyzer
from exec_nodes.text.postings.memory_postings import ColumnTexts

# What its postings cost a byte of text: about 12 bytes a distinct token of a row.
_POSTING_BYTES_PER_BYTE = 2
# So many neighbours of one level become one batch of the next. A row is copied once a level, and
# a scan meets at most this many batches a level.
_FAN_IN = 16
_LARGE_BATCH_ROWS = 4096
_TOP_LEVEL = 3


def memtable_schema(schema: pa.Schema) -> pa.Schema:
    """The columns of a MemTable, a WAL entry and a generation: the table's and `_tombstone`."""
    return pa.schema([*schema, TOMBSTONE_FIELD])


FindTexts = Callable[[], Iterable[tuple[str, Analyzer]]]


class MemTable:
    """One generation of a region while it is in memory; append-only.

    Row positions count from 0 in the order of appending and never change. Appends come from one
    thread at a time; snapshots may be taken from any.
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
        self._batches: list[pa.RecordBatch] = []
        self._levels: list[int] = []
        self._rows = 0
        self._data_bytes = 0
        self._index = KeyIndex()
        self._find_texts = texts
        self._maintained: tuple[tuple[str, Analyzer], ...] | None = None
        self._texts = ColumnTexts()
        self._snapshot: MemTableSource | None = None
        # Never equal to another MemTable's, also after this one is gone.
        self.identity = object()
        self._lock = Lock()

    @property
    def rows(self) -> int:
        """Rows appended."""
        return self._rows

    @property
    def bytes(self) -> int:
        """Memory held by rows and index, in bytes; an estimate."""
        return self._data_bytes + self._index.nbytes

    def append(self, batch: pa.RecordBatch, size: int | None = None) -> None:
        """Add the rows of `batch`, which has this MemTable's schema.

        `size` are its bytes, when the caller has counted them.
        """
        if batch.num_rows == 0:
            return
        with self._lock:
            self._index.append([batch.column(place) for place in self._key_places])
            self._add(batch, size)

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
            if self._snapshot is None:
                self._snapshot = MemTableSource(
                    identity=self.identity,
                    region=self.region_name,
                    generation=self.generation,
                    primary_key=self.primary_key,
                    batches=self._batches,
                    rows=self._rows,
                    index=self._index,
                    schema=self.schema,
                    texts=self._texts,
                )
            return self._snapshot

    def newest_rows(self) -> pa.Table:
        """The newest version of every key, tombstones included, in the order of appending."""
        with self._lock:
            table = pa.Table.from_batches(self._batches, self.schema)
            superseded = self._index.superseded(self._rows)
        if not len(superseded):
            return table
        keep = np.ones(table.num_rows, np.bool_)
        keep[superseded] = False
        return table.filter(pa.array(keep))

    def _add(self, batch: pa.RecordBatch, size: int | None) -> None:
        batch = aligned(batch)
        self._batches.append(batch)
        self._levels.append(_TOP_LEVEL - 1 if batch.num_rows >= _LARGE_BATCH_ROWS else 0)
        self._rows += batch.num_rows
        self._data_bytes += batch.nbytes if size is None else size
        for column, _ in self._maintained or ():
            text = batch.column(self.schema.get_field_index(column))
            self._data_bytes += _POSTING_BYTES_PER_BYTE * text.nbytes
        self._snapshot = None
        self._consolidate()

    def _consolidate(self) -> None:
        while (
            len(self._levels) >= _FAN_IN
            and (level := self._levels[-1]) < _TOP_LEVEL
            and self._levels[-_FAN_IN] == level
            and self._levels[-_FAN_IN:] == [level] * _FAN_IN
        ):
            merged = pa.concat_batches(self._batches[-_FAN_IN:])
            # New lists: a snapshot may be reading the old ones.
            self._batches = [*self._batches[:-_FAN_IN], merged]
            self._levels = [*self._levels[:-_FAN_IN], level + 1]


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A stored batch in a MemTable's schema: metadata dropped, columns added later all null,
    columns removed since left out, types promoted since cast."""
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
        return with_metadata_of(column, field.type)  # without an entry's ids of nested fields
    return pc.cast(column, field.type)
