"""Columns of a small generation, kept decoded."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import pyarrow as pa

from exec_nodes.base.columns import ROW_ADDRESS, RowAddresses
from exec_nodes.keys.keys import one_array
from exec_nodes.lance.scan import row_bytes
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.store import Key, ResidentStore


class DecodedColumns:
    """The columns of one source in the order of a scan, each kept on its own while it fits.

    `read` gives the columns of a schema and `_rowaddr` of all rows.
    """

    def __init__(
        self, identity: Hashable, store: ResidentStore, read: Callable[[pa.Schema], pa.Table]
    ) -> None:
        self._identity = identity
        self._store = store
        self._read = read

    def of(self, schema: pa.Schema) -> tuple[pa.Table, RowAddresses]:
        """The columns of `schema` of all rows, and the row addresses."""
        wanted = [*schema.names, ROW_ADDRESS]
        keys = {name: Key("column", (self._identity,), name) for name in wanted}
        kept = self._store.get_all(list(keys.values()))
        found: dict[str, pa.Array] = dict(zip(wanted, kept, strict=True))
        missing = [name for name, column in found.items() if column is None]
        if missing:
            table = self._read(pa.schema([f for f in schema if f.name in missing]))
            for name in missing:
                found[name] = column = one_array(table[name])
                self._store.put(keys[name], column, column.nbytes)
        addresses = found[ROW_ADDRESS].to_numpy()
        return pa.Table.from_arrays(
            [found[name] for name in schema.names], schema=schema
        ), addresses


def is_small(rows: int, schema: pa.Schema) -> bool:
    """Whether these columns of so many rows are worth keeping decoded."""
    return rows * row_bytes(schema) <= Admission.small
