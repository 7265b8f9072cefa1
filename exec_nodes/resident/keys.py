"""Looking up keys in a Lance table: by Lance's index, or by keys in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import memwal_native
from exec_nodes.base.columns import RowAddresses
from exec_nodes.keys.keys import KeyBatch, KeyColumn, is_integral, one_array, plain
from exec_nodes.keys.sql import key_condition
from exec_nodes.lance.fragments import FRAGMENT_BITS, all_addresses
from exec_nodes.lance.reading import rows_of
from exec_nodes.lance.scan import every_value
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.rows import ResidentRows
from exec_nodes.resident.runs import Coverage, ResidentRuns

_NO_ROWS = pa.table({})
_SIGN = 1 << 63


@dataclass(frozen=True)
class SortedKeys:
    """Integer keys in ascending order, equal ones by address, and where each is.

    Attributes:
        keys: as `ordered` has them.
        offset: what that has subtracted.
    """

    keys: npt.NDArray[np.int64]
    addresses: RowAddresses
    offset: int

    def find(self, key: Any) -> Iterator[int]:
        """The positions of rows with a key, the last one first."""
        value = np.int64(key - self.offset)
        at = int(self.keys.searchsorted(value, side="right")) - 1
        while at >= 0 and self.keys[at] == value:
            yield int(self.addresses[at])
            at -= 1

    def find_all(self, keys: npt.NDArray[np.int64]) -> tuple[RowAddresses, npt.NDArray[np.int64]]:
        """The addresses of the rows of keys, which are `ordered` and ascend, and the rows' keys."""
        places = np.frombuffer(memwal_native.places_of(self.keys, keys), np.int64)
        return self.addresses[places], self.keys[places]

    def within(self, low: int, high: int) -> RowAddresses:
        """The addresses of the rows with keys from `low` to `high`."""
        low, high = max(low - self.offset, -_SIGN), min(high - self.offset, _SIGN - 1)
        if low > high:
            return self.addresses[:0]
        start = int(self.keys.searchsorted(np.int64(low)))
        return self.addresses[start : int(self.keys.searchsorted(np.int64(high), side="right"))]


