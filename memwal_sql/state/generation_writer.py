"""Writes the rows of one region as a generation, with its bloom filter and indexes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pyarrow as pa

from exec_nodes.keys.bloom import BloomFilter
from exec_nodes.keys.keys import KeyBatch
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.indexes import IndexRecipe
from memwal_sql.storage.generation.write import write_generation
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.region.manifest import FlushedGeneration
from planner.model import TableInfo

FindIndexes = Callable[[], Sequence[IndexRecipe]]


@dataclass(frozen=True)
class GenerationWriter:
    """Writes generations of one table.

    `base` is the base table's format, or its Lance dataset, whose field ids stored rows carry;
    `indexes` is called every time, as indexes may have been made meanwhile.
    """

    context: TableContext
    info: TableInfo
    base: Any
    indexes: FindIndexes

    def write(self, region: UUID, generation: int, rows: pa.Table) -> FlushedGeneration:
        """Write `rows`, with distinct keys, durably into a new folder of the region."""
        return self._write(self.context.uri, region, generation, rows)

    def write_into(
        self, folder: str, region: UUID, generation: int, rows: pa.Table
    ) -> FlushedGeneration:
        """The same below another folder of the table, which has the table's own layout."""
        return self._write(f"{self.context.uri}/{folder}", region, generation, rows)

    def _write(self, uri: str, region: UUID, generation: int, rows: pa.Table) -> FlushedGeneration:
        context = self.context
        store = context.store
        if uri != context.uri:
            store = open_store(uri, context.storage_options)
        keys = KeyBatch(rows.select(self.info.primary_key))
        return write_generation(
            store,
            uri,
            region,
            generation,
            rows,
            primary_key=self.info.primary_key,
            base=self.base,
            bloom_filter=BloomFilter.build(keys.hashes).data,
            indexes=self.indexes(),
            storage_options=context.storage_options,
        )
