"""Which sources of a snapshot a search has to look into."""

from __future__ import annotations

from collections.abc import Sequence

from planner.model import Snapshot
from planner.predicates.condition import Condition
from planner.regions.pruning import prune


def searched(snapshot: Snapshot, filters: Sequence[Condition]) -> tuple[frozenset[int], int]:
    """Ordinals of the sources that may hold rows that meet the filters, and how many regions they
    rule out, those that the snapshot has left out included.

    The others still count: their rows replace rows of the base table, and a text's score depends
    on all live rows, whatever the filters say (Specification 2, "Region Pruning").
    """
    info = snapshot.info
    predicates = [condition.predicate for condition in filters]
    kept = prune(predicates, snapshot.regions, info.region_specs, info.schema)
    chosen = {id(region) for region in kept}
    ordinal = 0 if snapshot.base is None else 1
    found = set(range(ordinal))
    for region in snapshot.regions:
        ordinals = range(ordinal, ordinal + len(region.sources))
        ordinal = ordinals.stop
        if id(region) in chosen:
            found.update(ordinals)
    return frozenset(found), snapshot.regions_pruned + len(snapshot.regions) - len(kept)
