"""How far the maintained indexes of the base table have come (protocol rule 17)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from exec_nodes.lance.indexes import indexes_of
from memwal_sql.storage.base.memwal_index import INDEX_NAME, IndexDetails
from memwal_sql.storage.base.merge_token import MergeProgress


class CatchUp:
    """Which generations every maintained index covers, at one version of the base table.

    An index whose segments cover all fragments covers everything that was merged, whatever
    `index_catchup` says; one that is maintained but does not exist keeps nobody waiting.
    """

    def __init__(self, dataset: Any, details: IndexDetails) -> None:
        fragments = {fragment.fragment_id for fragment in dataset.get_fragments()}
        self._behind: list[MergeProgress] = []
        for index in indexes_of(dataset):
            maintained = details.maintain_all_indexes or index.name in details.maintained_indexes
            covered = {
                fragment_id for segment in index.segments for fragment_id in segment.fragment_ids
            }
            if maintained and index.name != INDEX_NAME and not fragments <= covered:
                self._behind.append(details.index_catchup.get(index.name, {}))

    def through(self, region_id: UUID, merged: int) -> int:
        """The last generation up to `merged` that all maintained indexes cover."""
        return min((progress.get(region_id, 0) for progress in self._behind), default=merged)