def ordered(keys: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Integers as int64 in the same order."""
    if keys.dtype == np.uint64:
        return (keys ^ np.uint64(_SIGN)).view(np.int64)
    return keys.astype(np.int64, copy=False)


@dataclass(frozen=True)
class KeyReader:
    """Reads and sorts the keys of a column for whose type `is_integral` holds (`Builder`)."""

    dataset: Any
    column: pa.Field
    row_bytes = 16

    def build(self, fragments: Sequence[Any]) -> SortedKeys:
        values = every_value(self.dataset, self.column, fragments)
        column = one_array(plain(pa.chunked_array(values, self.column.type)))
        keys, addresses = ordered(column.to_numpy()), all_addresses(fragments)
        offset = _SIGN if pa.types.is_uint64(column.type) else 0
        if (keys[1:] > keys[:-1]).all():
            return SortedKeys(keys, addresses, offset)
        order = np.argsort(keys, kind="stable")
        return SortedKeys(keys[order], addresses[order], offset)

    def nbytes(self, value: SortedKeys) -> int:
        return int(value.keys.nbytes + value.addresses.nbytes)


class KeyLookups:
    """Finds rows of one version of a table by the key in `column`: by Lance's index, or, after as
    many lookups as pay for reading the keys, by the keys in memory. Lance looks up those that are
    not read yet."""

    def __init__(
        self, column: pa.Field, runs: ResidentRuns[SortedKeys], dataset: Any, rows: ResidentRows
    ) -> None:
        self._runs = runs
        self._reader = KeyReader(dataset, column)
        self._rows = rows
        self._dataset = dataset
        self._readable = is_integral(column.type) and not dataset.has_stable_row_ids

    def rows_of(self, key: KeyBatch, schema: pa.Schema) -> pa.Table | None:
        """The columns of `schema`, all stored, of the row of the only key, or no row, with as
        little as possible around Lance's own lookup; None if that can't tell, or finds several.
        `find_each` makes `get` of a key take 2.6 times as long."""
        if len(key.names) > 1:
            return None
        fragments, row = None, None
        if self._readable:
            coverage = self._runs.read(self._reader, Admission.lookup)
            for run in reversed(coverage.runs):  # most rows of an old one may be gone
                for address in run.run.value.find(key.values[0]):
                    if address >> FRAGMENT_BITS in run.fragments:
                        another = self._rows.at(address, schema)
                        if row is not None and another is not None:
                            return None
                        row = another if row is None else row
            if row is not None:
                return row
            if not coverage.unread:
                return _NO_ROWS
            fragments = coverage.unread if coverage.runs else None
        condition = key_condition(key)
        if condition is None:
            return None
        scanner = self._dataset.scanner(columns=schema.names, filter=condition, fragments=fragments)
        rows = rows_of(scanner)
        return rows if rows.num_rows <= 1 else None

    def find_each(self, keys: KeyColumn) -> tuple[RowAddresses, npt.NDArray[np.int64]] | None:
        """The addresses of the rows whose key is one of `keys`, and the position of each one's key
        among these, by keys in memory; None if not all are there."""
        if not self._readable:
            return None
        # They save at least so many lookups' time: 2, 100 and 10,000 keys saved that of 3, 24 and
        # 140 lookups (1,000,000 rows, 2 cores).
        coverage = self._runs.read(self._reader, Admission.lookup * isqrt(len(keys)))
        values = ordered(one_array(keys).to_numpy())
        order = np.argsort(values, kind="stable")
        ascending = values[order]
        found = self._find(coverage, ascending)
        if found is None:
            return None
        addresses, rows_keys = found
        return addresses, order[ascending.searchsorted(rows_keys)]

    def find_all(self, keys: KeyColumn) -> RowAddresses | None:
        """The sorted addresses of the rows whose key is one of `keys`, by keys in memory; None if
        not all are there."""
        if not self._readable:
            return None
        coverage = self._runs.read(self._reader, self._runs.rows * self._reader.row_bytes // 2)
        found = self._find(coverage, np.sort(ordered(one_array(keys).to_numpy())))
        return None if found is None else np.sort(found[0])

    def _find(
        self, coverage: Coverage[SortedKeys], ascending: npt.NDArray[np.int64]
    ) -> tuple[RowAddresses, npt.NDArray[np.int64]] | None:
        """The addresses of the rows of keys, which are `ordered` and ascend, and the rows' keys;
        None if some keys of the version are not in memory."""
        if coverage.unread:
            return None
        addresses, keys = [np.empty(0, np.uint64)], [np.empty(0, np.int64)]
        for run in coverage.runs:
            own, own_keys = run.run.value.find_all(ascending)
            live = self._rows.live(own, run.fragments)
            addresses.append(own[live])
            keys.append(own_keys[live])
        return np.concatenate(addresses), np.concatenate(keys)

    def within(self, low: int, high: int) -> RowAddresses | None:
        """The sorted addresses of the rows with keys from `low` to `high`, by keys in memory; None
        if not all are there, or if so many rows are better scanned."""
        if not self._readable:
            return None
        coverage = self._runs.read(self._reader, Admission.lookup)
        if coverage.unread:
            return None
        spans = [run.run.value.within(low, high) for run in coverage.runs]
        if sum(map(len, spans)) * Admission.taken > self._runs.rows:
            return None
        pairs = zip(spans, coverage.runs, strict=True)
        rows = [span[self._rows.live(span, run.fragments)] for span, run in pairs]
        return np.sort(np.concatenate([np.empty(0, np.uint64), *rows]))

    def extend(self) -> None:
        """Read the missing keys, if keys of any version are kept."""
        if self._runs.take_use():
            self._runs.extend(self._reader)
