"""One commit of a merge: rows and progress together, or nothing (protocol rule 20)."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from uuid import UUID

import lance
import numpy as np
import pyarrow as pa
from lance.fragment import FragmentMetadata
from lance.mem_wal import CompactedSsTable

from exec_nodes.base.thresholds import Thresholds
from exec_nodes.keys.codes import KeyCodes, concat, repeated_later
from exec_nodes.keys.keys import key_column
from exec_nodes.lance.errors import BASE_NAME, lance_panics
from exec_nodes.lance.reading import batches_of
from memwal_sql.errors import ConflictError, OutcomeUnknownError, RetryError
from memwal_sql.storage.base.commits import base_commit, is_conflict, lost_files
from memwal_sql.storage.base.manifest import MOVED
from memwal_sql.storage.base.merge_token import (
    LAST_PASS,
    MergeProgress,
    pass_shard,
    passes_done,
    token,
)
from memwal_sql.storage.deadlines import check_deadline
from memwal_sql.storage.retries import over_conflicts


class Deletes(Thresholds):
    """So many rows are deleted by a commit, whose condition names them all."""

    most_rows = 100_000


class TooLargeError(Exception):
    """Lance had not enough memory for the rows of a pass."""


class PassWriter:
    """Merges tables into one version of the base table, each in a commit of its own.

    `dataset` must be a handle of its own: it goes on to the version of each commit. They hold the
    `generations`, ascending, of each region; `progress` is that of the version.
    """

    def __init__(
        self,
        dataset: Any,
        primary_key: Sequence[str],
        generations: Mapping[UUID, Sequence[int]],
        progress: MergeProgress,
    ) -> None:
        self.dataset = dataset
        self._primary_key = list(primary_key)
        self._generations = generations
        self._done = {
            region: passes_done(progress, region, numbers[0])
            for region, numbers in generations.items()
        }

    def delete(self, keys: pa.Table, *, last: bool) -> None:
        self._execute(self._merge().when_matched_delete(), keys, last=last)

    def upsert(self, rows: pa.Table, *, last: bool) -> None:
        """Replace or insert whole rows. Afterwards each of these keys has one row, also where plain
        Lance had appended a key that was there."""
        merge = self._merge().when_matched_update_all().when_not_matched_insert_all()
        counts = self._execute(merge, rows, last=last)
        if counts["num_updated_rows"] + counts["num_inserted_rows"] > rows.num_rows:
            keys, uri = KeyCodes(self._keys_of(rows)), os.fspath(self.dataset.uri)
            delete = partial(self._delete_repeated, keys, uri)
            over_conflicts(delete, f"deleting repeated keys from {uri}")

    def fence(self) -> None:
        """Where another merger has begun with these generations, commit the fragments as they are:
        then Lance refuses the other's next commit. A mark alone is not enough, as an index commit
        may have erased the marks that come here."""
        if any(self._done.values()):
            self.replace([fragment.metadata for fragment in self.dataset.get_fragments()])

    def mark(self, *, last: bool) -> None:
        """A commit without rows. Raises RetryError if Lance has too little memory even for that."""
        merge = self._merge().when_matched_update_all()
        try:
            self._execute(merge, self.dataset.schema.empty_table(), last=last)
        except TooLargeError as error:
            raise too_little_memory(self.dataset.uri, error) from error

    def replace(self, fragments: Sequence[FragmentMetadata]) -> None:
        """Let the version have these fragments. Raises what `base_commit` raises.

        Lance's merge of columns takes no marks. It is refused for any commit since the version that
        changed rows, marks or columns, and any such commit over an earlier version for it.
        """
        operation = lance.LanceOperation.Merge(fragments, self.dataset.lance_schema)
        transaction = lance.Transaction(
            self.dataset.version, operation, transaction_properties={MOVED: ""}
        )
        check_deadline(self.dataset.uri)
        with base_commit(self.dataset.uri, "the merge"):
            self.dataset = lance.LanceDataset.commit(self.dataset, transaction, max_retries=0)

    def _keys_of(self, rows: pa.Table | pa.RecordBatch) -> Any:
        return key_column(rows.select(self._primary_key).columns)

    def _delete_repeated(self, keys: KeyCodes, uri: str) -> None:
        """Delete all rows of each of these keys but one: the merge has made them equal."""
        self.dataset.checkout_latest()
        columns, addresses = [], []
        for batch in batches_of(self.dataset.scanner(self._primary_key, with_row_id=True)):
            places, _ = keys.find(column := self._keys_of(batch))
            columns.append(column.take(pa.array(places)))
            addresses.append(batch["_rowid"].to_numpy()[places])
        repeated = np.concatenate(addresses)[repeated_later(concat(columns))]
        for start in range(0, len(repeated), Deletes.most_rows):
            some = ", ".join(map(str, repeated[start : start + Deletes.most_rows]))
            check_deadline(uri)
            with base_commit(uri, "deleting repeated keys"):
                self.dataset.delete(f"_rowid IN ({some})", conflict_retries=0)

    def _merge(self) -> Any:
        # An index on the key may hold addresses of rows that are gone: rows then stay as they were
        # (lance-format/lance 7596, 7934) or come twice; a scan of the key column costs little.
        merge = self.dataset.merge_insert(self._primary_key).use_index(False)
        # Lance would try again on a version whose progress nobody has looked at: an index commit
        # may have erased the mark that would refuse these rows, and older ones would come back.
        return merge.conflict_retries(0)

    def _execute(self, merge: Any, rows: pa.Table, *, last: bool) -> Mapping[str, int]:
        marks = []
        for region, numbers in self._generations.items():
            # A mark alone says that all rows are there by the commits before it, so it must be
            # refused after a pass of anybody else: only the next number is.
            whole = last and rows.num_rows > 0
            self._done[region] = done = LAST_PASS if whole else self._done[region] + 1
            marks.append(CompactedSsTable(str(pass_shard(region)), token(numbers[0], done)))
            if last:
                marks.append(CompactedSsTable(str(region), numbers[-1]))
        check_deadline(self.dataset.uri)
        try:
            with lance_panics(BASE_NAME, self.dataset.uri):
                counts: Mapping[str, int] = merge.mark_sstables_as_compacted(marks).execute(rows)
        except (OSError, RuntimeError) as error:
            raise _typed(error, self.dataset.uri) from error
        return counts


def too_little_memory(uri: str, error: TooLargeError) -> RetryError:
    """The error where no smaller pass can be made."""
    return RetryError(
        f"{uri}: Lance had too little memory for a merge; give it more by LANCE_MEM_POOL_SIZE: "
        f"{error}"
    )


def _typed(error: Exception, uri: str) -> Exception:
    text = str(error)
    if is_conflict(error):
        return ConflictError(text)
    if "Resources exhausted" in text:
        return TooLargeError(text)
    if (lost := lost_files(error, os.fspath(uri), "the merge")) is not None:
        return lost
    return OutcomeUnknownError(
        f"{os.fspath(uri)}: a merge did not come to its end; merge again, which goes on from what "
        f"was committed: {text}"
    )
