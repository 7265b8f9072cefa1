"""A merge whose work tasks share, in any processes; nobody sees what they write until the commit.

The tasks divide among them the rows to upsert, of which they write new fragments, and the base
table's fragments, in which they find the rows of the same keys. What each of them reads in full are
the keys of the generations. So one that dies, or runs twice, leaves files that Lance cleans up.

Lance takes no marks together with fragments that are there already. So the commit of the fragments
stands between two marks: "a part of these generations", which makes readers take them as a whole,
and the progress. Lance refuses it for whatever was committed to rows or marks since the first mark,
and the last mark if anybody has merged since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa
from lance.fragment import FragmentMetadata, write_fragments

from exec_nodes.base.columns import ROW_ADDRESS
from exec_nodes.base.thresholds import Thresholds
from exec_nodes.keys.codes import KeyCodes
from exec_nodes.keys.keys import key_column
from exec_nodes.lance.errors import BASE_NAME, lance_errors
from exec_nodes.lance.fragments import fragments_of_task
from exec_nodes.lance.reading import rows_of, written
from memwal_sql.maintain.details import dataset_at
from memwal_sql.maintain.lease import Lease
from memwal_sql.maintain.merge.commit import PassWriter
from memwal_sql.maintain.merge.merger import Generations, Work, fitting, listed, writer_of
from memwal_sql.maintain.merge.rows import GenerationRows, codes_of, newest_of, open_rows
from memwal_sql.read.region import RegionReader
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.context import TableContext
from memwal_sql.state.schema import primary_key_of
from memwal_sql.storage.base.commits import emptied
from memwal_sql.storage.objects.concurrent import map_remote
from memwal_sql.storage.region.manifest import FlushedGeneration

# Generations that are merged by one commit: every task holds their keys.
_MOST_BYTES = 1_000_000_000
_OFFSET = 0xFFFFFFFF  # of a row's address, that within its fragment


class ShareRows(Thresholds):
    """A task that reads or writes fewer rows is not worth its start, and makes small fragments."""

    least = 50_000


@dataclass(frozen=True, slots=True)
class MergeShare:
    """The share of the task with this number, of so many: of a merge of `generations`, those of a
    region from the oldest to the newest, over a base version. It pickles."""

    version: int
    generations: tuple[tuple[UUID, FlushedGeneration], ...]
    number: int
    tasks: int


@dataclass(frozen=True, slots=True)
class MergedShare:
    """What a task has done.

    Attributes:
        new: fragments that it wrote, without numbers.
        changed: fragments of the base table with replaced and deleted rows left out.
        compared: how many rows of the base table it compared.
    """

    new: Sequence[FragmentMetadata]
    changed: Sequence[FragmentMetadata]
    compared: int


Run = Callable[[Sequence[MergeShare]], Sequence[MergedShare]]
"""Calls `merge_share` for each share, in tasks."""


class Shares:
    """Chooses what fits into one commit: rows and tombstones take the same one, whose work at most
    so many tasks share."""

    def __init__(self, run: Run, tasks: int) -> None:
        self._run = run
        self._tasks = tasks

    def choose(self, base: BaseTable, behind: Generations) -> Work:
        chosen: dict[RegionReader, list[FlushedGeneration]] = {}
        for region, number in fitting(behind, _MOST_BYTES):
            chosen.setdefault(region, []).append(listed(base, region, number))
        generations = {region: behind[region][: len(parts)] for region, parts in chosen.items()}
        rows = [sum(part.rows or 0 for part in parts) for parts in chosen.values()]
        by_id = tuple((region.region_id, part) for region in chosen for part in chosen[region])
        tasks = (base.source.rows + sum(rows)) // ShareRows.least
        tasks = min(max(tasks, 1), self._tasks)
        merge = partial(self._merge, writer_of(base, generations), by_id, tasks)
        return Work(generations, rows, in_parts=True, merge=merge)

    def _merge(
        self,
        writer: PassWriter,
        generations: tuple[tuple[UUID, FlushedGeneration], ...],
        tasks: int,
        lease: Lease,
    ) -> Any:
        writer.mark(last=False)
        dataset = writer.dataset
        done = self._run(
            [MergeShare(dataset.version, generations, number, tasks) for number in range(tasks)]
        )
        lease.renew()
        changed = {fragment.id: fragment for share in done for fragment in share.changed}
        new = [fragment for share in done for fragment in share.new]
        old = [fragment.metadata for fragment in dataset.get_fragments()]
        writer.replace([*(changed.get(fragment.id, fragment) for fragment in old), *new])
        writer.mark(last=True)
        return writer.dataset


def merge_share(context: TableContext, share: MergeShare) -> MergedShare:
    """Do a task's work. Raises RepairError for generations as `open_rows` does, and
    SourceGoneError when files of the base version are gone."""
    dataset = dataset_at(context, share.version)
    opened = map_remote(
        context.store.remote,
        lambda generation: open_rows(context, *generation, dataset),
        share.generations,
    )
    keys = codes_of(opened)
    own = fragments_of_task(dataset, share.number, share.tasks)
    with lance_errors(BASE_NAME, context.uri):
        return MergedShare(
            _write(context, dataset, newest_of(opened, keys), share),
            list(_changed(dataset, own, keys)),
            sum(fragment.metadata.num_rows for fragment in own),
        )


def _write(
    context: TableContext, dataset: Any, generations: Sequence[GenerationRows], share: MergeShare
) -> Sequence[FragmentMetadata]:
    """New fragments of the task's rows."""
    total = sum(rows.upserts for rows in generations)
    step = max(-(-total // share.tasks), ShareRows.least)
    start = share.number * step
    if start >= total:
        return []
    with written(dataset.schema, _rows(generations, start, start + step)) as stream:
        fragments: list[FragmentMetadata] = write_fragments(
            stream,
            dataset,
            schema=dataset.schema,
            mode="append",
            data_storage_version=dataset.data_storage_version,
            storage_options=context.storage_options,
        )
    return fragments


def _rows(generations: Sequence[GenerationRows], start: int, end: int) -> Iterator[pa.RecordBatch]:
    """The rows to upsert by their numbers among those of all generations."""
    for rows in generations:
        yield from rows.part(start, end)
        start, end = start - rows.upserts, end - rows.upserts


def _changed(dataset: Any, own: Sequence[Any], keys: KeyCodes) -> Iterator[FragmentMetadata]:
    """The fragments of the task that have rows of these keys, without these rows."""
    names = primary_key_of(dataset.schema)
    for fragment in own:
        rows = rows_of(fragment.scanner(columns=list(names), with_row_address=True))
        places, _ = keys.find(key_column(rows.select(names).columns))
        if len(places):
            offsets = rows[ROW_ADDRESS].to_numpy()[places] & _OFFSET
            yield fragment.delete_rows(offsets.tolist()) or emptied(fragment.metadata)
