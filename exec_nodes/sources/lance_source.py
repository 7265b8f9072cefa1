"""A version of a Lance table as a source: the base table, or a flushed generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.large_columns import taken
from exec_nodes.base.columns import (
    BASE_GENERATION,
    KEY_POSITION,
    KEY_POSITION_FIELD,
    ROW_ADDRESS,
    TOMBSTONE,
    TOMBSTONE_FIELD,
    Filter,
    RowAddresses,
    columns_read,
)
from exec_nodes.base.lazy import lazy_property
from exec_nodes.evolution.project import CurrentSchema
from exec_nodes.keys.bloom import BloomFilter
from exec_nodes.keys.keys import KeyBatch, KeyColumn
from exec_nodes.keys.match import Positions, bloom_hits, last_rows, rows_of_keys
from exec_nodes.keys.sql import key_condition
from exec_nodes.lance.deletion_files import ReadFile
from exec_nodes.lance.errors import BASE_NAME, lance_errors
from exec_nodes.lance.fragments import within
from exec_nodes.lance.indexes import indexes_of
from exec_nodes.lance.scan import (
    batch_rows,
    read_table,
    row_bytes,
    scan_dataset,
    take_rows,
)
from exec_nodes.lance.stored_generation import open_generation
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.columns import decoded_columns
from exec_nodes.resident.keys import KeyLookups
from exec_nodes.resident.rows import ResidentRows
from exec_nodes.resident.store import STORE, Key, ResidentStore
from exec_nodes.sources.indexed_rows import indexed_rows
from exec_nodes.sources.lance_version import LanceVersion
from exec_nodes.sources.memory_scan import scan_table
from exec_nodes.sources.source import SourceKeys, merged_addresses


class TableShape(Protocol):
    """The facts about its table that a source needs."""

    @property
    def schema(self) -> pa.Schema:
        """The table's logical schema."""

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The key columns in key order."""


@dataclass(kw_only=True, eq=False)
class LanceSource(LanceVersion):
    """Answers queries from one version. Made by `base`, `flushed` or `share`.

    Attributes:
        info: of the table.
        bloom: reads the bloom filter of a generation, whose CRC-32 is `bloom_checksum` if known.
        whole: the version that this is a share of.
    """

    region: str
    generation: int
    info: TableShape
    bloom: Callable[[], bytes] | None = None
    bloom_checksum: int | None = None
    whole: LanceSource | None = None

    @classmethod
    def base(
        cls,
        dataset: Any,
        info: TableShape,
        *,
        etag: str,
        resident: ResidentStore = STORE,
        read_file: ReadFile | None = None,
    ) -> LanceSource:
        """The base table: `dataset` at its version. `etag` identifies its columns and rows:
        versions with the same etag share artefacts. Version numbers would not do, as a restore may
        use them again (protocol rule 16). `read_file` gives the bytes of a file in the table's
        folder; without it Lance is asked."""
        return cls(
            identity=("base", dataset.uri, etag),
            name=BASE_NAME,
            uri=dataset.uri,
            region="",
            generation=BASE_GENERATION,
            info=info,
            store=resident,
            open_dataset=lambda: dataset,
            read_file=read_file,
            version=dataset.version,
        )

    @classmethod
    def flushed(
        cls,
        uri: str,
        *,
        region: str,
        generation: int,
        info: TableShape,
        resident: ResidentStore = STORE,
        storage_options: Mapping[str, str] | None = None,
        session: Any = None,
        bloom: Callable[[], bytes] | None = None,
        bloom_checksum: int | None = None,
        names: CurrentSchema | None = None,
        rows: int | None = None,
    ) -> LanceSource:
        """A flushed generation, opened when it is first read.

        `bloom` reads its bloom filter, whose CRC-32 is `bloom_checksum` if known; without a filter
        every key might be there. `names` are the base table's; without them the generation's own
        count. `rows` is as in `open_generation`. Reading raises SourceGoneError when the folder is
        gone, CorruptFileError when it is damaged.
        """
        name = f"region_{region}[gen={generation}]"

        def open_dataset() -> Any:
            dataset = open_generation(uri, name, rows, storage_options, session)
            return dataset if names is None else names.project(dataset)

        return cls(
            identity=("generation", uri, None if names is None else names.tag),
            name=name,
            uri=uri,
            region=region,
            generation=generation,
            info=info,
            store=resident,
            open_dataset=open_dataset,
            bloom=bloom,
            bloom_checksum=bloom_checksum,
        )

    def share(self, fragments: frozenset[int]) -> LanceSource:
        """The rows of some fragments, to be scanned and counted; row addresses stay the same."""
        return replace(
            self,
            identity=(self.identity, fragments),
            open_dataset=lambda: self.dataset,
            only=fragments,
            whole=self,
        )

    @property
    def ready(self) -> bool:
        return "rows" in self.__dict__ and "_groups" in self.__dict__

    @property
    def keys_at_hand(self) -> bool:
        small = self._is_small([*self.info.primary_key, *self._tombstone])
        return small or self.store.get(self._keys_key) is not None

    @property
    def filter_at_hand(self) -> bool:
        return self.bloom is None or self.store.get(self._filter_key) is not None

    def open(self, columns: Sequence[str] = (), *, whole: bool = False) -> None:
        """See `Source.open`. Columns that are small are read at once with the keys: on an object
        store a base table takes as many round trips as a generation, which go together then."""
        _ = self.rows, self.parts
        names = list(dict.fromkeys([*self.info.primary_key, *self._tombstone, *columns]))
        with lance_errors(self.name, self.uri):
            if self._is_small(names):
                self._decoded(names)
            elif whole and self.only is None and self._kept.ids.keys() >= set(names):
                schema = self._schema_of(names)
                if self._fits(schema):
                    self._kept.keep(self._kept.fragments.values(), schema, Admission.small)

    def scan(
        self,
        columns: Sequence[str],
        filters: Sequence[Filter],
        limit: int | None,
        part: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        rows, filters = indexed_rows(self, filters)
        names = columns_read(columns, filters)
        with lance_errors(self.name, self.uri):
            if rows is not None:
                numbers = [fragment.fragment_id for fragment in self._groups[part]]
                own = rows[within(rows, numbers)] if self.parts > 1 else rows
                yield from self._scan_at(own, columns, filters, limit)
                return
            tables = self.resident(columns, filters, part)
            if tables is not None:
                for table, addresses in tables:
                    yield from scan_table(table, addresses, columns, filters, limit)
                return
            fragments, schema = self._groups[part], self._schema_of(columns)
            if limit is None and names and self._kept.ids.keys() >= set(names):
                if not filters:
                    yield from self._rows.scan(fragments, self.parts, schema)
                    return
                if not self._finds(filters):
                    self._rows.filtered(self.parts, self._schema_of(names))
            whole = self.parts == 1 and self.only is None
            some = None if whole else fragments
            yield from scan_dataset(self.dataset, schema, filters, limit, some, self.info.schema)

    def resident(
        self,
        columns: Sequence[str],
        filters: Sequence[Filter],
        part: int,
        span: tuple[int, int] | None = None,
    ) -> Sequence[tuple[pa.Table, RowAddresses]] | None:
        names = columns_read(columns, filters)
        with lance_errors(self.name, self.uri):
            if self._is_small(names):
                table, addresses = self._decoded(names)
                return [(table.select(names), addresses)]
            if not names or not self._kept.ids.keys() >= set(names):
                return None
            some = None if span is None else self._within(span, names, part)
            if some is not None or self._finds(filters):
                return some
            return self._rows.resident(self._groups[part], self._schema_of(names))

    def _within(
        self, span: tuple[int, int], names: Sequence[str], part: int
    ) -> list[tuple[pa.Table, RowAddresses]] | None:
        """The rows of a part whose keys are within a short span, if keys and columns are in
        memory."""
        if self.only is not None or not self._kept.ids.keys() >= set(self.info.primary_key):
            return None
        rows = self._lookups.within(*span)
        if rows is None:
            return None
        if self.parts > 1:
            rows = rows[within(rows, [fragment.fragment_id for fragment in self._groups[part]])]
        if not len(rows):
            return []
        table = self._rows.take(rows, self._schema_of(names))
        return None if table is None else [(table, rows)]

    def _finds(self, filters: Sequence[Filter]) -> bool:
        """Whether Lance finds the rows that meet conditions by an index, in less time than it takes
        to read all rows in memory."""
        if not filters or self.rows <= Admission.evaluated:
            return False
        return not self._indexed.isdisjoint(name for f in filters for name in f.columns)

    @lazy_property
    def _indexed(self) -> frozenset[str]:
        """The columns by which Lance finds rows in an index."""
        indexes = indexes_of(self.dataset, self.name)
        return frozenset(name for index in indexes for name in index.field_names)

    def _scan_at(
        self,
        rows: RowAddresses,
        columns: Sequence[str],
        filters: Sequence[Filter],
        limit: int | None,
    ) -> Iterator[pa.RecordBatch]:
        """As `scan`, for the rows at some addresses."""
        if not filters and limit is not None:
            rows = rows[:limit]
        names = columns_read(columns, filters)
        size = batch_rows(self._schema_of(names))
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            table = self.rows_at(some, names) if names else pa.table({})
            yield from scan_table(table, some, columns, filters, limit)

    def keys(self) -> SourceKeys:
        return self.store.compute(self._keys_key, self._read_keys, lambda keys: keys.nbytes)

    def rows_of(self, keys: KeyColumn) -> RowAddresses | None:
        """See `Source.rows_of`: by the only key column, if it is of integers."""
        with lance_errors(self.name, self.uri):
            return self._lookups.find_all(keys) if self._has_lookups else None

    def might_contain(self, keys: KeyBatch) -> npt.NDArray[np.bool_]:
        if self.bloom is None:
            return np.ones(len(keys), np.bool_)
        key = self._filter_key
        bloom: BloomFilter | None = self.store.get(key)
        if bloom is None:
            read, checksum = self.bloom, self.bloom_checksum
            path = f"{self.uri}/bloom_filter.bin"
            with lance_errors(self.name, self.uri):
                bloom = self.store.compute(
                    key,
                    lambda: BloomFilter(read(), path, checksum),
                    lambda loaded: len(loaded.data),
                )
        return bloom_hits(bloom, keys)

    def last(self, key: KeyBatch, columns: Sequence[str]) -> tuple[pa.Table, bool] | None:
        if self.bloom is not None and not self.might_contain(key)[0]:
            return None
        names, row = [*columns, *self._tombstone], None
        if columns and not self._is_small(names):
            with lance_errors(self.name, self.uri):
                if self._kept.ids.keys() >= set(names):
                    row = self._last_row(key, names)
        if row is None:
            row = self.take(key, columns)
        if not row.num_rows:
            return None
        return row.select(list(columns)), bool(self._tombstone) and row[TOMBSTONE][0].as_py()

    def _last_row(self, key: KeyBatch, names: Sequence[str]) -> pa.Table | None:
        """As `KeyLookups.rows_of`. The key is known: its column is read only if no other is
        requested."""
        own = [name for name in names if name in self.info.primary_key]
        others = [name for name in names if name not in own]
        row = self._lookups.rows_of(key, self._schema_of(others or names))
        if others and row is not None and row.num_rows:
            for name in own:
                row = row.append_column(self.field(name), key.table[name])
        return row

    def take(self, keys: KeyBatch, columns: Sequence[str]) -> pa.Table:
        """See `Source.take`."""
        names = list(dict.fromkeys([*keys.names, *columns, *self._tombstone]))
        with lance_errors(self.name, self.uri):
            rows, addresses, positions = self._rows_of(keys, names)
        if self._tombstone:  # the base gives what scans give, see `Source.last`
            newest = last_rows(addresses, positions)
            if len(newest) < len(positions):
                rows, positions = taken(rows, newest), positions[newest]
        else:
            rows = rows.append_column(TOMBSTONE_FIELD, pa.array(np.zeros(len(positions), np.bool_)))
        # Columns are selected last: a table without columns has lost its number of rows.
        rows = rows.append_column(KEY_POSITION_FIELD, pa.array(positions))
        return rows.select([*columns, TOMBSTONE, KEY_POSITION])

    def _rows_of(
        self, keys: KeyBatch, names: Sequence[str]
    ) -> tuple[pa.Table, RowAddresses, Positions]:
        """Columns of all rows of some keys, the keys' own among them, the addresses of the rows and
        the position of each one's key: among decoded columns, by keys in memory, or by the btree of
        the key columns."""
        if self._is_small(names):
            table, addresses = self._decoded(names)
        else:
            found = self._lookups.find_each(keys.column) if self._has_lookups else None
            if found is not None:
                return self.rows_at(found[0], names), *found
            table = read_table(self.dataset, self._schema_of(names), key_condition(keys))
            addresses = table[ROW_ADDRESS].to_numpy()
        rows, positions = rows_of_keys(table, keys)
        return taken(table, rows), addresses[rows], positions

    def rows_at(self, addresses: RowAddresses, columns: Sequence[str]) -> pa.Table:
        if self.whole is not None:
            return self.whole.rows_at(addresses, columns)
        with lance_errors(self.name, self.uri):
            if self._is_small(columns):
                table, stored = self._decoded(columns)
                return taken(table, stored.searchsorted(addresses))
            schema = self._schema_of(columns)
            rows = self._rows.take(addresses, schema)
            if rows is None:
                rows = take_rows(self.dataset, schema, self.row_ids(addresses))
                self._rows.fetched(rows)
            return rows

    def extend(self) -> None:
        """Extend resident columns and keys of other versions by the new fragments of this one."""
        with lance_errors(self.name, self.uri):
            self._kept.extend(self.info.schema)
            if len(self.info.primary_key) == 1:
                self._lookups.extend()

    def evict(self, names: Sequence[str]) -> None:
        """Keep some columns in memory no longer, of no version."""
        self._kept.evict(names)

    def field(self, name: str) -> pa.Field:
        """A column, as the table's schema has it."""
        return self.info.schema.field(name)

    def matching(self, filters: Sequence[Filter]) -> RowAddresses:
        batches = (b for part in range(self.parts) for b in self.scan((), filters, None, part))
        return merged_addresses(batches)

    @lazy_property
    def _has_lookups(self) -> bool:
        """Whether `_lookups` may find several keys at once."""
        names = self.info.primary_key
        return len(names) == 1 and self.only is None and names[0] in self._kept.ids

    @lazy_property
    def _lookups(self) -> KeyLookups:
        key = self.info.primary_key[0]
        runs = self.runs("key places", self.field_id(key))
        return KeyLookups(self.field(key), runs, self.dataset, self._rows)

    @lazy_property
    def _rows(self) -> ResidentRows:
        return ResidentRows(self._kept, self.rows)

    @lazy_property
    def _tombstone(self) -> tuple[str, ...]:
        return () if self.generation == BASE_GENERATION else (TOMBSTONE,)

    def _is_small(self, names: Sequence[str]) -> bool:
        """Whether a scan of these columns is answered from memory."""
        if self.generation == BASE_GENERATION:
            return False
        return self._is_small_whole or self._fits(self._schema_of(names))

    @lazy_property
    def _is_small_whole(self) -> bool:
        return self._fits(self.info.schema.append(TOMBSTONE_FIELD))

    def _fits(self, schema: pa.Schema) -> bool:
        return self.rows * row_bytes(schema) <= Admission.small

    def _schema_of(self, names: Sequence[str]) -> pa.Schema:
        schema = self.info.schema
        return pa.schema([TOMBSTONE_FIELD if n == TOMBSTONE else schema.field(n) for n in names])

    def _decoded(self, names: Sequence[str]) -> tuple[pa.Table, RowAddresses]:
        return decoded_columns(self.identity, self.dataset, self._schema_of(names), self.store)

    @lazy_property
    def _filter_key(self) -> Key:
        return Key("bloom filter", (self.identity,))

    @property
    def _keys_key(self) -> Key:
        return Key("keys", (self.identity,))

    def _read_keys(self) -> SourceKeys:
        names = [*self.info.primary_key, *self._tombstone]
        with lance_errors(self.name, self.uri):
            if self._is_small(names):
                table, addresses = self._decoded(names)
            else:
                table = read_table(self.dataset, self._schema_of(names))
                addresses = table[ROW_ADDRESS].to_numpy()
        if self._tombstone:
            deleted = table[TOMBSTONE].to_numpy()
        else:
            deleted = np.zeros(len(addresses), np.bool_)
        return SourceKeys(table.select(self.info.primary_key), addresses, deleted)
