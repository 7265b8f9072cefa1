"""Finds the rows that an index of the base table does not cover yet, if only merges wrote them.

Specification 2, "Indexed Read Plan" and appendix 4: merged generations that an index lacks are
searched through their own indexes. That is right only if nothing but merges has written the
fragments that the index lacks (protocol rule 17), so the versions since the index was built are
read; `index_catchup` is not needed for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any
from uuid import UUID

from exec_nodes.base.tasks import map_concurrently
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.lance.indexes import indexes_of
from exec_nodes.resident.store import Key
from exec_nodes.sources.source import Source
from memwal_sql.errors import MemWalError, StoreUnavailableError
from memwal_sql.life_log import life_log
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.manifest import read_fragment_ids
from memwal_sql.storage.base.memwal_index import FoundDetails, IndexDetails, read_details_at
from memwal_sql.storage.base.merge_token import MergeProgress, regions_in
from planner.model import IndexGap

_log = life_log(__name__)

_KEPT_BYTES = 1024
_FRAGMENT_BYTES = 64

_BYTES = 300
_MARK_BYTES = 150


class IndexGaps(Mapping[str, IndexGap]):
    """The gaps of the indexes of one base version, by index name; each is computed on demand.

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
        scope = self._context.scope
        since = scope.store.compute(
            scope.key("index lag", name, self._base.etag),
            lambda: _Since(self._base, name),
            lambda made: _KEPT_BYTES + _FRAGMENT_BYTES * len(made.covered),
        )
        progress = since.progress(MergedVersions(self._context))
        if progress is None:
            return None
        merged: dict[UUID, tuple[Source, ...]] = {}
        readers = {region.region_id: region for region in self._regions}
        for region_id, through in regions_in(self._base.details.merged_generations).items():
            after = progress.get(region_id, 0)
            if after >= through:
                continue
            region = readers.get(region_id)
            sources = None if region is None else region.merged(self._base, after, through)
            if sources is None:
                return None  # its files may be collected already
            merged[region_id] = sources
        if not merged:
            return None
        _log.debug(
            "%s: index %r is behind in %d regions, whose merged generations are searched",
            self._context.uri,
            name,
            len(merged),
        )
        return IndexGap(self._base.source.share(since.covered), merged)


class _Since:
    """The coverage of an index in one base version, and the merge progress when it last covered
    everything."""

    def __init__(self, base: BaseTable, name: str) -> None:
        self.covered: frozenset[int] = frozenset()
        self._caught_up = base.details.index_catchup.get(name, {})
        self._progress: MergeProgress | None = None
        self._lock = Lock()
        # The version that is read next, and the one that the index was built over.
        self._next = self._built = base.version
        self._may_be_newer = True
        self._done = True
        index = next((index for index in indexes_of(base.dataset) if index.name == name), None)
        if index is None:
            return
        fragments = _fragments(base.dataset)
        indexed = {
            fragment_id for segment in index.segments for fragment_id in segment.fragment_ids
        }
        self.covered = fragments & indexed
        self._built = max(segment.dataset_version_at_last_update for segment in index.segments)
        self._done = fragments == self.covered

    def progress(self, versions: MergedVersions) -> MergeProgress | None:
        """None if it is unknown, if other programs than merges have written since, or if the index
        covers everything now; and until all versions since were read, of which each call reads
        some."""
        with self._lock:
            if not self._done:
                try:
                    self._done = self._read_back(versions)
                except StoreUnavailableError:
                    return None  # the next query looks again
                except (OSError, ValueError, RuntimeError, MemWalError):
                    self._done = True  # versions in between were cleaned up by Lance
            return self._progress

    def _read_back(self, versions: MergedVersions) -> bool:
        """Go from version to version, from the newest to the one that the index was built over;
        true at the end."""
        remaining = VersionsRead.most
        while True:
            merged, read = versions.at(self._next, max(self._built, 1))
            remaining -= read
            # Lance does not always note that an index was brought up to date; `index_catchup` may.
            newer = self._may_be_newer and _within(merged.progress, self._caught_up)
            if newer or self._next <= self._built:
                self._may_be_newer = False
                if versions.fragments(self._next) <= self.covered:
                    self._progress = merged.progress
                    return True
            if self._next <= self._built or not merged.leaves_rows:
                return True
            self._next -= 1
            if remaining <= 0:
                return False


def _within(progress: MergeProgress, most: MergeProgress) -> bool:
    return all(mark <= most.get(region, 0) for region, mark in regions_in(progress).items())


def _fragments(dataset: Any) -> frozenset[int]:
    return frozenset(fragment.fragment_id for fragment in dataset.get_fragments())


class VersionsRead(Thresholds):
    """This many versions are read `together`: on an object store each takes a round trip. One query
    reads `most`: if an index is thousands of versions behind, some queries read the fragments that
    it lacks meanwhile."""

    together = 32
    most = 256


@dataclass(frozen=True, slots=True)
class MergedVersion:
    """A version's merge progress, and whether it left the rows of the previous version unchanged
    (see `FoundDetails.preserves_rows_of`)."""

    progress: MergeProgress
    leaves_rows: bool


class MergedVersions:
    """The merge progress of the versions of one table. Safe to use from several threads."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def at(self, version: int, lowest: int) -> tuple[MergedVersion, int]:
        """The merge progress of a version, and how many versions were read to find it. Earlier ones
        are read too, down to `lowest`, which counts as one that changed rows. Raises NotFoundError
        for a version that Lance has cleaned up."""
        merged: MergedVersion | None = self._context.scope.store.get(self._key(version))
        if merged is not None:
            return merged, 0
        first = max(lowest, version - VersionsRead.together)
        versions = range(first, version + 1)
        details = dict(zip(versions, map_concurrently(self._read, versions), strict=True))
        for newer in versions[1:]:
            self._keep(newer, details[newer], details[newer].preserves_rows_of(details[newer - 1]))
        made = details[version]
        if version == first:
            return MergedVersion(made.details.merged_generations, False), 1
        leaves = made.preserves_rows_of(details[version - 1])
        return MergedVersion(made.details.merged_generations, leaves), len(versions)

    def fragments(self, version: int) -> frozenset[int]:
        """The numbers of a version's fragments."""
        return read_fragment_ids(self._context.store, version)

    def _read(self, version: int) -> FoundDetails:
        details = read_details_at(self._context.store, version)
        return FoundDetails(IndexDetails(), "", "") if details is None else details

    def _keep(self, version: int, details: FoundDetails, leaves_rows: bool) -> None:
        merged = MergedVersion(details.details.merged_generations, leaves_rows)
        size = _BYTES + _MARK_BYTES * len(merged.progress)
        self._context.scope.store.put(self._key(version), merged, size)

    def _key(self, version: int) -> Key:
        return self._context.scope.key("commit", version)
