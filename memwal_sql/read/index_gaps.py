"""What an index of the base table does not cover yet, where merges alone wrote it.

Specification 2, "Indexed Read Plan" and appendix 4: merged generations that an index has not caught
up with are searched through their own indexes. That is right only while nothing but merges has
written the fragments that the index lacks (protocol rule 17), so the versions since the index was
built are looked at; `index_catchup` is not needed for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from exec_nodes.sources.at_once import at_once
from exec_nodes.sources.source import Source
from memwal_sql.errors import MemWalError
from memwal_sql.read.base import BaseTable
from memwal_sql.read.context import TableContext
from memwal_sql.read.region import MOST_BRIDGED, RegionReader
from memwal_sql.storage.index_details import FoundDetails, IndexDetails, read_details_at
from memwal_sql.storage.lance_manifest import read_fragment_ids
from memwal_sql.storage.merge_token import MergeProgress, is_pass_shard
from planner.model import IndexGap

_KEPT_BYTES = 1024
_FRAGMENT_BYTES = 64


class IndexGaps(Mapping[str, IndexGap]):
    """The gaps of the indexes of one base version, by index name; each is found when asked for.

    `regions` are all regions of a snapshot; a gap in another region can't be bridged.
    """

    def __init__(
        self, context: TableContext, base: BaseTable, regions: Sequence[RegionReader]
    ) -> None:
        self._context = context
        self._base = base
        self._regions = regions
        self._found: dict[str, IndexGap | None] = {}

    def __getitem__(self, name: str) -> IndexGap:
        if name not in self._found:
            self._found[name] = self._find(name)
        gap = self._found[name]
        if gap is None:
            raise KeyError(name)
        return gap

    def __iter__(self) -> Iterator[str]:
        names = [index.name for index in self._base.indexes.infos]
        return (name for name in names if self.get(name) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _find(self, name: str) -> IndexGap | None:
        since = self._context.cache.compute(
            ("index gap", self._context.uri, self._base.etag, name),
            lambda: _Since(self._context, self._base, name),
            lambda made: _KEPT_BYTES + _FRAGMENT_BYTES * len(made.covered),
        )
        if since.progress is None:
            return None
        merged: dict[UUID, tuple[Source, ...]] = {}
        known = {region.region_id: region for region in self._regions}
        for region_id, through in self._base.details.merged_generations.items():
            after = since.progress.get(region_id, 0)
            if is_pass_shard(region_id) or after >= through:
                continue
            region = known.get(region_id)
            sources = None if region is None else region.merged(self._base, after, through)
            if sources is None:
                return None  # its files may be collected already
            merged[region_id] = sources
        return IndexGap(self._base.source.share(since.covered), merged) if merged else None


class _Since:
    """What an index covers, and the merge progress when it last covered everything: None where that
    can't be told, or others than merges have written since, or it covers everything now."""

    def __init__(self, context: TableContext, base: BaseTable, name: str) -> None:
        self.progress: MergeProgress | None = None
        self.covered: frozenset[int] = frozenset()
        index = next((one for one in base.dataset.describe_indices() if one.name == name), None)
        if index is None:
            return
        fragments = _fragments(base.dataset)
        held = {one for segment in index.segments for one in segment.fragment_ids}
        self.covered = fragments & held
        built = max(segment.dataset_version_at_last_update for segment in index.segments)
        if fragments == self.covered or base.version - built > MOST_BRIDGED:
            return
        try:
            self.progress = self._look_back(context, base, name, built)
        except (OSError, ValueError, RuntimeError, MemWalError):
            return  # versions in between were cleaned up by Lance

    def _look_back(
        self, context: TableContext, base: BaseTable, name: str, built: int
    ) -> MergeProgress | None:
        def read(version: int) -> FoundDetails:
            found = read_details_at(context.store, version)
            return FoundDetails(IndexDetails(), "", "") if found is None else found

        versions = range(built, base.version + 1)
        found = dict(zip(versions, at_once(read, versions), strict=True))
        progress = {version: one.details.merged_generations for version, one in found.items()}
        # Lance does not always note that an index was brought up to date; `index_catchup` may.
        caught_up = base.details.index_catchup.get(name, {})
        known = (v for v in reversed(versions) if _within(progress[v], caught_up))
        for since in (next(known, built), built):
            if read_fragment_ids(context.store, since) <= self.covered:
                later = range(since + 1, base.version + 1)
                merges = all(found[version].leaves_rows_of(found[version - 1]) for version in later)
                return progress[since] if merges else None
        return None


def _within(progress: MergeProgress, most: MergeProgress) -> bool:
    regions = (region for region in progress if not is_pass_shard(region))
    return all(progress[region] <= most.get(region, 0) for region in regions)


def _fragments(dataset: Any) -> frozenset[int]:
    return frozenset(fragment.fragment_id for fragment in dataset.get_fragments())
