"""The changes that a statement makes to rows, checked as a whole before they are written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from exec_nodes.keys.keys import KeyBatch, key_column, one_array
from memwal_sql.errors import InvalidCallError, KeysExistError
from memwal_sql.statements.changes.target import Target
from memwal_sql.write.conditional.resolve import SHOWN_KEYS, RowChanges, key_names

INSERT, UPDATE, DELETE = "INSERT", "UPDATE", "DELETE"
_MATCHED = (
    "the rows with these keys would be changed more than once: {}; several source rows match "
    "each of them"
)
_GIVEN = (
    "several rows would get the same key, each of these: {}; keep one row a key, as by "
    "QUALIFY row_number() OVER (PARTITION BY key ORDER BY time DESC) = 1"
)


@dataclass(frozen=True, slots=True)
class RowAction:
    """Rows that are inserted, updated or deleted.

    Attributes:
        kind: `INSERT`, `UPDATE` or `DELETE`.
        rows: the new rows, in the table's columns and types; deleted rows as they were, or their
            keys.
        before: the old keys of updated rows, if the statement sets key columns.
        checks_keys: whether the keys of inserted rows are looked up, as they must be new; not where
            the rows may replace others, or their keys were looked up before.
    """

    kind: str
    rows: pa.Table
    before: pa.Table | None = None
    checks_keys: bool = True


def row_changes(target: Target, actions: Sequence[RowAction]) -> RowChanges:
    """The changes for the writer.

    Raises InvalidCallError for a row that is changed twice and for a key that two rows get, and
    KeysExistError for a key that another row has.
    """
    keys = partial(keys_of, target)
    written = [action for action in actions if action.kind != DELETE]
    moved = [
        _moved(target, action.before, action.rows)
        for action in actions
        if action.before is not None
    ]
    gone = keys([*(a.rows for a in actions if a.kind == DELETE), *(old for old, _ in moved)])
    updated = (a.rows if a.before is None else a.before for a in actions if a.kind == UPDATE)
    _check_once(keys([*(a.rows for a in actions if a.kind == DELETE), *updated]), _MATCHED)
    _check_once(keys(action.rows for action in written), _GIVEN)
    inserted = (action.rows for action in actions if action.kind == INSERT and action.checks_keys)
    new = keys([*inserted, *(new for _, new in moved)])
    if new.num_rows:
        gone_keys = frozenset(KeyBatch(gone).values)
        existing = KeyBatch(keys([target.table.get(new)]))
        if existing := existing.filter(_not_among(existing, gone_keys)):
            shown = [key for batch in existing.table.to_batches() for key in key_names(batch)]
            raise KeysExistError(
                f"other rows have {len(shown)} of the keys that the statement writes, such as "
                f"{shown[:SHOWN_KEYS]}",
                frozenset(shown),
            )
    if gone.num_rows and written:
        taken = frozenset(KeyBatch(keys(a.rows for a in written)).values) if new.num_rows else ()
        gone = KeyBatch(gone).filter(_not_among(KeyBatch(gone), frozenset(taken))).table
    return RowChanges(
        pa.concat_tables([action.rows for action in written]) if written else None,
        gone if gone.num_rows or not written else None,
        (keys(old for old, _ in moved), keys(new for _, new in moved)) if moved else None,
    )


def _not_among(keys: KeyBatch, others: frozenset[Hashable]) -> np.ndarray:
    return np.fromiter((key not in others for key in keys.values), np.bool_, len(keys))


def keys_of(target: Target, rows: Iterable[pa.Table]) -> pa.Table:
    """The keys of rows, in the table's types.

    Raises InvalidCallError for a null.
    """
    schema = pa.schema(
        [target.columns.field(name).with_nullable(False) for name in target.table.primary_key]
    )
    tables = [schema.empty_table()]
    for table in rows:
        for name in schema.names:
            if table[name].null_count:
                raise InvalidCallError(f"a row would have NULL in its key column {name!r}")
        tables.append(table.select(schema.names).cast(schema))
    return pa.concat_tables(tables)


def _moved(target: Target, before: pa.Table, after: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The keys of rows that get another key, before and after."""
    old, new = keys_of(target, [before]), keys_of(target, [after])
    differs = pc.not_equal(*(one_array(key_column(keys.columns)) for keys in (old, new)))
    return old.filter(differs), new.filter(differs)


def count_keys(target: Target, rows: pa.Table) -> int:
    """The number of distinct keys of rows. Raises InvalidCallError for a null."""
    return _distinct(keys_of(target, [rows]))


def _distinct(keys: pa.Table) -> int:
    return int(pc.count_distinct(one_array(key_column(keys.columns))).as_py())


def _check_once(keys: pa.Table, message: str) -> None:
    """Raise InvalidCallError with `message`, which gets the keys, for keys that occur twice."""
    if _distinct(keys) < keys.num_rows:
        times = Counter(KeyBatch(keys).values)
        again = [key for key, count in times.items() if count > 1]
        raise InvalidCallError(message.format(again[:SHOWN_KEYS]))
