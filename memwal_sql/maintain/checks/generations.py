"""Checks of flushed generations: none is missing, each matches its manifest, its bloom filter has
every key, and its indexes cover every row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader

from exec_nodes.keys.bloom import BloomFilter
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.keys.match import bloom_hits
from exec_nodes.lance.indexes import indexes_of
from exec_nodes.lance.reading import batches_of, rows_of
from exec_nodes.lance.stored_generation import open_generation
from memwal_sql.maintain.checks.findings import (
    FROM_A_COPY,
    Finding,
    Probe,
    error,
    info,
    lacking_in,
    warning,
)
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.storage.objects.memory import lance_uri
from memwal_sql.storage.paths import bloom_filter_path, generation_folder
from memwal_sql.storage.region.manifest import FlushedGeneration

_PAGES, _LOOKUP = "page_data.lance", "page_lookup.lance"
_WITHOUT_FILTER = "merge the generation, which needs no filter; until then lookups are wrong"
_MERGE = "merge the generation, which needs no indexes"


def check_generations(state: CheckState) -> Iterator[Finding | Probe]:
    """Protocol rule 14: no gap from the merge progress to the current generation; specification 2,
    "Flushed MemTable" and "MemTable Indexing"."""
    for region in state.regions:
        yield from _listed(state, region)
        for flushed in state.unmerged(region):
            name = f"generation {flushed.generation}"
            folder = generation_folder(region.region_id, flushed.path)
            path = bloom_filter_path(region.region_id, flushed.path)
            content = _content(state, region, flushed)
            bloom = _bloom(state, region, flushed, path)
            indexes = _indexes(state, region, flushed, folder)
            yield Probe(name, folder, content, FROM_A_COPY)
            yield Probe(f"the bloom filter of {name}", path, bloom, _WITHOUT_FILTER)
            yield Probe(f"the indexes of {name}", folder, indexes, _MERGE)


def _listed(state: CheckState, region: CheckedRegion) -> Iterator[Finding]:
    merged = state.merged(region.region_id)
    listed = [generation.generation for generation in region.manifest.flushed_generations]
    if len(set(listed)) != len(listed):
        remedy = "stop the program that wrote it; restore the region's folder from a copy"
        yield error(region.folder, f"the manifest lists generations twice: {listed}", remedy)
    lacking = lacking_in(merged + 1, region.manifest.current_generation, listed)
    if lacking and state.has_own_index:
        yield error(
            region.folder,
            f"generations [{lacking}] are in no manifest, and the base table holds generations "
            f"up to {merged} only",
            "restore the base table to a version that has merged them, or the manifest from a copy",
        )
    for flushed in region.manifest.flushed_generations:
        if flushed.path in region.files.generations:
            continue
        folder = generation_folder(region.region_id, flushed.path)
        what = f"the folder of generation {flushed.generation} is missing"
        if flushed.generation > merged:
            yield error(folder, what, FROM_A_COPY)
        else:
            remedy = "none needed: collect_garbage() removes it from the manifest"
            yield warning(folder, f"{what}; its rows are in the base table", remedy)


def _content(
    state: CheckState, region: CheckedRegion, flushed: FlushedGeneration
) -> Iterator[Probe]:
    name, options = f"generation {flushed.generation}", state.context.storage_options
    dataset = open_generation(state.uri(region, flushed), name, flushed.rows, options)
    for _ in batches_of(dataset.scanner()):
        pass  # reads every page of every column
    yield from ()


def _bloom(
    state: CheckState, region: CheckedRegion, flushed: FlushedGeneration, path: str
) -> Iterator[Finding]:
    bloom = BloomFilter(state.store.get(path), path, flushed.bloom_checksum)
    keys = state.keys(region, flushed).table
    missed = int((~bloom_hits(bloom, KeyBatch(keys))).sum())
    if missed:
        name = f"generation {flushed.generation}"
        what = f"the bloom filter lacks {missed} of the {keys.num_rows} keys of {name}"
        yield error(path, what, _WITHOUT_FILTER)


def _indexes(
    state: CheckState, region: CheckedRegion, flushed: FlushedGeneration, folder: str
) -> Iterator[Finding | Probe]:
    name, key = f"generation {flushed.generation}", list(state.base.info.primary_key)
    dataset = state.generation(region, flushed)
    indexes = indexes_of(dataset, name)
    for index in indexes:
        subject = f"the index {index.name!r} of {name}"
        yield Probe(subject, folder, _covered(dataset, index.name, subject, folder), _MERGE)
    for recipe in state.base.indexes.recipes():
        index_name = recipe.info.name
        is_column = recipe.info.column in dataset.schema.names
        if is_column and index_name not in {index.name for index in indexes}:
            yield info(
                folder,
                f"{name} has no index {index_name!r}: it was flushed before the index was made, "
                "so searches read the whole generation",
                "merge the generation",
            )
    if len(key) > 1:
        return  # btrees hold it in a binary form that only native code reads
    btrees = [
        f"{folder}/_indices/{segment.uuid}"
        for index in indexes
        if list(index.field_names) == key and index.index_type.upper() == "BTREE"
        for segment in index.segments
    ]
    native = f"{folder}/_pk_index"  # native code makes it for some writers only
    if any(state.store.exists(f"{native}/{file}") for file in (_PAGES, _LOOKUP)):
        btrees.append(native)
    for btree in btrees:
        subject = f"a btree of {name}"
        yield Probe(subject, btree, _btree(state, region, flushed, btree), _MERGE)


def _covered(dataset: Any, index: str, subject: str, folder: str) -> Iterator[Finding]:
    indexed = int(dataset.stats.index_stats(index)["num_indexed_rows"])
    rows = dataset.count_rows()
    if indexed != rows:
        what = f"{subject} covers {indexed} of {rows} rows; searches read the others"
        yield warning(folder, what, _MERGE)


def _btree(
    state: CheckState, region: CheckedRegion, flushed: FlushedGeneration, btree: str
) -> Iterator[Finding]:
    """The primary key's btrees: Lance's own, and the one that native readers probe."""
    pages, lookup = (_rows_of_file(state, f"{btree}/{name}") for name in (_PAGES, _LOOKUP))
    keys, name = state.keys(region, flushed), f"a btree of generation {flushed.generation}"
    column = keys.table.column(0)
    rows = pa.table([pa.array(keys.addresses), column], ["ids", "values"])
    entries = pages.select(["ids", "values"]).cast(rows.schema)
    wrong = rows.join(entries, ["ids", "values"], join_type="left anti").num_rows
    if wrong:
        what = f"{name} lacks {wrong} of its keys, or has them at other rows: lookups miss them"
        yield error(f"{btree}/{_PAGES}", what, _MERGE)
    if not _has_bounds(lookup, pages["values"]):
        what = f"{name} has other keys in its pages than its lookup table says: lookups miss them"
        yield error(f"{btree}/{_LOOKUP}", what, _MERGE)


def _rows_of_file(state: CheckState, path: str) -> pa.Table:
    uri, options = f"{lance_uri(state.context.uri)}/{path}", state.context.storage_options
    return rows_of(LanceFileReader(uri, storage_options=options).read_all())


def _has_bounds(lookup: pa.Table, values: pa.ChunkedArray) -> bool:
    """Whether a btree records the least and the greatest value of each of its pages."""
    size = int((lookup.schema.metadata or {}).get(b"batch_size", len(values) or 1))
    first = np.arange(0, len(values), size)
    last = np.minimum(first + size, len(values)) - 1
    return all(
        lookup[name].equals(values.take(pa.array(rows)).cast(lookup[name].type))
        for name, rows in (("min", first), ("max", last))
    )
