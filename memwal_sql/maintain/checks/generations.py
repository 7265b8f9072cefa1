"""Flushed generations: none is missing, and each is what its manifest says."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

from exec_nodes.evolution.project import ByFieldId, numbered
from exec_nodes.keys.bloom import BloomFilter
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.keys.match import bloom_hits
from exec_nodes.lance.reading import batches_of
from exec_nodes.lance.stored_generation import wrong_tombstones
from memwal_sql.errors import NotFoundError, RepairError
from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import Finding, Severity, first_line, lacking_in
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.storage.paths import bloom_filter_path, generation_folder
from memwal_sql.storage.region.manifest import FlushedGeneration

_FROM_A_COPY = "restore the folder from a copy; without one, its rows are lost"

_REMEDY = "merge the generation, which does not need the filter; until then lookups are wrong"


def check_generations(state: CheckState) -> Iterator[Finding]:
    """Protocol rule 14: from the merge progress to the current generation, without a gap."""
    for region in state.regions:
        yield from _gaps(state, region)
        for flushed in region.manifest.flushed_generations:
            if flushed.path not in region.files.generations:
                yield _missing(state, region, flushed)
        for flushed in state.unmerged(region):
            look = partial(_content, state, region, flushed)
            yield from contained(look, generation_folder(region.region_id, flushed.path))


def _gaps(state: CheckState, region: CheckedRegion) -> Iterator[Finding]:
    merged = state.merged(region.region_id)
    listed = [one.generation for one in region.manifest.flushed_generations]
    if len(set(listed)) != len(listed):
        yield Finding(
            Severity.ERROR,
            f"the manifest lists generations twice: {listed}",
            region.folder,
            "stop the program that wrote it; restore the region's folder from a copy",
        )
    lacking = lacking_in(merged + 1, region.manifest.current_generation, listed)
    if lacking:
        yield Finding(
            Severity.ERROR,
            f"generations [{lacking}] are in no manifest, and the base table holds those up to "
            f"{merged} only",
            region.folder,
            "restore the base table to a version that has merged them, or the manifest from a copy",
        )


def _missing(state: CheckState, region: CheckedRegion, flushed: FlushedGeneration) -> Finding:
    folder = generation_folder(region.region_id, flushed.path)
    if flushed.generation > state.merged(region.region_id):
        return Finding(
            Severity.ERROR,
            f"the folder of generation {flushed.generation} is missing",
            folder,
            _FROM_A_COPY,
        )
    return Finding(
        Severity.WARNING,
        f"the folder of generation {flushed.generation} is missing; its rows are in the base table",
        folder,
        "none needed: collect_garbage() takes it out of the manifest",
    )


def _content(
    state: CheckState, region: CheckedRegion, flushed: FlushedGeneration
) -> Iterator[Finding]:
    folder = generation_folder(region.region_id, flushed.path)
    try:
        dataset: Any = state.generation(region, flushed)
        # Native code counts deleted rows too.
        rows = sum(part.metadata.physical_rows for part in dataset.get_fragments())
        for _ in batches_of(dataset.scanner()):
            pass  # reads every page of every column
        wrong = wrong_tombstones(dataset)
    except (OSError, ValueError) as error:
        yield Finding(
            Severity.ERROR,
            f"generation {flushed.generation} can't be read: {first_line(error)}",
            folder,
            _FROM_A_COPY,
        )
        return
    if flushed.rows is not None and rows != flushed.rows:
        yield Finding(
            Severity.ERROR,
            f"generation {flushed.generation} has {rows} rows, its manifest says {flushed.rows}",
            folder,
            _FROM_A_COPY,
        )
    stored = dataset.schema
    if wrong is not None:
        what = f"generation {flushed.generation} {wrong}"
        yield Finding(Severity.ERROR, what, folder, _FROM_A_COPY)
    for name in state.base.info.primary_key:
        if name not in stored.names:
            yield Finding(
                Severity.ERROR,
                f"generation {flushed.generation} has no column {name!r}",
                folder,
                _FROM_A_COPY,
            )
    # What was renamed in the base since is the same where its id is.
    by_id = ByFieldId(numbered(stored, dataset.lance_schema), state.base.stored)
    for wanted in state.base.info.schema:
        stored_name = by_id.stored_names[wanted.name]
        if stored_name is None:
            continue
        kind = stored.field(stored_name).type
        if by_id.column(wanted.name, pa.array([], kind)).type != wanted.type:
            yield Finding(
                Severity.WARNING,
                f"column {wanted.name!r} of generation {flushed.generation} is of type {kind}, in "
                f"the base table it is {wanted.type}: it is cast when read",
                folder,
                "merge the generation",
            )


def check_blooms(state: CheckState) -> Iterator[Finding]:
    """Specification 2, "Flushed MemTable"."""
    for region in state.regions:
        for flushed in state.unmerged(region):
            path = bloom_filter_path(region.region_id, flushed.path)
            yield from contained(partial(_of_generation, state, region, flushed, path), path)


def _of_generation(
    state: CheckState, region: CheckedRegion, flushed: FlushedGeneration, path: str
) -> Iterator[Finding]:
    try:
        bloom = BloomFilter(state.store.get(path), path, flushed.bloom_checksum)
    except (NotFoundError, RepairError) as error:
        yield Finding(Severity.ERROR, str(error), path, _REMEDY)
        return
    keys = state.keys(region, flushed).table
    missed = int((~bloom_hits(bloom, KeyBatch(keys))).sum())
    if missed:
        yield Finding(
            Severity.ERROR,
            f"the bloom filter does not know {missed} of the {keys.num_rows} keys of "
            f"generation {flushed.generation}",
            path,
            _REMEDY,
        )
