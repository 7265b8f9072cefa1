"""Finding the rows of the base table whose keys newer sources hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import memwal_native
from exec_nodes.base.columns import ROW_ADDRESS, Filter, RowAddresses
from exec_nodes.base.tasks import map_concurrently
from exec_nodes.keys.codes import KeyCodes, Rows, concat
from exec_nodes.keys.keys import KeyBatch, KeyColumn, key_column, one_array
from exec_nodes.keys.sql import key_condition
from exec_nodes.sources.source import Source, SourceKeys

# With at most one new key for this many base rows, the base's btree is asked instead of reading all
# keys.
_ROWS_PER_INDEXED_KEY = 100
# Keys of the base that are matched at once: where finding them prepares a hash table each time,
# and where it does not, so that intermediate arrays stay in the processor's caches.
_MATCH_ROWS = 1 << 20
_CACHED_ROWS = 1 << 16
_OWNERS = 8  # sources that one byte tells apart

Owners = npt.NDArray[np.uint8]


class Superseded:
    """The rows of a base table that newer sources supersede, and by which of them."""

    def __init__(self, addresses: RowAddresses, owners_of: Sequence[Owners]) -> None:
        self._addresses = addresses
        self._owners_of = owners_of

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return int(self._addresses.nbytes + sum(owners.nbytes for owners in self._owners_of))

    def union(self) -> RowAddresses:
        """The superseded rows, sorted."""
        addresses = self._addresses
        return addresses if bool((addresses[1:] > addresses[:-1]).all()) else np.sort(addresses)

    def of(self, place: int) -> RowAddresses:
        """The rows that the newer source at `place` supersedes, in no particular order."""
        superseded = self._owners_of[place // _OWNERS] & _bit(place)
        # Taking by index is three times as fast as by a mask.
        return self._addresses.take(np.flatnonzero(superseded))


class Piece:
    """The matches in some rows of the base, given one batch after the other."""

    def __init__(self, numbers: KeyCodes, owners: Sequence[Owners]) -> None:
        self._numbers = numbers
        self._owners = owners
        self.addresses: list[RowAddresses] = []
        self.owners_of: list[list[Owners]] = []

    def add(self, keys: KeyColumn, addresses: RowAddresses) -> Rows:
        """The positions, ascending, of the rows that a newer source supersedes.

        `keys[i]` is the key of the base's row at `addresses[i]`. Every row is to be given once.
        """
        rows, codes = self._numbers.find(keys)
        self.addresses.append(addresses[rows])
        self.owners_of.append([owners[codes] for owners in self._owners])
        return rows


class BaseMatch:
    """Finds the rows of a base table that newer sources supersede, and by which.

    Args:
        newer: each source with the position of its first row that counts.

    Attributes:
        numbers: the codes of the newer sources' keys, one source after the other.
    """

    def __init__(self, newer: Sequence[tuple[Source, int]]) -> None:
        self._pieces: dict[int, Piece] = {}
        self._lock = Lock()
        keys = keys_of([source for source, _ in newer])
        pairs = zip(keys, newer, strict=True)
        columns = [keys.slice(start).column if start else keys.column for keys, (_, start) in pairs]
        self._newer = newer
        self._keys = concat(columns)
        self.numbers = KeyCodes(self._keys)
        self._owners = [
            np.zeros(self.numbers.size, np.uint8) for _ in range(0, len(columns), _OWNERS)
        ]
        start = 0
        for place, column in enumerate(columns):
            codes = self.numbers.codes[start : start + len(column)]
            start += len(codes)
            memwal_native.mark(codes, self._owners[place // _OWNERS], _bit(place))

    @property
    def key_names(self) -> list[str]:
        """The primary key columns in key order."""
        names: list[str] = self._newer[0][0].keys().table.column_names
        return names

    def few(self, base: Source) -> bool:
        """Whether the keys are so few that the base's btree finds them faster than a scan."""
        return len(self.numbers.codes) * _ROWS_PER_INDEXED_KEY < base.rows

    def piece(self) -> Piece:
        """A piece for some of the rows; each thread takes its own."""
        return Piece(self.numbers, self._owners)

    def finished(self, part: int, piece: Piece, parts: int) -> Superseded | None:
        """Take the result for a part of the base that was read to its end, and return the whole
        result once all `parts` are there. A plan may read a part several times, or give it up and
        read it again."""
        with self._lock:
            if part in self._pieces:
                return None
            self._pieces[part] = piece
            return self.result(self._pieces.values()) if len(self._pieces) == parts else None

    def result(self, pieces: Iterable[Piece]) -> Superseded:
        """The result of pieces that have every row of the base once."""
        pieces = list(pieces)
        matched = (addresses for piece in pieces for addresses in piece.addresses)
        addresses = np.concatenate([np.empty(0, np.uint64), *matched])
        batches = [owners for piece in pieces for owners in piece.owners_of]
        owners_of = [
            np.concatenate([np.empty(0, np.uint8), *(batch[table] for batch in batches)])
            for table in range(len(self._owners))
        ]
        return Superseded(addresses, owners_of)

    def read(self, base: Source) -> Superseded:
        """The matches in the rows of `base`."""
        piece = self.piece()
        for keys, addresses in self._base_keys(base):
            piece.add(keys, addresses)
        return self.result([piece])

    def _base_keys(self, base: Source) -> Iterator[tuple[KeyColumn, RowAddresses]]:
        """All keys of the base, or only the relevant ones if its btree finds them faster."""
        names = self.key_names
        filters: tuple[Filter, ...] = ()
        if self.few(base):
            tables = [source.keys().table.slice(start) for source, start in self._newer]
            filters = _key_filter(KeyBatch(pa.concat_tables(tables)))
        most = _CACHED_ROWS if self.numbers.direct else _MATCH_ROWS
        for part in range(base.parts):
            batches: list[pa.RecordBatch] = []
            rows = 0
            for batch in base.scan(names, filters, None, part):
                batches.append(batch)
                rows += batch.num_rows
                if rows >= most:
                    yield _piece(batches, names)
                    batches, rows = [], 0
            if batches:
                yield _piece(batches, names)


def keys_of(sources: Sequence[Source]) -> list[SourceKeys]:
    """Each source's keys; those that must be read are read at once."""
    at_hand = [source.keys_at_hand for source in sources]
    unread = [source for source, resident in zip(sources, at_hand, strict=True) if not resident]
    read = iter(map_concurrently(lambda source: source.keys(), unread))
    pairs = zip(sources, at_hand, strict=True)
    return [source.keys() if resident else next(read) for source, resident in pairs]


def _bit(place: int) -> int:
    return 1 << place % _OWNERS


def _key_filter(keys: KeyBatch) -> tuple[Filter, ...]:
    condition = key_condition(keys)
    if condition is None:
        return ()

    def evaluate(batch: pa.RecordBatch) -> pa.BooleanArray:
        return pc.is_in(key_column(batch.columns), value_set=one_array(keys.column))

    return (Filter(condition, evaluate, tuple(keys.names), condition),)


def _piece(
    batches: Sequence[pa.RecordBatch], names: Sequence[str]
) -> tuple[KeyColumn, RowAddresses]:
    table = pa.Table.from_batches(batches)
    return key_column(table.select(names).columns), table[ROW_ADDRESS].to_numpy()
