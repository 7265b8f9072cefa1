"""Work of distributed engines: staged writes, and merges that are divided among tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from uuid import uuid4

import pyarrow as pa

from memwal_sql.bulk.publish import Publisher, routing_spec
from memwal_sql.bulk.replace import Replacement
from memwal_sql.bulk.rows import LAST, RowForm
from memwal_sql.bulk.stage import (
    FragmentStager,
    StagedTask,
    StageLimits,
    Stager,
    discard,
    staging_folder,
)
from memwal_sql.maintain.index_builder import build_indexes
from memwal_sql.maintain.merge.merger import Merger
from memwal_sql.maintain.merge.shares import Run, Shares
from memwal_sql.maintain.progress import report_nothing
from memwal_sql.state.generation_writer import GenerationWriter
from memwal_sql.table.handle import TableHandle
from memwal_sql.table.lookups import get_rows
from memwal_sql.table.maintaining import merge, regions_now


def stager(
    table: TableHandle,
    job: str,
    form: RowForm,
    limits: StageLimits | None = None,
    *,
    replaces: bool = False,
) -> Stager:
    """See `Table.stager`."""
    table.check_writable("write")
    base, limits = table.tracker.latest(), limits or StageLimits()
    store, folder = table.context.store, staging_folder(job)
    writer = GenerationWriter(table.context, base.info, base.dataset, table.index_recipes)
    if replaces:
        return FragmentStager(store=store, writer=writer, form=form, folder=folder, limits=limits)
    spec, form = routing_spec(base.info), form.over(base.info)
    return Stager(store=store, writer=writer, spec=spec, form=form, folder=folder, limits=limits)


def publisher(table: TableHandle) -> Publisher:
    """See `Table.publisher`."""
    table.check_writable("write")
    tracker, collector = table.tracker, table.collector
    collector.versions.check_watermarks(tracker.latest())
    return Publisher(
        context=table.context,
        base=tracker.latest,
        find=collector.registry.manifests_of,
        get=partial(get_rows, table),
    )


def merge_in_tasks(table: TableHandle, run: Run, tasks: int) -> dict[str, int]:
    """See `Table.merge_in_tasks`."""
    table.check_writable("merge")
    merger = Merger(table.context, partial(regions_now, table), Shares(run, tasks).choose)
    regions = table.collector.regions_to_merge()
    merged = merger.run(regions, table.tracker.loaded)
    return {str(region.region_id): merged[region] for region in regions}


def replace_staged(table: TableHandle, tasks: Sequence[StagedTask]) -> int:
    """See `Table.replace_staged`."""
    return _replaced(table, lambda replace: replace.by(tasks))


def replace_rows(table: TableHandle, rows: pa.Table | Callable[[], pa.Table]) -> int:
    """See `Table.replace_rows`."""
    job = f"replace-{uuid4().hex}"

    def staged(rows: pa.Table) -> list[StagedTask]:
        form = RowForm(duplicates=LAST)
        return [stager(table, job, form, replaces=True).stage(rows.to_batches())]

    try:
        if isinstance(rows, pa.Table):
            return replace_staged(table, staged(rows))
        read = rows
        return _replaced(table, lambda replacement: replacement.by_reading(lambda: staged(read())))
    finally:
        table.afterwards("removing what was staged", lambda: discard_staged(table, job))


def discard_staged(table: TableHandle, job: str) -> None:
    """See `Table.discard_staged`."""
    folder = staging_folder(job)
    table.context.check_writes()
    discard(table.context.store, folder)


def _replaced(table: TableHandle, replace: Callable[[Replacement], int]) -> int:
    table.check_writable("write")
    publishes = publisher(table)
    version = replace(
        Replacement(
            table.context,
            table.tracker.latest(),
            empty_wals=lambda: publishes.empty_wals(table.manifests()),
            merge=partial(merge, table),
            manifests=table.manifests,
        )
    )
    table.afterwards(
        "bringing the indexes up to date", lambda: build_indexes(table.context, report_nothing)
    )
    return version
