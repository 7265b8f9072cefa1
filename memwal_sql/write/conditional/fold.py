"""Folds the rows given for each key, one after the other, into the existing row."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.keys.keys import key_values
from memwal_sql.state.schema import TOMBSTONE
from memwal_sql.write.conditional.expressions import Expressions, pairs

Places = npt.NDArray[np.int64]


def fold(
    new_rows: pa.RecordBatch,
    primary_key: Sequence[str],
    old: pa.RecordBatch,
    exists_before: npt.NDArray[np.bool_],
    keys: Sequence[Hashable],
    expressions: Expressions,
) -> tuple[pa.RecordBatch, npt.NDArray[np.bool_], npt.NDArray[np.bool_], list[Hashable]]:
    """For each key its last row, whether the row exists, and whether it was written; and the keys
    of the given rows that were not.

    Args:
        new_rows: columns of the rows given, several of one key in order; `_tombstone`, if it is
            among them, says which delete.
        old, exists_before, keys: for each distinct key the existing row, nulls if there is none,
            whether it exists, and the key value.
        expressions: a row is written over an existing one if their condition is true, and with
            their values; columns that are neither given nor computed keep their values.
    """
    place = {key: at for at, key in enumerate(keys)}
    of_key = key_values(new_rows.select(list(primary_key)).columns)
    places = np.fromiter((place[key] for key in of_key), np.int64, len(of_key))
    current, exists = old, exists_before.copy()
    written = np.zeros(len(keys), np.bool_)
    skipped: list[Hashable] = []
    if not expressions:  # all rows have the same columns: the last row of a key is its result
        _, last = np.unique(places[::-1], return_index=True)
        last = np.sort(len(places) - 1 - last)
        new_rows, places = rows_at(new_rows, last), places[last]
    for turn in _turns(places, len(keys)):
        at = places[turn]
        rows = rows_at(new_rows, turn)
        deletes = np.zeros(len(at), np.bool_)
        if TOMBSTONE in rows.schema.names:
            deletes = rows[TOMBSTONE].to_numpy(zero_copy_only=False)
            rows = rows.drop_columns([TOMBSTONE])
        before = rows_at(current, at)
        applies = np.ones(len(at), np.bool_)
        replaced = _replaced(before, rows)
        over = np.flatnonzero(exists[at])
        if expressions:
            met, values = expressions.evaluate(pairs(rows_at(before, over), rows_at(rows, over)))
            applies[over] = False
            applies[over[met]] = True
            replaced = _with_values(replaced, values, over[met])
            skipped += [keys[place] for place in at[~applies].tolist()]
        current = _put(current, replaced.filter(pa.array(applies)), at[applies])
        exists[at[applies]] = ~deletes[applies]
        written[at[applies]] = True
    return current, exists, written, skipped


def rows_at(rows: pa.RecordBatch, places: Places) -> pa.RecordBatch:
    """The rows at these positions; not copied if they are all rows in order."""
    return rows if _are_all(places, rows) else rows.take(pa.array(places))


def _are_all(places: Places, rows: pa.RecordBatch) -> bool:
    return np.array_equal(places, np.arange(rows.num_rows))


def _turns(places: Places, keys: int) -> list[Places]:
    """The first row of every key, the second of those with two, and so on."""
    if len(places) == keys:
        return [np.arange(keys)]
    order = np.argsort(places, kind="stable")
    starts = np.flatnonzero(np.diff(places[order], prepend=-1))
    rank = np.arange(len(places)) - np.repeat(starts, np.diff(starts, append=len(places)))
    return [np.sort(order[rank == turn]) for turn in range(int(rank.max()) + 1)]


def _replaced(before: pa.RecordBatch, rows: pa.RecordBatch) -> pa.RecordBatch:
    new_columns = set(rows.schema.names)
    columns = [rows[name] if name in new_columns else before[name] for name in before.schema.names]
    return pa.RecordBatch.from_arrays(columns, before.schema.names)


def _with_values(
    rows: pa.RecordBatch, values: dict[str, pa.Array], places: Places
) -> pa.RecordBatch:
    if not values:
        return rows
    names = list(values)
    new = _put(rows.select(names), pa.RecordBatch.from_arrays(list(values.values()), names), places)
    columns = dict(zip(rows.schema.names, rows.columns, strict=True))
    columns |= dict(zip(names, new.columns, strict=True))
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _put(rows: pa.RecordBatch, others: pa.RecordBatch, places: Places) -> pa.RecordBatch:
    """`rows` with the `others` at these positions."""
    if _are_all(places, rows):
        return others
    order = np.arange(rows.num_rows)
    order[places] = rows.num_rows + np.arange(len(places))
    columns = [
        pa.concat_arrays([column, other]).take(pa.array(order))
        for column, other in zip(rows.columns, others.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)
