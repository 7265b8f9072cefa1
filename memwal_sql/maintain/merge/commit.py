"""One commit of a merge: rows and progress together, or nothing (protocol rule 20)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
from lance.mem_wal import CompactedSsTable

from exec_nodes.lance.errors import BASE_NAME, lance_panics
from memwal_sql.errors import ConflictError, OutcomeUnknownError
from memwal_sql.storage.base.commits import is_conflict
from memwal_sql.storage.base.merge_token import (
    LAST_PASS,
    MergeProgress,
    pass_shard,
    passes_done,
    token,
)
from memwal_sql.storage.deadlines import check_deadline


class TooLargeError(Exception):
    """Lance had not enough memory for the rows of a pass."""


class PassWriter:
    """Merges tables into one version of the base table, each in a commit of its own.

    `dataset` must be a handle of its own: Lance moves it on with every commit. They hold the
    `generations`, ascending, of each region; `progress` is that of the version.
    """

    def __init__(
        self,
        dataset: Any,
        primary_key: Sequence[str],
        generations: Mapping[UUID, Sequence[int]],
        progress: MergeProgress,
    ) -> None:
        self._dataset = dataset
        self._primary_key = list(primary_key)
        self._generations = generations
        self._done = {
            region: passes_done(progress, region, numbers[0])
            for region, numbers in generations.items()
        }

    def delete(self, keys: pa.Table, *, last: bool) -> None:
        """Delete the rows with these keys."""
        self._execute(self._merge().when_matched_delete(), keys, last=last)

    def upsert(self, rows: pa.Table, *, last: bool) -> None:
        """Replace or insert whole rows."""
        merge = self._merge().when_matched_update_all().when_not_matched_insert_all()
        self._execute(merge, rows, last=last)

    def _merge(self) -> Any:
        # An index on the key may hold addresses of rows that are gone: rows then stay as they were
        # (lance-format/lance 7596, 7934) or come twice; a scan of the key column costs little.
        merge = self._dataset.merge_insert(self._primary_key).use_index(False)
        # Lance would try again on a version whose progress nobody has looked at: an index commit
        # may have erased the mark that would refuse these rows, and older ones would come back.
        return merge.conflict_retries(0)

    def _execute(self, merge: Any, rows: pa.Table, *, last: bool) -> None:
        marks = []
        for region, numbers in self._generations.items():
            self._done[region] = done = LAST_PASS if last else self._done[region] + 1
            marks.append(CompactedSsTable(str(pass_shard(region)), token(numbers[0], done)))
            if last:
                marks.append(CompactedSsTable(str(region), numbers[-1]))
        check_deadline(self._dataset.uri)
        try:
            with lance_panics(BASE_NAME, self._dataset.uri):
                merge.mark_sstables_as_compacted(marks).execute(rows)
        except (OSError, RuntimeError) as error:
            raise _typed(error, self._dataset.uri) from error


def _typed(error: Exception, uri: str) -> Exception:
    text = str(error)
    if is_conflict(error):
        return ConflictError(text)
    if "Resources exhausted" in text:
        return TooLargeError(text)
    return OutcomeUnknownError(
        f"{os.fspath(uri)}: a merge did not come to its end; merge again, which goes on from what "
        f"was committed: {text}"
    )
