"""Looking up one key in the base table, whose rows are live and have different keys."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import pyarrow as pa

from exec_nodes.kernels.keys import KeyBatch
from exec_nodes.kernels.literals import key_condition
from exec_nodes.sources.cache import ByteCache
from exec_nodes.sources.key_rows import (
    BYTES_PER_ROW,
    ROWS_PER_LOOKUP,
    KeyRows,
    KnownKeys,
    is_integral,
)

_NO_ROWS = pa.table({})


class BaseLookups:
    """Finds rows of one version of the base table, which has `rows` of them: by Lance's index, or
    once as many lookups were made as pay for reading the keys, by the keys in memory."""

    def __init__(self, identity: Hashable, cache: ByteCache, dataset: Any, rows: int) -> None:
        self._identity = identity
        self._cache = cache
        self._dataset = dataset
        self._rows = rows
        self._lookups = 0

    def rows_of(self, key: KeyBatch, columns: Sequence[str]) -> pa.Table | None:
        """The row of the only key, or no row, with as little as possible around Lance's own
        lookup; None if that can't tell."""
        if len(key.names) > 1:
            return None
        held = self._held(key)
        if held is not None:
            row = held.take(key.values[0], columns)
            return _NO_ROWS if row is None else row
        condition = key_condition(key)
        if condition is None:
            return None
        found = self._dataset.scanner(columns=list(columns), filter=condition).to_table()
        return found if found.num_rows <= 1 else None

    def _held(self, key: KeyBatch) -> KeyRows | None:
        """The keys in memory: those of another version are most of this one's."""
        own, shared = (self._identity, "key rows"), ("key rows", self._dataset.uri)
        held: KeyRows | None = self._cache.get(own)
        if held is not None:
            return held
        known: KnownKeys | None = self._cache.get(shared)
        self._lookups += 1
        if known is None and self._lookups * ROWS_PER_LOOKUP < self._rows:
            return None
        if not is_integral(key.types[0]) or self._dataset.has_stable_row_ids:
            return None
        if self._rows * BYTES_PER_ROW > self._cache.largest:
            return None
        held = self._cache.compute(
            own,
            lambda: KeyRows(self._dataset, key.names[0], known),
            lambda read: read.nbytes,
        )
        self._cache.put(shared, held.known, held.nbytes)
        return held
