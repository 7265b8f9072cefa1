"""`table.get`: rows by primary key, newest first, without planning.

Specification 2, "Point Lookups": region by the spec, then the newest generation first, each behind
its bloom filter, and the base table last.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from exec_nodes.base.columns import KEY_POSITION, TOMBSTONE
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.sources.source import Source

Places = npt.NDArray[np.int64]


class FoundRows:
    """Rows gathered from several sources, and the places of their keys in the question."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._tables: list[pa.Table] = []
        self._places: list[Places] = []

    @property
    def columns(self) -> list[str]:
        """The columns to take."""
        return list(self._schema.names)

    def add(self, rows: pa.Table, places: Places) -> None:
        """Add what `Source.take` returned for the keys asked at `places`; drops tombstones."""
        asked = places[rows[KEY_POSITION].to_numpy()]
        deleted = rows[TOMBSTONE].to_numpy()
        rows = rows.select(self._schema.names)
        if deleted.any():
            live = ~deleted
            rows, asked = rows.filter(pa.array(live)), asked[live]
        self._tables.append(rows)
        self._places.append(asked)

    def in_order(self) -> pa.Table:
        """All rows in the order in which their keys were asked for."""
        if not self._tables:
            return self._schema.empty_table()
        rows = pa.concat_tables([_as(table, self._schema) for table in self._tables])
        if rows.num_rows > 1:
            rows = rows.take(pa.array(np.argsort(np.concatenate(self._places), kind="stable")))
        return rows


def search(keys: KeyBatch, places: Places, sources: Sequence[Source], found: FoundRows) -> Places:
    """Look for `keys` in `sources`, newest first; returns the places of the keys not found.

    A key is looked for in an older source only while no newer one has it, be it as a row or as a
    tombstone. `places` are the positions of `keys` in the question.
    """
    for source in sources:
        if not len(keys):
            break
        maybe = source.might_contain(keys)
        if not maybe.any():
            continue
        rows = source.take(keys.filter(maybe), found.columns)
        if not rows.num_rows:
            continue
        found.add(rows, places[maybe])
        left = np.ones(len(keys), dtype=np.bool_)
        left[np.flatnonzero(maybe)[rows[KEY_POSITION].to_numpy()]] = False
        keys, places = keys.filter(left), places[left]
    return places


def find_one(key: KeyBatch, sources: Iterable[Source], schema: pa.Schema) -> pa.Table:
    """The live row of the only key, or no row; `sources` are asked newest first."""
    for source in sources:
        found = source.last(key, schema.names)
        if found is not None:
            row, deleted = found
            if deleted:
                break
            return _as(row, schema)
    return schema.empty_table()


def distinct(keys: KeyBatch) -> KeyBatch:
    """`keys` with each key once, where it came first."""
    if len(keys.positions) == len(keys):
        return keys
    last_to_first = zip(reversed(keys.values), range(len(keys) - 1, -1, -1), strict=True)
    first = np.sort(np.fromiter(dict(last_to_first).values(), np.int64, len(keys.positions)))
    return KeyBatch(keys.table.take(pa.array(first)))


def _as(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Rows of these columns in the types of now."""
    if rows.schema.equals(schema):
        return rows
    # Arrow's cast to the same type refuses a NULL struct if a field in it admits no NULL.
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(rows.columns, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)
