"""The rows of a flushed generation, as the base table takes them.

A generation's columns, and the fields inside them, carry the base table's field ids (protocol rule
2), so those that were renamed, dropped or added in the base meanwhile are found by id: what the
generation lacks is null, what the base lacks is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from exec_nodes.arrow.arrays import Mask
from exec_nodes.base.lazy import lazy_property
from exec_nodes.evolution.project import ByFieldId, numbered
from exec_nodes.evolution.widen import widened
from exec_nodes.keys.codes import KeyCodes, code_set, concat, first_duplicate, superseded
from exec_nodes.keys.keys import KeyBatch, key_column
from exec_nodes.lance.errors import lance_errors
from exec_nodes.lance.reading import rows_of
from exec_nodes.lance.stored_generation import open_generation
from memwal_sql.errors import MemWalError, RepairError, SourceGoneError
from memwal_sql.state.context import TableContext
from memwal_sql.state.schema import TOMBSTONE, primary_key_of
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.paths import generation_uri
from memwal_sql.storage.region.manifest import FlushedGeneration
from memwal_sql.storage.wal.entry import entry_schema

# So many rows tell how wide a row is.
_SAMPLE_ROWS = 1024
_NAME = "the generation"


@dataclass(frozen=True)
class GenerationRows:
    """The newest row of every key of one generation.

    Attributes:
        keys: of all its rows, as columns of the base table.
        deletes: the keys of its tombstones.
        flushed: what the region's manifest says of it.
    """

    keys: pa.Table
    deletes: pa.Table
    flushed: FlushedGeneration
    _uri: str
    _dataset: Any
    _base: Any
    _by_id: ByFieldId
    _kept: Mask

    @lazy_property
    def upserts(self) -> int:
        return int(np.count_nonzero(self._kept))

    @property
    def nbytes(self) -> int:
        return int(self.upserts * self._row_bytes)

    def slices(self, max_bytes: int) -> Iterator[tuple[int, int, int]]:
        """Runs of rows of about `max_bytes`: where they start and end, and how many rows to upsert
        are among them, which is not 0."""
        total = len(self._kept)
        step = total
        if total > _SAMPLE_ROWS:
            step = max(1, int(max_bytes / self._row_bytes))
        for start in range(0, total, step):
            upserts = int(np.count_nonzero(self._kept[start : start + step]))
            if upserts:
                yield start, min(start + step, total), upserts

    @lazy_property
    def _row_bytes(self) -> float:
        if self.flushed.bytes and self.flushed.rows:
            return self.flushed.bytes / self.flushed.rows
        sample = self.read(0, _SAMPLE_ROWS)
        return float(max(1, sample.nbytes) / max(1, sample.num_rows))

    def part(self, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows to upsert by their numbers among these; a number below 0 is that of no row."""
        places = np.flatnonzero(self._kept)[max(start, 0) : max(end, 0)]
        if len(places):
            yield from self.read(int(places[0]), int(places[-1]) + 1).to_batches()

    def read_all(self) -> pa.Table:
        return self.read(0, len(self._kept))

    def read(self, start: int, end: int) -> pa.Table:
        """The rows to upsert among those from `start` up to `end`, in the base table's schema."""
        schema, stored_names = self._base.schema, self._by_id.stored_names
        stored = [name for field in schema if (name := stored_names[field.name]) is not None]
        with _damage_is_typed(self._uri):
            rows = rows_of(self._dataset.scanner(columns=stored, offset=start, limit=end - start))
        kept = self._kept[start:end]
        if not kept.all():
            rows = rows.filter(pa.array(kept))
        columns = [
            pa.nulls(rows.num_rows, field.type)
            if (name := stored_names[field.name]) is None
            else _cast(self._uri, self._by_id.column(field.name, rows[name]), field)
            for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)


def open_rows(
    context: TableContext, region: UUID, flushed: FlushedGeneration, base: Any
) -> GenerationRows:
    """Open a generation, to be merged into the Lance dataset `base`.

    Raises RepairError for a folder that is missing, damaged or of another schema, and
    StoreUnavailableError.
    """
    uri = generation_uri(lance_uri(context.uri), region, flushed.path)
    primary_key = primary_key_of(base.schema)
    with _damage_is_typed(uri):
        dataset = open_generation(uri, _NAME, flushed.rows, context.storage_options)
        by_id = _columns_of(uri, dataset, base, primary_key)
        keys = rows_of(dataset.scanner(columns=[*primary_key, TOMBSTONE]))
    deleted = keys[TOMBSTONE].to_numpy()
    fields = [base.schema.field(name) for name in primary_key]
    columns = [_cast(uri, keys[field.name], field) for field in fields]
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    newest = _newest(table)
    deletes = table.filter(pa.array(deleted & newest))
    return GenerationRows(table, deletes, flushed, uri, dataset, base, by_id, newest & ~deleted)


def codes_of(generations: Sequence[GenerationRows]) -> KeyCodes:
    """The codes of their keys, one generation after the other."""
    return KeyCodes(concat([key_column(generation.keys.columns) for generation in generations]))


def newest_of(generations: Sequence[GenerationRows], keys: KeyCodes) -> list[GenerationRows]:
    """The rows to upsert that remain of generations, the oldest first, if only the newest row of
    each key counts; `keys` are their codes."""
    kept = np.concatenate([generation._kept for generation in generations])  # noqa: SLF001
    kept[superseded(keys.codes, ~kept, code_set(keys))] = False
    ends = np.cumsum([len(generation._kept) for generation in generations])  # noqa: SLF001
    parts = np.split(kept, ends[:-1])
    return [
        replace(generation, _kept=part) for generation, part in zip(generations, parts, strict=True)
    ]


def _newest(keys: pa.Table) -> Mask:
    """Flags of the rows that are the last of their key. In our generations all are, and native code
    masks the others; a flush as the specification describes it repeats keys."""
    newest = np.ones(keys.num_rows, np.bool_)
    if first_duplicate(keys) is not None:
        last = {key: row for row, key in enumerate(KeyBatch(keys).values)}
        newest[:] = False
        newest[list(last.values())] = True
    return newest


def _columns_of(uri: str, dataset: Any, base: Any, primary_key: Sequence[str]) -> ByFieldId:
    """The generation's columns as those of the base table."""
    stored = numbered(dataset.schema, dataset.lance_schema)
    by_id = ByFieldId(stored, entry_schema(base.schema, base.lance_schema))
    # Lance never renames a key.
    missing = [name for name in (*primary_key, TOMBSTONE) if by_id.stored_names[name] != name]
    if missing:
        raise RepairError(
            f"{uri} has the columns {stored.names}, which are not those of a generation of "
            f"this table: {missing} are missing"
        )
    return by_id


def _cast(uri: str, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return widened(column, field)
    except (pa.ArrowException, ValueError, SourceGoneError) as error:
        raise RepairError(
            f"{uri} holds {column.type} where column {field.name!r} of the table is "
            f"{field.type}: {error}"
        ) from error


@contextmanager
def _damage_is_typed(uri: str) -> Iterator[None]:
    try:
        with lance_errors(_NAME, uri):
            yield
    except SourceGoneError as error:
        raise RepairError(f"{uri} is missing: {error}") from error
    except (OSError, ValueError) as error:
        if isinstance(error, MemWalError):
            raise
        raise RepairError(f"{uri} is damaged: {error}") from error
