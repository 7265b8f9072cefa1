"""Looking up one key in a Lance table."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

import pyarrow as pa

from exec_nodes.base.tasks import in_background
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.keys.sql import key_condition
from exec_nodes.resident.keys import (
    BYTES_PER_ROW,
    ROWS_PER_LOOKUP,
    KeyRows,
    KnownKeys,
    is_integral,
    read_keys,
)
from exec_nodes.resident.single_rows import SingleRows
from exec_nodes.resident.store import Key, ResidentStore

_NO_ROWS = pa.table({})
# Looking for one key among fragments whose keys are not known takes Lance ten times as long as it
# takes to read the keys.
_READ_INLINE = 500_000


class KeyLookups:
    """Finds rows of one version of a table: by Lance's index, or once as many lookups were made as
    pay for reading the keys, by the keys in memory.

    Keys are read in the background, unless they are few: meanwhile those that are known of another
    version find most rows, and Lance looks among the others.
    """

    def __init__(
        self, identity: Hashable, store: ResidentStore, dataset: Any, rows: SingleRows
    ) -> None:
        self._identity = identity
        self._store = store
        self._dataset = dataset
        self._rows = rows
        self._asked = False
        self._meanwhile: KeyRows | None = None

    def rows_of(self, key: KeyBatch, schema: pa.Schema) -> pa.Table | None:
        """The columns of `schema`, all stored, of the last row of the only key, or no row, with as
        little as possible around Lance's own lookup; None if that can't tell."""
        if len(key.names) > 1:
            return None
        resident = self._resident(key)
        if resident is not None:
            found = (self._rows.at(at, schema) for at in resident.addresses(key.values[0]))
            row = next((row for row in found if row is not None), None)
            if row is not None or not resident.unread:
                return _NO_ROWS if row is None else row
        condition = key_condition(key)
        if condition is None:
            return None
        fragments = None if resident is None else resident.unread
        scanner = self._dataset.scanner(columns=schema.names, filter=condition, fragments=fragments)
        rows = scanner.to_table()
        return rows if rows.num_rows <= 1 else None

    def extend(self, column: str) -> None:
        """Read what is missing here of the keys of `column`, where they are kept of any version."""
        if self._store.is_used(self._shared) and self._store.get(self._own) is None:
            self._read(column, self._store.get(self._shared))

    def _resident(self, key: KeyBatch) -> KeyRows | None:
        """The keys in memory, all of them or those of another version; None if there are none."""
        # Asked for each time: else the cache would let go of it first, and the next version would
        # have nothing to start from.
        known: KnownKeys | None = self._store.get(self._shared)
        whole: KeyRows | None = self._store.get(self._own)
        if whole is not None or self._asked:
            return self._meanwhile if whole is None else whole
        if not is_integral(key.types[0]) or self._dataset.has_stable_row_ids:
            return None
        if self._rows.count * BYTES_PER_ROW > self._store.largest:
            return None
        if known is None and not self._store.pays(self._shared, ROWS_PER_LOOKUP, self._rows.count):
            return None
        self._asked = True
        if known is not None and known.covers(self._dataset, key.names[0]):
            rows = KeyRows(self._dataset, known)
            unread = sum(fragment.physical_rows for fragment in rows.unread)
            if unread <= _READ_INLINE and not known.needs_rebuild(self._dataset):
                return self._read(key.names[0], known)
            self._meanwhile = rows
        in_background(partial(self._read, key.names[0], known))
        return self._meanwhile

    def _read(self, column: str, known: KnownKeys | None) -> KeyRows:
        keys = read_keys(self._dataset, column, known)
        rows = KeyRows(self._dataset, keys)
        self._store.put(self._shared, keys, keys.nbytes)
        self._store.put(self._own, rows, keys.nbytes)
        # Kept by the cache alone: when it lets go of them, they are asked for again.
        self._meanwhile, self._asked = None, False
        return rows

    @property
    def _own(self) -> Key:
        return Key("key places", (self._identity,))

    @property
    def _shared(self) -> Key:
        return Key("key places", (self._dataset.uri,))
