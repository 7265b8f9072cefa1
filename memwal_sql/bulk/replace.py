"""Replacing all rows of a table by staged ones, in one step that readers see (protocol rule 24).

Tasks have written data files of the base table. Only small parts, and those in which a row is older
than another task's, are written here, some at a time.

Rows live in the base table and in the regions, and no commit covers both. So the regions are
emptied first, without a change that anybody sees: they are claimed, their WALs flushed, and
everything is merged into the base. Then one commit of the base drops all fragments and adds the new
ones. It is no overwrite of Lance's: that would drop the MemWAL index (rule 22).

What another writer adds after the claims is newer than the new rows, and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from uuid import uuid4

import lance
import pyarrow as pa
import pyarrow.compute as pc
from lance.fragment import FragmentMetadata, write_fragments

from memwal_sql.bulk.publish import TURN
from memwal_sql.bulk.read import StagedReader, StagedRegion, staged_regions
from memwal_sql.bulk.stage import StagedTask
from memwal_sql.errors import ConflictError
from memwal_sql.maintain.details import details_of, latest_dataset
from memwal_sql.maintain.lease import maintenance_lease
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.retries import over_conflicts
from memwal_sql.storage.wal.entry import TOMBSTONE


def replace_rows(
    context: TableContext,
    base: BaseTable,
    tasks: Sequence[StagedTask],
    *,
    empty_wals: Callable[[], None],
    merge: Callable[[], object],
    manifests: Callable[[], Sequence[RegionManifest]],
) -> int:
    """Replace all rows, and return the base version that has the new ones.

    `empty_wals` claims every region and flushes what its WAL holds, `merge` merges all that is
    flushed, and `manifests` are those of all regions then. Raises InvalidCallError as publishing
    does, and RetryError when other commits kept coming in between; all rows are the old ones then.
    """
    parts = staged_regions(context, base, tasks)
    reader = StagedReader(context, base)
    with maintenance_lease(context.store, f"replacing {uuid4().hex}", name=TURN):
        empty_wals()
        dataset = latest_dataset(context)
        schema = dataset.schema
        rows = pa.RecordBatchReader.from_batches(schema, _live(parts, reader, schema))
        fragments = write_fragments(
            rows,
            dataset,
            schema=schema,
            mode="append",
            data_storage_version=dataset.data_storage_version,
            storage_options=context.storage_options,
        )
        fragments += [
            FragmentMetadata.from_json(one)
            for part in parts
            for piece in part.batch.whole
            for one in piece.fragments
        ]

        def commit() -> int:
            merge()
            dataset = latest_dataset(context)
            merged = details_of(context, dataset).merged_generations
            if any(m.current_generation - 1 > merged.get(m.region_id, 0) for m in manifests()):
                # It would hide new rows, or show among them.
                raise ConflictError("generations were flushed since")
            operation = lance.LanceOperation.Update(
                removed_fragment_ids=[f.fragment_id for f in dataset.get_fragments()],
                new_fragments=list(fragments),
            )
            try:
                committed = lance.LanceDataset.commit(
                    dataset, operation, read_version=dataset.version, max_retries=0
                )
            except (OSError, RuntimeError) as error:
                raise ConflictError(str(error)) from error
            return int(committed.version)

        return over_conflicts(commit, context.uri)


def _live(
    parts: Sequence[StagedRegion], reader: StagedReader, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Every row that deletes nothing and is in no data file yet."""
    for part in parts:
        generations = (reader.rows(one) for one in part.batch.whole if not one.fragments)
        for table in chain(generations, part.batch.tables()):
            kept = table.filter(pc.invert(table[TOMBSTONE])).drop_columns([TOMBSTONE])
            for batch in kept.to_batches():
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
