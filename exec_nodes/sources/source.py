"""The sources of a plan: the base table, a flushed generation or a MemTable, behind one protocol.

Specification 2, "MemTable Collection": every dataset carries a generation, -1 for the base table
and positive integers for MemTables; a higher generation of a region is newer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.base.columns import ROW_ADDRESS, Filter, RowAddresses
from exec_nodes.base.lazy import lazy_property
from exec_nodes.keys.codes import KeyCodes, code_set, superseded
from exec_nodes.keys.keys import KeyBatch, KeyColumn, key_column


class SourceKeys:
    """The keys a source holds, one entry a row that it would return, in ascending row address.

    Attributes:
        table: the primary key columns in key order, tombstones and superseded rows included.
        addresses: uint64, the row address of each entry.
        deleted: bool, which entries are tombstones.

    `superseded` finds the entries whose key a later one has, where that is known already.
    """

    def __init__(
        self,
        table: pa.Table,
        addresses: RowAddresses,
        deleted: npt.NDArray[np.bool_],
        superseded: Callable[[], npt.NDArray[np.int64]] | None = None,
    ) -> None:
        self.table = table
        self.addresses = addresses
        self.deleted = deleted
        self._superseded = superseded

    @lazy_property
    def column(self) -> KeyColumn:
        """The keys as one column, see `keys.key_column`."""
        return key_column(self.table.columns)

    @lazy_property
    def hidden(self) -> RowAddresses:
        """Sorted unique addresses of rows that no newer source decides: tombstones, and rows
        superseded inside the source (the highest address of a key wins).
        """
        if self._superseded is None:
            keys = KeyCodes(self.column)
            return self.addresses[superseded(keys.codes, self.deleted, code_set(keys))]
        hidden = self.deleted.copy()
        hidden[self._superseded()] = True
        return self.addresses[hidden]

    def slice(self, start: int, stop: int | None = None) -> SourceKeys:
        """Some of the entries, as if there were no others."""
        rows = slice(start, stop)
        table = self.table.slice(start, None if stop is None else stop - start)
        return SourceKeys(table, self.addresses[rows], self.deleted[rows])

    @property
    def nbytes(self) -> int:
        """Bytes held, for a byte-bounded cache."""
        return int(self.table.nbytes + self.addresses.nbytes + self.deleted.nbytes)


def merged_addresses(batches: Iterable[pa.RecordBatch]) -> RowAddresses:
    """The `_rowaddr` column of all batches, sorted."""
    parts = [batch.column(ROW_ADDRESS).to_numpy() for batch in batches]
    return np.sort(np.concatenate([np.empty(0, np.uint64), *parts]))


def is_same_table(identity: Hashable, other: Hashable) -> bool:
    """Whether two identities are of versions of one base table."""
    return isinstance(identity, tuple) and isinstance(other, tuple) and identity[:2] == other[:2]


@runtime_checkable
class Source(Protocol):
    """A dataset of one generation. Safe to read from several threads."""

    @property
    def identity(self) -> Hashable:
        """Never reused for other content. A MemTable keeps it while it grows: with `rows` it
        names a prefix."""

    @property
    def name(self) -> str:
        """The name in plans: `base_table[gen=-1]`, `region_bucket=3[gen=2]`."""

    @property
    def region(self) -> str:
        """The region's name; empty for the base table."""

    @property
    def generation(self) -> int:
        """-1 for the base table; higher is newer within a region."""

    @property
    def rows(self) -> int:
        """Rows held, tombstones and superseded rows included."""

    @property
    def parts(self) -> int:
        """The number of `part`s that `scan` accepts, for parallel reading."""

    @property
    def ready(self) -> bool:
        """Whether `rows` and `parts` are known without any I/O."""

    @property
    def keys_at_hand(self) -> bool:
        """Whether `keys` of a source that was opened takes no I/O."""

    @property
    def filter_at_hand(self) -> bool:
        """Whether `might_contain` takes no I/O."""

    def open(self, columns: Sequence[str] = (), *, whole: bool = False) -> None:
        """Make it ready; `columns` and the keys are going to be read, of all rows if `whole`.

        Raises SourceGoneError if its files are gone.
        """

    def scan(
        self,
        columns: Sequence[str],
        filters: Sequence[Filter],
        limit: int | None,
        part: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        """Yield `columns` and then `_rowaddr` of the rows of one part that match all filters.

        Stale rows and tombstones included. A column the source lacks is all null. At most `limit`
        rows may be left out beyond the limit, never before.
        """

    def resident(
        self,
        columns: Sequence[str],
        filters: Sequence[Filter],
        part: int,
        span: tuple[int, int] | None = None,
    ) -> Sequence[tuple[pa.Table, RowAddresses]] | None:
        """The rows of one part and their addresses, ascending: `columns`, then others that the
        filters read, at least one in all. None where they are not in memory, or where `scan` finds
        those that match by an index. Rows whose key is not within `span` may be left out: keys are
        integers or times then, and count the column's units."""

    def keys(self) -> SourceKeys:
        """Every key held; cached where it fits."""

    def rows_of(self, keys: KeyColumn) -> RowAddresses | None:
        """Sorted addresses of the rows whose key is one of `keys`, see `keys.key_column`; None
        where only a scan tells."""

    def might_contain(self, keys: KeyBatch) -> npt.NDArray[np.bool_]:
        """One flag a key: False only if the source has no row, tombstone or not, of that key."""

    def last(self, key: KeyBatch, columns: Sequence[str]) -> tuple[pa.Table, bool] | None:
        """The last row of the only key: `columns`, and whether it is a tombstone. The base table
        has several rows of a key that plain Lance has appended again, and all are returned.

        None if the key is not held. As `might_contain` and `take`, without their arrays.
        """

    def take(self, keys: KeyBatch, columns: Sequence[str]) -> pa.Table:
        """The last row of each key that the source has: `columns`, `_tombstone` (bool) and `_key`
        (int64, the position of the row's key in `keys`), in no particular order. For the base table
        all rows of a key, as in `last`.

        A key given twice is answered once. The base table has no tombstones: all false.
        """

    def rows_at(self, addresses: RowAddresses, columns: Sequence[str]) -> pa.Table:
        """`columns` (at least one) of the rows at these addresses, in the order asked.

        The source has a row at each address; one asked twice is returned twice.
        """

    def matching(self, filters: Sequence[Filter]) -> RowAddresses:
        """Sorted addresses of the rows that match all filters, stale rows and tombstones
        included."""
