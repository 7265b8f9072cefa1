"""Changes that a statement has computed from rows that it read: as tasks stage them, each key once.

A staged row says whether the statement read a row of its key (`READ`), and whether it writes one
(`NEW`): a deleted row was read, an inserted one is new, an updated one is both. Where an update
gives a row another key, the old key was read and the new one is new. No two changes write the same
key, and a row that is updated has no other change. A key that one change frees and another one
takes is one staged row, which is both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.arrow.arrays import Mask
from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.keys.codes import KeyCodes
from exec_nodes.keys.keys import KeyColumn, key_column, one_array
from memwal_sql.errors import InvalidCallError
from memwal_sql.write.conditional.resolve import SHOWN_KEYS, key_names
from memwal_sql.write.ingest.normalise import Normaliser
from planner.model import TableInfo

Bits = npt.NDArray[np.uint8]

# A column beside those of staged rows: the bits of each.
CHANGE: Final = "memwal change"
READ, NEW = np.uint8(1), np.uint8(2)
# The kinds of changes that a statement hands over.
INSERT, UPDATE, DELETE = 1, 2, 3

_CHANGED_AGAIN = (
    "the rows with these keys would be changed more than once: {}; several source rows match each "
    "of them. Nothing was written: keep one source row for each key"
)
_SAME_KEY = (
    "several rows would get the same key, each of these: {}. Nothing was written: keep one row for "
    "each key"
)


class ChangeReader:
    """Turns changes into batches of a MemTable's columns, then the bits of each row.

    Attributes:
        moves: whether any row got another key.
    """

    def __init__(self, info: TableInfo) -> None:
        self._normaliser = Normaliser(info.schema, info.primary_key)
        self._key = list(info.primary_key)
        self.moves = False

    def read(self, table: pa.Table) -> pa.RecordBatch:
        """The rows to write, then the keys that lose their row. `table` has the kind of each
        change, the columns of new rows, and the key of the row that was read.

        Raises InvalidCallError naming a value that does not fit.
        """
        kind, first = table.column(0).to_numpy(), table.num_columns - len(self._key)
        names = table.column_names
        rows = pa.Table.from_arrays(table.columns[1:first], names=names[1:first])
        keys = pa.Table.from_arrays(table.columns[first:], names=self._key)
        is_written, is_read = kind != DELETE, kind != INSERT
        before = self._normaliser.tombstones(keys.filter(pa.array(is_read)))
        if not is_written.any():
            return _with_bits(before, np.full(before.num_rows, READ))
        after = self._normaliser.upserts(rows.filter(pa.array(is_written)))
        old = np.flatnonzero(kind[is_read] == UPDATE)
        new = np.flatnonzero(kind[is_written] == UPDATE)
        stays = self._are_equal(before, old, after, new)
        self.moves = self.moves or not stays.all()
        bits = np.full(after.num_rows, NEW)
        bits[new[stays]] |= READ
        is_gone = np.ones(before.num_rows, np.bool_)
        is_gone[old[stays]] = False
        gone = before.filter(pa.array(is_gone))
        both = concatenated([after, gone])
        return _with_bits(both, np.concatenate([bits, np.full(gone.num_rows, READ)]))

    def _are_equal(
        self,
        before: pa.RecordBatch,
        old: npt.NDArray[np.int64],
        after: pa.RecordBatch,
        new: npt.NDArray[np.int64],
    ) -> Mask:
        """Whether the keys of these rows are the same."""
        if not len(old):
            return np.ones(0, np.bool_)
        keys = (b.select(self._key).take(pa.array(p)) for b, p in ((before, old), (after, new)))
        equal = pc.equal(*(one_array(key_column(each.columns)) for each in keys))
        return np.asarray(equal.to_numpy(zero_copy_only=False), np.bool_)


def once(keys: pa.Table, bits: Bits) -> tuple[Mask, Bits] | None:
    """Which of some rows stay so that every key is there once, and the bits of each of these; None
    if all stay. A row that is written stays over those that delete. A MERGE may delete a row for
    several source rows.

    Raises InvalidCallError for a row that was updated and changed again, and for a key that two
    rows get.
    """
    column: KeyColumn = key_column(keys.columns)
    numbers = KeyCodes(column)
    codes = numbers.codes
    if len(codes) == 0 or np.bincount(codes).max() < 2:
        return None

    def counts(rows: Mask) -> npt.NDArray[np.int64]:
        return np.bincount(codes[rows], minlength=numbers.size)

    is_new, is_read = (bits & NEW) != 0, (bits & READ) != 0
    for again, message in (
        ((counts(is_read) > 1) & (counts(is_read & is_new) > 0), _CHANGED_AGAIN),
        (counts(is_new) > 1, _SAME_KEY),
    ):
        if again.any():
            shown = keys.filter(pa.array(again[codes])).combine_chunks().to_batches()
            names = {name: None for batch in shown for name in key_names(batch)}
            raise InvalidCallError(message.format(list(names)[:SHOWN_KEYS]))
    last = np.empty(numbers.size, np.int64)
    last[codes] = np.arange(len(codes))
    last[codes[is_new]] = np.flatnonzero(is_new)
    merged = np.zeros(numbers.size, np.uint8)
    np.bitwise_or.at(merged, codes, bits)
    stay = last[codes] == np.arange(len(codes))
    return stay, merged[codes[stay]]


def once_in_pieces(
    pieces: Sequence[pa.Table], key: Sequence[str]
) -> tuple[list[Mask] | None, list[Bits]]:
    """The same for the keys and bits of each of some pieces."""
    table = pa.concat_tables(pieces)
    found = once(table.select(list(key)), bits_of(table))
    if found is None:
        return None, []
    stay, bits = found
    masks = np.split(stay, np.cumsum([each.num_rows for each in pieces])[:-1])
    return masks, np.split(bits, np.cumsum([mask.sum() for mask in masks])[:-1])


def once_each(table: pa.Table, key: list[str]) -> pa.Table:
    """Staged rows, every key once. Raises as `once`."""
    found = once(table.select(key), bits_of(table))
    if found is None:
        return table
    stay, bits = found
    kept = table.filter(pa.array(stay))
    return kept.set_column(kept.column_names.index(CHANGE), CHANGE, pa.array(bits))


def bits_of(table: pa.Table) -> Bits:
    """The bits of staged rows: all are new where they were staged without."""
    if CHANGE not in table.column_names:
        return np.full(table.num_rows, NEW)
    return np.asarray(table[CHANGE].to_numpy(), np.uint8)


def _with_bits(rows: pa.RecordBatch, bits: Bits) -> pa.RecordBatch:
    return rows.append_column(pa.field(CHANGE, pa.uint8()), pa.array(bits, pa.uint8()))
