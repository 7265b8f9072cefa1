"""The rows that each kind of statement writes, computed from the existing rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.arrow.large_columns import concatenated
from exec_nodes.evolution.differences import differences
from exec_nodes.keys.keys import KeyBatch, key_values, one_array
from memwal_sql.errors import InvalidCallError, KeysExistError, ReopenError
from memwal_sql.write.conditional.expressions import Expressions, Sides, pairs, plain
from memwal_sql.write.conditional.fold import fold, rows_at
from memwal_sql.write.ingest.normalise import Normaliser

SHOWN_KEYS = 10
"""The most keys that an error shows."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """The writes of a statement for some keys.

    Attributes:
        rows: the rows to write, in the MemTables' schema, at most one per key.
        skipped: for each row given, or existing, whose condition was not true, its key.
        not_found: the number of keys without a row.
        moved: the old and the new keys of rows that get another key.
    """

    rows: pa.RecordBatch
    skipped: Sequence[Hashable] = ()
    not_found: int = 0
    moved: tuple[pa.Table, pa.Table] | None = None


Compute = Callable[[pa.RecordBatch], Resolved]


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The changes of a statement: whole rows to write, in the table's columns and types, and keys
    to delete. Each key occurs once in both together.

    Attributes:
        moved: the old and the new keys of rows that get another key.
    """

    upserts: pa.Table | None = None
    deletes: pa.Table | None = None
    moved: tuple[pa.Table, pa.Table] | None = None


# Computes the changes of a statement from the current rows: from all, or from those with some keys.
ReadChanges = Callable[[pa.Table | None], RowChanges]


class LiveRows(Protocol):
    """The table's rows, as a strong reader sees them now; `table.table.Table`."""

    def get(self, keys: pa.Table) -> pa.Table:
        """The rows with these keys."""

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
    ) -> pa.Table:
        """The rows that meet a SQL condition."""


