"""The rows of a flushed generation, as the base table takes them.

A generation's columns carry the base table's field ids (protocol rule 2), so columns that were
renamed, dropped or added in the base meanwhile are found by id: what the generation lacks is null,
what the base lacks is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lance
import numpy as np
import pyarrow as pa

from exec_nodes.kernels.arrays import Mask
from exec_nodes.kernels.duplicates import first_duplicate
from exec_nodes.kernels.keys import KeyBatch
from memwal_sql.errors import RepairError
from memwal_sql.schema import TOMBSTONE
from memwal_sql.storage.field_ids import field_ids

# So many rows tell how wide a row is.
_SAMPLE_ROWS = 1024


@dataclass(frozen=True)
class GenerationRows:
    """The newest row of every key of one generation.

    Attributes:
        deletes: the keys of its tombstones, as columns of the base table.
        upserts: how many rows it inserts or replaces.
    """

    deletes: pa.Table
    upserts: int
    _uri: str
    _dataset: Any
    _base: Any
    _names: Mapping[str, str | None]
    _kept: Mask

    def slices(self, max_bytes: int) -> Iterator[tuple[int, int]]:
        """Runs of rows of about `max_bytes` that have something to upsert."""
        total = len(self._kept)
        step = total
        if total > _SAMPLE_ROWS:
            sample = self.read(0, _SAMPLE_ROWS)
            step = max(1, max_bytes * max(1, sample.num_rows) // max(1, sample.nbytes))
        for start in range(0, total, step):
            if self._kept[start : start + step].any():
                yield start, min(start + step, total)

    def read(self, start: int, end: int) -> pa.Table:
        """The rows to upsert among those from `start` up to `end`, in the base table's schema."""
        stored = [name for name in self._names.values() if name is not None]
        with _damage_is_typed(self._uri):
            found = self._dataset.to_table(columns=stored, offset=start, limit=end - start)
        kept = self._kept[start:end]
        if not kept.all():
            found = found.filter(pa.array(kept))
        schema = self._base.schema
        columns = [
            pa.nulls(found.num_rows, field.type)
            if (name := self._names[field.name]) is None
            else _cast(self._uri, found[name], field)
            for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)


def open_rows(
    uri: str,
    base: Any,
    primary_key: Sequence[str],
    storage_options: Mapping[str, str] | None = None,
) -> GenerationRows:
    """Open the generation at `uri`, to be merged into the Lance dataset `base`.

    Raises RepairError for a folder that is missing, damaged or of another schema.
    """
    with _damage_is_typed(uri):
        options = dict(storage_options) if storage_options else None
        dataset = lance.dataset(uri, storage_options=options)
        names = _columns_of(uri, dataset, base, primary_key)
        keys = dataset.to_table(columns=[*primary_key, TOMBSTONE])
    deleted = keys[TOMBSTONE].to_numpy()
    fields = [base.schema.field(name) for name in primary_key]
    columns = [_cast(uri, keys[field.name], field) for field in fields]
    table = pa.Table.from_arrays(columns, schema=pa.schema(fields))
    newest = _newest(table)
    deletes = table.filter(pa.array(deleted & newest))
    kept = newest & ~deleted
    return GenerationRows(deletes, int(kept.sum()), uri, dataset, base, names, kept)


def _newest(keys: pa.Table) -> Mask:
    """Which rows are the last of their key. Ours all are; native code may repeat a key."""
    newest = np.ones(keys.num_rows, np.bool_)
    if first_duplicate(keys) is not None:
        last = {key: row for row, key in enumerate(KeyBatch(keys).values)}
        newest[:] = False
        newest[list(last.values())] = True
    return newest


def _columns_of(
    uri: str, dataset: Any, base: Any, primary_key: Sequence[str]
) -> dict[str, str | None]:
    """The generation's column of each column of the base table, by field id."""
    # The next id after the columns' is that of the tombstone, and of a column added to the base.
    own = {name: field_id for name, field_id in field_ids(dataset).items() if name != TOMBSTONE}
    by_id = {field_id: name for name, field_id in own.items()}
    names = {name: by_id.get(field_id) for name, field_id in field_ids(base).items()}
    missing = [name for name in primary_key if names[name] != name]  # Lance never renames a key
    if missing or TOMBSTONE not in dataset.schema.names:
        raise RepairError(
            f"{uri} has the columns {dataset.schema.names}, which are not those of a generation of "
            f"this table: {missing or [TOMBSTONE]} are missing"
        )
    return names


def _cast(uri: str, column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except (pa.ArrowException, ValueError) as error:
        raise RepairError(
            f"{uri} holds {column.type} where column {field.name!r} of the table is "
            f"{field.type}: {error}"
        ) from error


@contextmanager
def _damage_is_typed(uri: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise RepairError(f"{uri} is missing or damaged: {error}") from error
