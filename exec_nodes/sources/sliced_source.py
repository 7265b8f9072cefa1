"""A slice of a source: some of its rows to scan, so that several processes can share one."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.base.columns import BASE_GENERATION, Filter, RowAddresses
from exec_nodes.base.lazy import lazy_property
from exec_nodes.keys.keys import KeyBatch, KeyColumn
from exec_nodes.lance.errors import lance_errors
from exec_nodes.lance.scan import MAX_BATCH_ROWS, batch_rows, scan_dataset
from exec_nodes.sources.lance_source import LanceSource
from exec_nodes.sources.memory_scan import scan_table
from exec_nodes.sources.source import Source, SourceKeys


@dataclass(frozen=True)
class Slice:
    """The place `number`, from 0, of a run of rows among `count` runs of about the same length."""

    number: int
    count: int

    def span(self, rows: int) -> tuple[int, int]:
        """The first of so many rows, and the one after the last."""
        return rows * self.number // self.count, rows * (self.number + 1) // self.count


@dataclass(eq=False)
class SlicedSource:
    """Scans a slice of a source's rows. All else is that of the whole source: the keys of all rows
    of a generation or MemTable decide which of them are stale."""

    whole: Source
    place: Slice

    @property
    def identity(self) -> Hashable:
        """The stale rows of a base table are found by scanning it, and so belong to the slice."""
        own = ("slice", self.whole.identity, self.place)
        return own if self._is_base else self.whole.identity

    @property
    def name(self) -> str:
        return self.whole.name

    @property
    def region(self) -> str:
        return self.whole.region

    @property
    def generation(self) -> int:
        return self.whole.generation

    @property
    def rows(self) -> int:
        return self._span[1] - self._span[0] if self._is_base else self.whole.rows

    @property
    def parts(self) -> int:
        return 1

    @property
    def ready(self) -> bool:
        return self.whole.ready

    @property
    def keys_at_hand(self) -> bool:
        return self.whole.keys_at_hand

    @property
    def filter_at_hand(self) -> bool:
        return self.whole.filter_at_hand

    def open(self, columns: Sequence[str] = (), *, whole: bool = False) -> None:
        del whole
        self.whole.open(columns)

    def scan(
        self,
        columns: Sequence[str],
        filters: Sequence[Filter],
        limit: int | None,
        part: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        tables = self.resident(columns, filters, part)
        if tables is not None:
            for table, addresses in tables:
                yield from scan_table(table, addresses, columns, filters, limit)
            return
        source = self.whole
        if not isinstance(source, LanceSource):
            raise TypeError(f"the rows of {self.name} are not in memory")
        schema = pa.schema([source.field(name) for name in columns])
        if columns and not filters:
            first, end = self._span
            most = end - first if limit is None else min(limit, end - first)
            if most:
                with lance_errors(self.name, source.uri):
                    yield from scan_dataset(
                        source.dataset,
                        schema,
                        (),
                        most,
                        source.fragments,
                        source.info.schema,
                        offset=first,
                    )
            return
        addresses = self._met(source, filters)
        size = batch_rows(schema) if columns else MAX_BATCH_ROWS
        for start in range(0, len(addresses), size):
            some = addresses[start : start + size]
            table = source.rows_at(some, columns) if columns else pa.table({})
            yield from scan_table(table, some, columns, (), limit)

    def resident(
        self,
        columns: Sequence[str],
        filters: Sequence[Filter],
        part: int,
        span: tuple[int, int] | None = None,
    ) -> Sequence[tuple[pa.Table, RowAddresses]] | None:
        del part, span
        first, end = self._span
        begun, own = 0, []
        for number in range(self.whole.parts):
            tables = self.whole.resident(columns, filters, number)
            if tables is None:
                return None
            for table, addresses in tables:
                start, stop = max(0, first - begun), max(0, end - begun)
                begun += len(addresses)
                if start < min(stop, len(addresses)):
                    own.append((table.slice(start, stop - start), addresses[start:stop]))
        return own

    def keys(self) -> SourceKeys:
        return self.whole.keys()

    def rows_of(self, keys: KeyColumn) -> RowAddresses | None:
        return self.whole.rows_of(keys)

    def might_contain(self, keys: KeyBatch) -> npt.NDArray[np.bool_]:
        return self.whole.might_contain(keys)

    def last(self, key: KeyBatch, columns: Sequence[str]) -> tuple[pa.Table, bool] | None:
        return self.whole.last(key, columns)

    def take(self, keys: KeyBatch, columns: Sequence[str]) -> pa.Table:
        return self.whole.take(keys, columns)

    def rows_at(self, addresses: RowAddresses, columns: Sequence[str]) -> pa.Table:
        return self.whole.rows_at(addresses, columns)

    def matching(self, filters: Sequence[Filter]) -> RowAddresses:
        return self.whole.matching(filters)

    @property
    def _is_base(self) -> bool:
        return self.whole.generation == BASE_GENERATION

    @lazy_property
    def _span(self) -> tuple[int, int]:
        return self.place.span(self.whole.rows)

    def _met(self, source: LanceSource, filters: Sequence[Filter]) -> RowAddresses:
        """The addresses of the slice's rows that meet filters."""
        addresses = source.addresses(source.whole_fragments.values())[slice(*self._span)]
        if not filters or not len(addresses):
            return addresses
        met = source.matching(filters)
        first, end = met.searchsorted(addresses[[0, -1]])
        return met[first : end + (end < len(met) and met[end] == addresses[-1])]
