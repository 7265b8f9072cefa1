"""Searching merged generations that an index lacks (Specification 2, "Indexed Read Plan")."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from exec_nodes.base.index_info import IndexInfo
from planner.model import IndexGap, Snapshot


def bridged(snapshot: Snapshot, *indexes: IndexInfo | None) -> Snapshot:
    """The snapshot as a search by `indexes` together reads it.

    Where they have a gap, and all the same one, the base table is read without the fragments that
    they lack, and the generations that were merged into these are read after those of their region
    that are newer, so that everything that they hold is masked in the base table. Otherwise the
    fragments are read row by row.
    """
    gaps = [None if one is None else snapshot.gaps.get(one.name) for one in indexes]
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
    generations = ((region, *(one.identity for one in found)) for region, found in merged)
    return gap.covered.identity, *generations
