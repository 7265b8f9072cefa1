"""Bloom filters: each knows every key of its generation, or lookups would miss rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from exec_nodes.keys.bloom import BloomFilter
from exec_nodes.keys.keys import KeyBatch
from exec_nodes.keys.match import bloom_hits
from memwal_sql.errors import NotFoundError, RepairError
from memwal_sql.maintain.checks.contained import contained
from memwal_sql.maintain.checks.findings import Finding, Severity
from memwal_sql.maintain.checks.state import CheckedRegion, CheckState
from memwal_sql.storage.paths import bloom_filter_path
from memwal_sql.storage.region.manifest import FlushedGeneration

_REMEDY = "merge the generation, which does not need the filter; until then lookups are wrong"


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
