"""Indexes of flushed generations: each covers every row, and the btrees hold the rows' keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader

from exec_nodes.lance.indexes import indexes_of
from exec_nodes.lance.reading import rows_of
from exec_nodes.sources.source import SourceKeys
from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import Finding, Severity, first_line
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.storage import paths
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.region.manifest import FlushedGeneration

_PAGES, _LOOKUP = "page_data.lance", "page_lookup.lance"
_REMEDY = "merge the generation, which does not need its indexes"


def check_generation_indexes(state: CheckState) -> Iterator[Finding]:
    """Specification 2, "MemTable Indexing"."""
    for region in state.regions:
        for flushed in state.unmerged(region):
            folder = paths.generation_folder(region.region_id, flushed.path)
            for look in (_lance_indexes, _btrees):
                yield from contained(partial(look, state, region, flushed), folder)


def _lance_indexes(
    state: CheckState, region: CheckedRegion, flushed: FlushedGeneration
) -> Iterator[Finding]:
    folder = paths.generation_folder(region.region_id, flushed.path)
    dataset: Any = state.generation(region, flushed)
    rows = dataset.count_rows()
    present = set()
    for index in indexes_of(dataset, f"generation {flushed.generation}"):
        present.add(index.name)
        try:
            indexed = int(dataset.stats.index_stats(index.name)["num_indexed_rows"])
        except (OSError, ValueError, KeyError) as error:
            yield Finding(
                Severity.ERROR,
                f"the index {index.name!r} of generation {flushed.generation} can't be read: "
                f"{first_line(error)}",
                folder,
                _REMEDY,
            )
            continue
        if indexed != rows:
            yield Finding(
                Severity.WARNING,
                f"the index {index.name!r} of generation {flushed.generation} covers {indexed} of "
                f"{rows} rows; the others are found by reading them",
                folder,
                _REMEDY,
            )
    for recipe in state.base.indexes.recipes():
        if recipe.info.name not in present and recipe.info.column in dataset.schema.names:
            yield Finding(
                Severity.INFO,
                f"generation {flushed.generation} has no index {recipe.info.name!r}: it was "
                "flushed before the index was made, and is searched by reading it",
                folder,
                "merge the generation",
            )


def _btrees(
    state: CheckState, region: CheckedRegion, flushed: FlushedGeneration
) -> Iterator[Finding]:
    """The primary key's btrees: Lance's own, and the one that native readers probe."""
    if len(state.base.info.primary_key) > 1:
        return  # kept in a binary form that only native code reads
    folder = paths.generation_folder(region.region_id, flushed.path)
    dataset: Any = state.generation(region, flushed)
    key = list(state.base.info.primary_key)
    btrees = [
        f"{folder}/_indices/{segment.uuid}"
        for index in indexes_of(dataset, f"generation {flushed.generation}")
        if list(index.field_names) == key and index.index_type.upper() == "BTREE"
        for segment in index.segments
    ]
    native = f"{folder}/_pk_index"
    if not any(state.store.exists(f"{native}/{name}") for name in (_PAGES, _LOOKUP)):
        native = ""  # native code makes it for some writers only
    for btree in filter(None, (*btrees, native)):
        keys = state.keys(region, flushed)
        path = f"{btree}/{_PAGES}"
        try:
            pages = _read(state, path)
            wrong = _wrong_entries(pages, keys)
            path = f"{btree}/{_LOOKUP}"
            bounds_hold = _has_bounds(_read(state, path), pages["values"])
        except (OSError, ValueError, KeyError) as error:
            yield Finding(
                Severity.ERROR,
                f"a btree of generation {flushed.generation} can't be read: {first_line(error)}",
                path,
                _REMEDY,
            )
            continue
        if wrong:
            yield Finding(
                Severity.ERROR,
                f"a btree of generation {flushed.generation} lacks {wrong} of its keys, or has "
                "them at other rows: lookups miss them",
                f"{btree}/{_PAGES}",
                _REMEDY,
            )
        if not bounds_hold:
            yield Finding(
                Severity.ERROR,
                f"a btree of generation {flushed.generation} has other keys in its pages than it "
                "says: lookups miss them",
                path,
                _REMEDY,
            )


def _read(state: CheckState, path: str) -> pa.Table:
    uri, options = f"{lance_uri(state.context.uri)}/{path}", state.context.storage_options
    return rows_of(LanceFileReader(uri, storage_options=options).read_all())


def _has_bounds(lookup: pa.Table, values: pa.ChunkedArray) -> bool:
    """Whether a btree knows the least and the greatest value of each of its pages."""
    size = int((lookup.schema.metadata or {}).get(b"batch_size", len(values) or 1))
    first = np.arange(0, len(values), size)
    last = np.minimum(first + size, len(values)) - 1
    return all(
        lookup[name].equals(values.take(pa.array(rows)).cast(lookup[name].type))
        for name, rows in (("min", first), ("max", last))
    )


def _wrong_entries(entries: pa.Table, keys: SourceKeys) -> int:
    """How many rows a btree does not lead to."""
    ids = entries["ids"].to_numpy()
    order = np.argsort(ids, kind="stable")
    places = np.searchsorted(ids[order], keys.addresses)
    there = places < len(ids)
    there[there] = ids[order[places[there]]] == keys.addresses[there]
    rows = np.flatnonzero(there)
    column = keys.table.column(0)
    stored = entries["values"].take(pa.array(order[places[rows]])).cast(column.type)
    same = pc.equal(stored, column.take(pa.array(rows)))
    return len(keys.addresses) - int(pc.sum(same).as_py() or 0)
