"""Replacing all rows of a table by staged ones, in one step that readers see (protocol rule 24).

Tasks have written data files of the base table. Only small parts, and those in which a row is older
than another task's, are written here, some at a time.

Rows live in the base table and in the regions, and no commit covers both. So the regions are
emptied first, without a change that anybody sees: they are claimed, their WALs flushed, and
everything is merged into the base. Then one commit of the base drops all fragments and adds the new
ones. Lance refuses it where anybody has changed a row or a column of the base since it was looked
at, and all is done again.

What another writer adds after that look is newer than the new rows, and stays. Where the new rows
are made of the old ones these are read after the merge, and the commit is made only if since then
nobody has claimed a region. Who claims one between that look and the commit is newer too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import chain
from uuid import UUID, uuid4

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata, write_fragments

from exec_nodes.evolution.project import same_columns
from exec_nodes.lance.reading import written
from memwal_sql.bulk.read import StagedReader, StagedRegion, staged_regions
from memwal_sql.bulk.stage import StagedTask, check_table
from memwal_sql.errors import ConflictError, FencedError, RetryError
from memwal_sql.maintain.details import details_of, latest_dataset
from memwal_sql.maintain.lease import PUBLISHING, Lease, maintenance_lease
from memwal_sql.state.base_table import BaseTable, stored_columns
from memwal_sql.state.context import TableContext
from memwal_sql.storage.base.commits import base_commit, emptied
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.retries import over_conflicts
from memwal_sql.storage.wal.entry import TOMBSTONE


@dataclass(frozen=True, slots=True)
class Replacement:
    """Replaces all rows of one table.

    Attributes:
        empty_wals: claims every region and flushes what its WAL holds; the epoch of each.
        merge: merges all that is flushed.
        manifests: those of all regions, as they are now.
    """

    context: TableContext
    base: BaseTable
    empty_wals: Callable[[], Mapping[UUID, int]]
    merge: Callable[[], object]
    manifests: Callable[[], Sequence[RegionManifest]]

    def by(self, tasks: Sequence[StagedTask]) -> int:
        """Replace all rows, and return the base version that has the new ones.

        Raises InvalidCallError as publishing does, ReopenError when the table was made anew since
        they were staged, and RetryError when other commits kept coming in between; all rows are the
        old ones then.
        """
        check_table(self.context, tasks)
        parts = staged_regions(self.context, self.base, tasks)
        with self._turn():
            self._claims()
            fragments = self._fragments(parts)

            def commit() -> int:
                self.merge()
                return self._commit(latest_dataset(self.context), fragments)

            return over_conflicts(commit, self.context.uri)

    def by_reading(self, stage: Callable[[], Sequence[StagedTask]]) -> int:
        """The same with rows that `stage` computes from the table's, again if somebody writes
        meanwhile. RetryError if that keeps happening."""

        def replaced() -> int:
            claims = self._claims()
            self.merge()
            dataset = latest_dataset(self.context)
            fragments = self._fragments(staged_regions(self.context, self.base, stage()))
            if {
                manifest.region_id: manifest.writer_epoch for manifest in self.manifests()
            } != claims:
                raise ConflictError("regions were claimed since their rows were read")
            return self._commit(dataset, fragments)

        with self._turn():
            return over_conflicts(replaced, self.context.uri)

    def _claims(self) -> Mapping[UUID, int]:
        return over_conflicts(self.empty_wals, self.context.uri, on=FencedError)

    def _turn(self) -> AbstractContextManager[Lease]:
        return maintenance_lease(self.context.store, f"replacing {uuid4().hex}", name=PUBLISHING)

    def _fragments(self, parts: Sequence[StagedRegion]) -> list[FragmentMetadata]:
        """The fragments of the tasks' data files, and of rows that are written again.

        Raises RetryError where the table has got other columns.
        """
        dataset = latest_dataset(self.context)
        if not same_columns(stored_columns(dataset), self.base.stored):
            raise RetryError(
                f"the columns of {self.context.uri} changed while its rows were to be replaced: "
                "all are the old ones, replace them again"
            )
        reader, schema = StagedReader(self.context, self.base), dataset.schema
        with written(schema, _live(parts, reader, schema)) as rows:
            fragments: list[FragmentMetadata] = write_fragments(
                rows,
                dataset,
                schema=schema,
                mode="append",
                data_storage_version=dataset.data_storage_version,
                storage_options=self.context.storage_options,
            )
        pieces = (piece for part in parts for piece in part.batch.whole)
        return [
            *fragments,
            *(
                FragmentMetadata.from_json(fragment)
                for piece in pieces
                for fragment in piece.fragments
            ),
        ]

    def _commit(self, dataset: lance.LanceDataset, fragments: list[FragmentMetadata]) -> int:
        """Replace the rows of this version. Raises what `base_commit` raises.

        Lance takes an update over a merge or an append that came in between and only added rows, of
        the same keys maybe; its overwrite drops the MemWAL index (rule 22). Its merge of columns is
        refused for whatever changes rows. That must name all fragments.
        """
        merged = details_of(self.context, dataset).merged_generations
        if any(
            manifest.current_generation - 1 > merged.get(manifest.region_id, 0)
            for manifest in self.manifests()
        ):
            # It would hide new rows, or show among them.
            raise ConflictError("generations were flushed since")
        old = [emptied(fragment.metadata) for fragment in dataset.get_fragments()]
        operation = lance.LanceOperation.Merge([*old, *fragments], dataset.lance_schema)
        with base_commit(self.context.uri, "the new rows"):
            committed = lance.LanceDataset.commit(
                dataset, operation, read_version=dataset.version, max_retries=0
            )
        return int(committed.version)


def _live(
    parts: Sequence[StagedRegion], reader: StagedReader, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Every row that deletes nothing and is in no data file yet."""
    for part in parts:
        generations = (reader.rows(piece) for piece in part.batch.whole if not piece.fragments)
        for table in chain(generations, part.batch.tables()):
            kept = table.filter(pc.invert(table[TOMBSTONE])).drop_columns([TOMBSTONE])
            for batch in kept.to_batches():
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
