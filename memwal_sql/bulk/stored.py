"""What the table has of a batch's keys, looked up while the publisher holds the claims.

Nobody else writes a region between its claim and the publisher's rows: who claims it meanwhile
fences the publisher. So the comparison is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.arrays import Mask
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.keys.codes import KeyCodes
from exec_nodes.keys.keys import key_column, one_array
from memwal_sql.bulk.rows import GIVEN, RowForm
from memwal_sql.state.defaults import stored_defaults
from memwal_sql.storage.wal.entry import TOMBSTONE
from memwal_sql.write.conditional.expressions import Expressions, pairs
from planner.model import TableInfo

# The live rows of keys, in the order of these, with some columns.
Get = Callable[[pa.Table, Sequence[str]], pa.Table]


class StoredLimits(Thresholds):
    """What is looked up at once.

    Attributes:
        keys: the most keys.
        first: the keys of the first lookup; how large their rows are decides about the next one,
            which has at most eight times as many.
        nbytes: the bytes of the rows that are expected.
    """

    keys = 65_536
    first = 1024
    nbytes = 16 << 20


class StoredRows:
    """The rows of one table, as they are under the publisher's claims."""

    def __init__(self, info: TableInfo, get: Get) -> None:
        self._info = info
        self._get = get
        self._key = list(info.primary_key)
        self._defaults = stored_defaults(info.schema)

    def named(self, form: RowForm, lacking: Sequence[str]) -> list[str]:
        """The columns that a comparison reads, and rows that lack some."""
        return [*form.named("t", self._info.schema.names), *lacking]

    def ahead(self, keys: Sequence[pa.Table], columns: Sequence[str]) -> StoredRows:
        """The same for these keys, which are few and distinct, and are looked up at once; without
        a change where their rows are large."""
        every = pa.concat_tables([table.select(self._key) for table in keys])
        parts: list[pa.Table] = []
        for _, _, old in self.lookups(every, columns):
            parts.append(old)
            if sum(part.nbytes for part in parts) > StoredLimits.nbytes:
                return self
        rows = pa.concat_tables(parts)
        codes = KeyCodes(key_column(rows.select(self._key).columns))
        places = np.empty(codes.size, np.int64)
        places[codes.codes] = np.arange(rows.num_rows)

        def get(some: pa.Table, columns: Sequence[str]) -> pa.Table:
            if not rows.num_rows:
                return rows.select(list(columns))
            _, code = codes.find(key_column(some.columns))
            return rows.select(list(columns)).take(pa.array(places[code]))

        return StoredRows(self._info, get)

    def compared(self, keys: pa.Table, form: RowForm) -> tuple[Mask, bool]:
        """Whether the row of each of these distinct keys is to be written, and whether the table
        has a row of any of them.

        `keys` have what the form's condition names in `_given`. Raises InvalidCallError for a
        condition that can't be evaluated.
        """
        columns, exists = form.named("t", self._info.schema.names), False
        masks = [np.ones(0, np.bool_)]
        for some, found, rows in self.lookups(keys, columns):
            mask = np.ones(some.num_rows, np.bool_)
            exists = exists or bool(len(found))
            if form.when is not None:
                mask[found] = False
                mask[found[self._meet(form.when, rows, some, found)]] = True
            masks.append(mask)
        return np.concatenate(masks), exists

    def filled(self, rows: pa.Table, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Rows in a MemTable's schema, some at a time, whose `columns` have the values of the
        table's rows, or for a new key the default or null."""
        for some, found, old in self.lookups(rows, columns):
            places = np.full(some.num_rows, -1, np.int64)
            places[found] = np.arange(len(found))
            for name in columns:
                value = self._of_rows(old[name], places, some[TOMBSTONE], self._defaults.get(name))
                at = some.schema.get_field_index(name)
                some = some.set_column(at, some.schema.field(at), value)
            yield some

    def are_null(self, columns: Sequence[str]) -> bool:
        """Whether a new row that lacks these columns has null in all of them."""
        return self._defaults.keys().isdisjoint(columns)

    def _of_rows(
        self,
        old: pa.ChunkedArray,
        places: npt.NDArray[np.int64],
        deletes: pa.ChunkedArray,
        default: pa.Scalar | None,
    ) -> pa.Array:
        values, is_null = one_array(old), one_array(deletes).to_numpy(zero_copy_only=False)
        if default is None:
            is_null = is_null | (places < 0)
        else:
            places = np.where(places < 0, len(values), places)
            values = pa.concat_arrays([values, pa.repeat(default, 1)])
        return values.take(pa.array(places, mask=is_null))

    def lookups(
        self, rows: pa.Table, columns: Sequence[str]
    ) -> Iterator[tuple[pa.Table, npt.NDArray[np.int64], pa.Table]]:
        """Rows some at a time, each time with what `_found` has of their keys."""
        start, step, widest = 0, min(StoredLimits.first, StoredLimits.keys), 1
        while start < rows.num_rows:
            some = rows.slice(start, step)
            found, old = self._found(some, columns)
            yield some, found, old
            start += step
            widest = max(widest, old.nbytes // max(1, old.num_rows))
            step = max(1, min(8 * step, StoredLimits.keys, StoredLimits.nbytes // widest))

    def _found(
        self, keys: pa.Table, columns: Sequence[str]
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """The places of the keys that have rows, ascending, and these rows."""
        keys = keys.select(self._key)
        rows = self._get(keys, list(dict.fromkeys([*self._key, *columns])))
        if not rows.num_rows:
            return np.empty(0, np.int64), rows
        live = KeyCodes(key_column(rows.select(self._key).columns))
        found, _ = live.find(key_column(keys.columns))
        return found.astype(np.int64), rows

    def _meet(
        self, when: str, old: pa.Table, new: pa.Table, found: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Which of the rows found meet the condition."""
        given = pa.RecordBatch.from_struct_array(one_array(new[GIVEN]).take(pa.array(found)))
        batch = pa.RecordBatch.from_arrays(list(map(one_array, old.columns)), old.column_names)
        return Expressions(self._info.schema, when, {}).evaluate(pairs(batch, given))[0]
