"""Indexes of flushed generations: each covers every row, and the btrees hold the rows' keys."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader

from exec_nodes.sources.source import SourceKeys
from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import Finding, Severity, first_line
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.storage import paths
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.region.manifest import FlushedGeneration

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
    for index in dataset.describe_indices():
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
        for index in dataset.describe_indices()
        if list(index.field_names) == key and index.index_type.upper() == "BTREE"
        for segment in index.segments
    ]
    native = f"{folder}/_pk_index"
    for btree in (*btrees, native):
        path = f"{btree}/page_data.lance"
        if btree == native and not state.store.exists(path):
            continue  # native code makes it for some writers only
        keys = state.keys(region, flushed)
        try:
            wrong = _wrong_entries(state, path, keys)
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
                path,
                _REMEDY,
            )


def _wrong_entries(state: CheckState, path: str, keys: SourceKeys) -> int:
    """How many rows a btree does not lead to."""
    reader = LanceFileReader(
        f"{lance_uri(state.context.uri)}/{path}", storage_options=state.context.storage_options
    )
    entries = reader.read_all().to_table()
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
