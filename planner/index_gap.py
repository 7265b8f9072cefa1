"""Searching merged generations that an index lacks (Specification 2, "Indexed Read Plan")."""

from __future__ import annotations

from dataclasses import replace

from exec_nodes.sources.index_info import IndexInfo
from planner.model import Snapshot


def bridged(snapshot: Snapshot, index: IndexInfo | None) -> Snapshot:
    """The snapshot as a search by `index` reads it.

    Where the index has a gap, the base table is read without the fragments that the index lacks,
    and the generations that were merged into these are read after those of their region that are
    newer, so that everything that they hold is masked in the base table.
    """
    gap = None if index is None else snapshot.gaps.get(index.name)
    if gap is None:
        return snapshot
    regions = tuple(
        replace(region, sources=(*region.sources, *gap.merged.get(region.region_id, ())))
        for region in snapshot.regions
    )
    return replace(snapshot, base=gap.covered, regions=regions, gaps={})