class Resolver:
    """Computes the rows of statements over one table, and their keys."""

    def __init__(
        self,
        schema: pa.Schema,
        primary_key: Sequence[str],
        normaliser: Normaliser,
        rows: LiveRows,
    ) -> None:
        self._schema = schema
        self._primary_key = list(primary_key)
        self._normaliser = normaliser
        self._rows = rows

    def expressions(self, when: str | None, columns: Mapping[str, str]) -> Expressions:
        """A condition over existing rows, and the values of columns. Raises InvalidCallError for
        unknown columns, and for columns of the primary key."""
        keys = sorted(set(columns) & set(self._primary_key))
        if keys:
            raise InvalidCallError(
                f"the primary key columns {keys} can't be set: delete the row and insert another"
            )
        return Expressions(self._schema, when, columns)

    def upsert(
        self, new_rows: pa.RecordBatch, expressions: Expressions
    ) -> tuple[pa.RecordBatch, Compute]:
        """Rows in columns of the table; existing rows keep values that are neither given nor set,
        new ones have defaults. Rows with a true `_tombstone` delete theirs."""

        def compute(keys: pa.RecordBatch) -> Resolved:
            old, live = self._live_rows(keys)
            values = self._values(keys)
            if lacking and not live.all():
                new = values[int(np.argmin(live))]
                raise InvalidCallError(
                    f"the required columns {lacking} are missing, and the key {new!r} is new; "
                    f"the rows have {new_rows.schema.names}"
                )
            if defaults and not live.all():
                places = pa.array(np.where(live, np.arange(len(live)), len(live)))
                for name, value in defaults.items():  # Arrow's if_else has no extension types
                    column = pa.concat_arrays([old[name], pa.repeat(value, 1)]).take(places)
                    old = old.set_column(old.schema.get_field_index(name), name, column)
            rows = among(new_rows, of_row, frozenset(values))
            current, exists, written, skipped = fold(
                rows, self._primary_key, old, live, values, expressions
            )
            upserts = self._upserts(current.filter(pa.array(written & exists)))
            deletes = keys.filter(pa.array(written & ~exists))
            batches = [upserts, deletes] if len(deletes) else [upserts]
            return Resolved(concatenated(batches), skipped)

        of_row = self._values(new_rows)
        names = new_rows.schema.names
        defaults = {n: v for n, v in self._normaliser.defaults.items() if n not in names}
        fields = (f for f in self._schema if not f.nullable and f.name not in {*names, *defaults})
        lacking = [field.name for field in fields]
        return self._keys(new_rows), compute

    def insert(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, Compute]:
        """Rows in the MemTables' schema, whose keys must be new."""

        def compute(keys: pa.RecordBatch) -> Resolved:
            _, live = self._live_rows(keys)
            if live.any():
                raise self._exist(keys.filter(pa.array(live)), "exist")
            return Resolved(among(rows, of_row, frozenset(self._values(keys))))

        of_row = self._values(rows)
        keys = self._keys(rows)
        if len(keys) < len(rows):
            again = np.ones(len(rows), np.bool_)
            again[list(self._key_batch(rows).positions.values())] = False
            raise self._exist(rows.filter(pa.array(again)), "are given more than once")
        return keys, compute

    def delete(self, keys: pa.RecordBatch, when: Expressions) -> tuple[pa.RecordBatch, Compute]:
        """The rows with these keys that meet a condition."""

        def compute(keys: pa.RecordBatch) -> Resolved:
            old, live = self._live_rows(keys)
            chosen = self._meets(old, live, when, pairs)
            skipped = self._values(keys.filter(pa.array(live & ~chosen)))
            return Resolved(keys.filter(pa.array(chosen)), skipped, int((~live).sum()))

        return self._keys(keys), compute

    def delete_where(self, where: str) -> tuple[Callable[[], Resolved], Compute]:
        """The rows that meet a condition."""
        if where is None:
            raise InvalidCallError("where=None: to delete all rows, pass where='true'")
        when = self.expressions(where, {})

        def select() -> Resolved:
            matching = self._rows.to_arrow(self._primary_key, where)
            when.evaluate(plain(pa.RecordBatch.from_pylist([], self._schema)))
            return Resolved(self._normaliser.tombstones(matching))

        def compute(keys: pa.RecordBatch) -> Resolved:
            old, live = self._live_rows(keys)
            chosen = self._meets(old, live, when, plain)
            return Resolved(keys.filter(pa.array(chosen)))

        return select, compute

    def update(
        self, columns: Mapping[str, str], where: str | None
    ) -> tuple[Callable[[], Resolved], Compute]:
        """New values of columns, by expressions over the row, for the rows that meet a
        condition."""
        expressions = self.expressions(where, columns)
        if not columns:
            raise InvalidCallError("set={}: name the columns to update")

        def updated(rows: pa.RecordBatch) -> Resolved:
            places, new = expressions.evaluate(plain(rows))
            chosen = rows.take(pa.array(places))
            named = [new.get(name, chosen[name]) for name in rows.schema.names]
            return Resolved(self._upserts(pa.RecordBatch.from_arrays(named, rows.schema.names)))

        def select() -> Resolved:
            return updated(self._batch(self._rows.to_arrow(None, where)))

        def compute(keys: pa.RecordBatch) -> Resolved:
            old, live = self._live_rows(keys)
            return updated(old.filter(pa.array(live)))

        return select, compute

    def change(self, read: ReadChanges) -> tuple[Callable[[], Resolved], Compute]:
        """The changes that `read` returns."""

        def resolved(changes: RowChanges) -> Resolved:
            batches = []
            if changes.upserts is not None:
                batches.append(self._normaliser.upserts(changes.upserts))
            if changes.deletes is not None:
                batches.append(self._normaliser.tombstones(changes.deletes))
            return Resolved(concatenated(batches), moved=changes.moved)

        def compute(keys: pa.RecordBatch) -> Resolved:
            return resolved(read(self._key_batch(keys).table))

        return lambda: resolved(read(None)), compute

    def _meets(
        self,
        old: pa.RecordBatch,
        live: npt.NDArray[np.bool_],
        when: Expressions,
        sides: Callable[[pa.RecordBatch], Sides],
    ) -> npt.NDArray[np.bool_]:
        places, _ = when.evaluate(sides(old.filter(pa.array(live))))
        chosen = np.zeros(len(live), np.bool_)
        chosen[np.flatnonzero(live)[places]] = True
        return chosen

    def _live_rows(self, keys: pa.RecordBatch) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_]]:
        """The live row of each distinct key, nulls if it has none; and for each key whether it has
        one."""
        asked = self._key_batch(keys)
        live_rows = self._batch(self._rows.get(asked.table))
        place, key_list = self._key_batch(live_rows).positions, asked.values
        places = np.fromiter((place.get(key, -1) for key in key_list), np.int64, len(key_list))
        live = places >= 0
        if live.all():
            return rows_at(live_rows, places), live
        return live_rows.take(pa.array(places, mask=~live)), live

    def _batch(self, rows: pa.Table) -> pa.RecordBatch:
        if not rows.schema.equals(self._schema):
            raise ReopenError(
                "the columns of the table have changed since this writer was opened "
                f"({differences(self._schema, rows.schema)}): open a new one"
            )
        try:
            columns = [one_array(column) for column in rows.columns]
        except pa.ArrowInvalid as error:  # beyond 32-bit offsets
            raise InvalidCallError(
                f"a column of the {rows.num_rows} rows read is too large for one call: write fewer "
                f"rows at once: {error}"
            ) from error
        return pa.RecordBatch.from_arrays(columns, self._schema.names)

    def _upserts(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return self._normaliser.upserts(
            pa.RecordBatch.from_arrays(rows.columns, schema=self._schema)
        )

    def _keys(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Their distinct keys, as rows that delete them."""
        keys = self._key_batch(rows)
        places = np.fromiter(keys.positions.values(), np.int64)
        return self._normaliser.tombstones(keys.table.take(pa.array(np.sort(places))))

    def _key_batch(self, rows: pa.RecordBatch) -> KeyBatch:
        return KeyBatch(pa.Table.from_batches([rows.select(self._primary_key)]))

    def _values(self, rows: pa.RecordBatch) -> list[Hashable]:
        return key_values(rows.select(self._primary_key).columns)

    def _exist(self, rows: pa.RecordBatch, what: str) -> KeysExistError:
        key_rows = rows.select(self._primary_key)
        names = key_names(key_rows.slice(0, SHOWN_KEYS))
        return KeysExistError(
            f"{key_rows.num_rows} keys to insert {what}, such as {names}: "
            "upsert replaces their rows",
            frozenset(key_names(key_rows)),
        )


def among(
    rows: pa.RecordBatch, keys: Sequence[Hashable], chosen_keys: Set[Hashable]
) -> pa.RecordBatch:
    """The rows with these keys; `keys` are the key values of all rows."""
    chosen = np.fromiter((key in chosen_keys for key in keys), np.bool_, len(keys))
    return rows if chosen.all() else rows.filter(pa.array(chosen))


def key_names(keys: pa.RecordBatch) -> list[Hashable]:
    """The keys as users write them: values, or tuples for a composite key."""
    rows = [tuple(row.values()) for row in keys.to_pylist()]
    return [row[0] if len(row) == 1 else row for row in rows]
