"""What the commits of a base table have done, each read once."""

from __future__ import annotations

from dataclasses import dataclass

from exec_nodes.base.tasks import map_concurrently
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.resident.store import Key
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.manifest import read_fragment_ids
from memwal_sql.storage.base.memwal_index import FoundDetails, IndexDetails, read_details_at
from memwal_sql.storage.base.merge_token import MergeProgress

_BYTES = 300
_MARK_BYTES = 150


class VersionsRead(Thresholds):
    """So many versions are read `together`: on an object store each takes a round trip. One query
    reads `most`: where an index is thousands of versions behind, some queries read the fragments
    that it lacks meanwhile."""

    together = 32
    most = 256


@dataclass(frozen=True, slots=True)
class Commit:
    """A version's merge progress, and whether it left the rows of the one before as they were (see
    `FoundDetails.preserves_rows_of`)."""

    progress: MergeProgress
    leaves_rows: bool


class Commits:
    """The versions of one table. Safe to use from several threads."""

    def __init__(self, context: TableContext) -> None:
        self._context = context

    def at(self, version: int, lowest: int) -> tuple[Commit, int]:
        """What made a version, and how many versions were read for it: some before it are, too,
        down to `lowest`, which counts as one that changed rows. Raises NotFoundError for a version
        that Lance has cleaned up."""
        known: Commit | None = self._context.scope.store.get(self._key(version))
        if known is not None:
            return known, 0
        first = max(lowest, version - VersionsRead.together)
        versions = range(first, version + 1)
        found = dict(zip(versions, map_concurrently(self._read, versions), strict=True))
        for one in versions[1:]:
            self._keep(one, found[one], found[one].preserves_rows_of(found[one - 1]))
        made = found[version]
        if version == first:
            return Commit(made.details.merged_generations, False), 1
        leaves = made.preserves_rows_of(found[version - 1])
        return Commit(made.details.merged_generations, leaves), len(versions)

    def fragments(self, version: int) -> frozenset[int]:
        """The numbers of a version's fragments."""
        return read_fragment_ids(self._context.store, version)

    def _read(self, version: int) -> FoundDetails:
        found = read_details_at(self._context.store, version)
        return FoundDetails(IndexDetails(), "", "") if found is None else found

    def _keep(self, version: int, found: FoundDetails, leaves_rows: bool) -> None:
        commit = Commit(found.details.merged_generations, leaves_rows)
        size = _BYTES + _MARK_BYTES * len(commit.progress)
        self._context.scope.store.put(self._key(version), commit, size)

    def _key(self, version: int) -> Key:
        return self._context.scope.key("commit", version)
