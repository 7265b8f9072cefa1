"""Chooses the sources that a search reads; merged generations stand in for rows that an index lacks
(Specification 2, "Region Pruning", "Indexed Read Plan")."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from exec_nodes.base.index_info import IndexInfo
from planner.model import IndexGap, Snapshot
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
    ordinals_searched = set(range(ordinal))
    for region in snapshot.regions:
        ordinals = range(ordinal, ordinal + len(region.sources))
        ordinal = ordinals.stop
        if id(region) in chosen:
            ordinals_searched.update(ordinals)
    return frozenset(ordinals_searched), snapshot.regions_pruned + len(snapshot.regions) - len(kept)


def bridged(snapshot: Snapshot, *indexes: IndexInfo | None) -> Snapshot:
    """The snapshot as a search by `indexes` together reads it.

    Where they have a gap, and all the same one, the base table is read without the fragments that
    they lack, and the generations that were merged into these are read after those of their region
    that are newer, so that everything that they hold is masked in the base table. Otherwise the
    fragments are read row by row.
    """
    gaps = [None if index is None else snapshot.gaps.get(index.name) for index in indexes]
    gap = gaps[0]
    if gap is None or any(other is None or _content(other) != _content(gap) for other in gaps):
        return replace(snapshot, gaps={})
    regions = tuple(
        replace(region, sources=(*region.sources, *gap.merged.get(region.region_id, ())))
        for region in snapshot.regions
    )
    return replace(snapshot, base=gap.covered, regions=regions, gaps={})


def _content(gap: IndexGap) -> tuple[Hashable, ...]:
    merged = sorted(gap.merged.items(), key=lambda pair: pair[0])
    generations = ((region, *(source.identity for source in sources)) for region, sources in merged)
    return gap.covered.identity, *generations
