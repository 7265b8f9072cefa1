"""A MemTable as a source: an immutable prefix of its rows, with exact key lookups."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.large_columns import taken
from exec_nodes.arrow.text_columns import column_of, texts_at
from exec_nodes.base.columns import (
    KEY_POSITION_FIELD,
    TOMBSTONE,
    Filter,
    RowAddresses,
    columns_read,
)
from exec_nodes.base.lazy import lazy_property
from exec_nodes.keys.hash_index import KeyIndex
from exec_nodes.keys.keys import KeyBatch, KeyColumn
from exec_nodes.postings.analyzer import Analyzer
from exec_nodes.postings.memory_postings import ColumnTexts, TextView
from exec_nodes.sources.indexed_rows import indexed_rows
from exec_nodes.sources.memory_scan import scan_table
from exec_nodes.sources.source import SourceKeys, merged_addresses


@dataclass(kw_only=True, eq=False)
class MemTableSource:
    """The first `rows` rows of a MemTable (Specification 1, "MemTable").

    `batches` hold the table's columns and `_tombstone`, in append order, and at least `rows` rows;
    `index` may already know later rows: every question to it is bounded by `rows`. `identity` is
    the MemTable's own and stays the same while it grows, and `texts` are its own too: they may know
    later rows already, or not yet all of these.
    """

    identity: Hashable
    region: str
    generation: int
    primary_key: Sequence[str]
    batches: Sequence[pa.RecordBatch]
    rows: int
    index: KeyIndex
    schema: pa.Schema
    texts: ColumnTexts = field(default_factory=ColumnTexts)
    parts: ClassVar[int] = 1
    ready: ClassVar[bool] = True
    keys_at_hand: ClassVar[bool] = True
    filter_at_hand: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return f"region_{self.region}[gen={self.generation}]"

    @lazy_property
    def nbytes(self) -> int:
        """Bytes of the rows, those appended since this snapshot included."""
        return sum(batch.nbytes for batch in self.batches)

    def first(self, rows: int) -> MemTableSource:
        """The first rows of these."""
        return replace(self, rows=rows)

    def open(self, columns: Sequence[str] = (), *, whole: bool = False) -> None:
        """Nothing to open."""

    def scan(
        self,
        columns: Sequence[str],
        filters: Sequence[Filter],
        limit: int | None,
        part: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        rows, filters = indexed_rows(self, filters)
        table = self._table if rows is None else taken(self._table, rows)
        addresses = self._addresses if rows is None else rows
        yield from scan_table(table, addresses, columns, filters, limit)

    def since(self, first: int) -> Iterator[pa.RecordBatch]:
        """The rows from a row address on, in the order of their writing: the table's columns and
        `_tombstone`."""
        begins = int(self._ends.searchsorted(first, side="right"))
        start = int(self._ends[begins - 1]) if begins else 0
        for batch in self.batches[begins:]:
            if max(first, start) >= self.rows:
                return
            skipped = max(0, first - start)
            yield batch.slice(skipped, self.rows - start - skipped)
            start += batch.num_rows

    def resident(
        self,
        columns: Sequence[str],
        filters: Sequence[Filter],
        part: int,
        span: tuple[int, int] | None = None,
    ) -> Sequence[tuple[pa.Table, RowAddresses]]:
        return [(self._table.select(columns_read(columns, filters)), self._addresses)]

    def keys(self) -> SourceKeys:
        """See `Source.keys`; the row address of entry i is i."""
        return self._keys

    def rows_of(self, keys: KeyColumn) -> None:
        return None

    def might_contain(self, keys: KeyBatch) -> npt.NDArray[np.bool_]:
        """See `Source.might_contain`; exact."""
        return self.index.last_of(keys, self.rows) >= 0

    def last(self, key: KeyBatch, columns: Sequence[str]) -> tuple[pa.Table, bool] | None:
        position = self.index.last(key, self.rows)
        if position < 0:
            return None
        at = int(self._ends.searchsorted(position, side="right"))
        row = self.batches[at].slice(position - (int(self._ends[at - 1]) if at else 0), 1)
        deleted = row.column(row.num_columns - 1)[0].as_py()
        return pa.Table.from_batches([row.select(columns)]), deleted

    def take(self, keys: KeyBatch, columns: Sequence[str]) -> pa.Table:
        positions = self.index.last_of(keys, self.rows)
        present = np.flatnonzero(positions >= 0)
        # A key that is given twice is found at the same place.
        at, first = np.unique(positions[present], return_index=True)
        rows = self.rows_at(at.astype(np.uint64), [*columns, TOMBSTONE])
        return rows.append_column(KEY_POSITION_FIELD, pa.array(present[first]))

    def rows_at(self, addresses: RowAddresses, columns: Sequence[str]) -> pa.Table:
        table = self._table.select(list(columns))
        if not len(addresses):
            return table.slice(0, 0)
        # Arrow copies every batch of texts to take a row of one: only those between are asked.
        first = int(addresses.min())
        between = table.slice(first, int(addresses.max()) + 1 - first)
        return taken(between, addresses - first)

    def matching(self, filters: Sequence[Filter]) -> RowAddresses:
        return merged_addresses(self.scan((), filters, None)) if filters else self._addresses

    def column(self, name: str) -> tuple[pa.ChunkedArray, RowAddresses]:
        """A column of all rows and their addresses; not copied."""
        return self._table[name], self._addresses

    def text(self, column: str, analyzer: Analyzer) -> TextView:
        """The postings of the texts of a column, or at a path in it; the documents are the rows, in
        append order."""

        def texts(start: int) -> list[pa.Array]:
            rows = self._table[column_of(column)].slice(start)
            return [texts_at(chunk, column) for chunk in rows.chunks]

        return self.texts.view(column, analyzer, self.rows, texts)

    def tokenized(self, column: str, analyzer: Analyzer) -> bool:
        """Whether `text` has nothing to do any more."""
        return self.texts.rows(column, analyzer) >= self.rows

    @lazy_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum([batch.num_rows for batch in self.batches], dtype=np.int64)

    @lazy_property
    def _table(self) -> pa.Table:
        return pa.Table.from_batches(self.batches, self.schema).slice(0, self.rows)

    @lazy_property
    def _addresses(self) -> RowAddresses:
        return np.arange(self.rows, dtype=np.uint64)

    @lazy_property
    def _keys(self) -> SourceKeys:
        deleted = self._table[TOMBSTONE].to_numpy()
        keys = self._table.select(self.primary_key)
        superseded = partial(self.index.superseded, self.rows)
        return SourceKeys(keys, self._addresses, deleted, superseded)
