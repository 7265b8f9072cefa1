"""Writing to a table: writers for programs, and statements."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import cast
from uuid import UUID

import pyarrow as pa

from exec_nodes.evolution.differences import differences
from exec_nodes.evolution.project import same_columns
from memwal_sql.errors import (
    InvalidCallError,
    MemWalError,
    NotAtomicWarning,
    PartlyWrittenError,
    ReopenError,
    TransactionUnknownError,
    WriterFailedError,
)
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.open_writers import OpenTable, live_table_writer
from memwal_sql.storage.base.indexes import IndexRecipe
from memwal_sql.storage.generation.write import BaseFormat
from memwal_sql.storage.records.transactions import MOST_PARTS
from memwal_sql.table.handle import TableHandle
from memwal_sql.write.conditional.resolve import LiveRows, ReadChanges
from memwal_sql.write.coordinator import Description
from memwal_sql.write.options import STATEMENT_WRITERS, WriterArguments, WriterOptions
from memwal_sql.write.region_opener import WrittenTable
from memwal_sql.write.result import DURABLE, WriteResult
from memwal_sql.write.statement import SNAPSHOT
from memwal_sql.write.table_writer import TableWriter
from planner.regions.values import RegionValue


def writer(table: TableHandle, region: str | None, options: WriterArguments) -> TableWriter:
    """See `Table.writer`."""
    table.check_present("write")
    fields = WriterOptions.__dataclass_fields__
    unknown = sorted(set(options) - set(fields))
    if unknown:
        raise InvalidCallError(f"unknown writer options {unknown}; there are {sorted(fields)}")
    base = table.tracker.latest_verified()
    return _open_writer(table, base, region=region, options=WriterOptions(**options))


def insert(
    table: TableHandle, rows: pa.Table, columns: pa.Schema, description: Description | None
) -> WriteResult:
    """See `Table.insert`."""
    return _by_open_writer(table, columns, lambda writer: writer.insert_into(rows, description))


def change(
    table: TableHandle,
    read: ReadChanges,
    columns: pa.Schema,
    *,
    whole: bool = False,
    isolation: str = SNAPSHOT,
    description: Description | None = None,
) -> WriteResult:
    """See `Table.change`."""
    return _by_open_writer(
        table,
        columns,
        lambda writer: writer.change(
            read, whole=whole, isolation=isolation, description=description
        ),
    )


def _by_open_writer(
    table: TableHandle, columns: pa.Schema, write: Callable[[OpenTable], WriteResult]
) -> WriteResult:
    """The result of a statement, made by the writer that this process has open, or by that of
    statements; again, by the next one, if that is closed before it has written anything. It is
    durable, whatever the writer promises."""
    table.check_present("write")
    writer = statement_writer(table, columns)
    while True:
        try:
            result = write(writer)
        except (PartlyWrittenError, TransactionUnknownError, WriterFailedError):
            raise
        except ReopenError:
            if not (writer.closed or writer.of_statements):
                raise
            # Its errors are for programs: that columns have changed is said first.
            before, writer = writer, statement_writer(table, columns)
            if writer is before:
                raise
        else:
            if result.reached != DURABLE:
                writer.land()
            if not result.atomic:
                _warn_of_parts(table)
            return result


def _warn_of_parts(table: TableHandle) -> None:
    why = (
        f"{MOST_PARTS} regions are the most, and in each the rows of one MemTable"
        if table.context.takes_transactions
        else "the table takes none"
    )
    warnings.warn(
        f"a statement over {table.uri} was not one transaction, so that readers may have seen a "
        f"part of it: {why}. SET memwal.atomic = 'required' refuses such statements",
        NotAtomicWarning,
        stacklevel=2,
    )


def statement_writer(table: TableHandle, columns: pa.Schema) -> OpenTable:
    """See `Table.statement_writer`."""
    base = _base_with(table, columns)
    writer = _live_writer_of(table, base)
    if writer is not None:
        return writer
    with table.kept_writer_lock:
        writer = live_table_writer(table.context.identity)
        if writer is not None:  # it may be a newer one
            base = _base_with(table, columns)
            if same_columns(writer.columns, base.stored):
                return writer
        if writer is not None and not writer.of_statements:
            raise ReopenError(
                f"the columns of {table.uri} have changed since this process opened its writer "
                f"({differences(writer.columns, base.stored)}): close it, and open a new one "
                "or leave that to INSERT"
            )
        for old in (writer, table.kept_writer):
            with suppress(MemWalError):  # its rows are durable, and nobody waits for them
                if old is not None:
                    old.close()
        opened = _open_writer(
            table,
            base,
            options=replace(STATEMENT_WRITERS.options, durable=True),
            of_statements=True,
        )
        table.kept_writer = opened
        return opened


def _base_with(table: TableHandle, columns: pa.Schema) -> BaseTable:
    """The latest base version, by a look that may be made by several threads at once. Raises
    ReopenError if it has other columns than these."""
    base = table.collector.versions.not_below_watermarks(table.tracker.latest_verified())
    if not base.info.schema.equals(columns):
        raise ReopenError(
            f"the columns of {table.uri} have changed since the session registered it, or the "
            f"transaction began ({differences(columns, base.info.schema)}): register it again, or "
            "begin the transaction again, to write it"
        )
    return base


def _live_writer_of(table: TableHandle, base: BaseTable) -> OpenTable | None:
    writer = live_table_writer(table.context.identity)
    return writer if writer is not None and same_columns(writer.columns, base.stored) else None


def _open_writer(
    table: TableHandle,
    base: BaseTable,
    *,
    options: WriterOptions | None = None,
    region: str | None = None,
    of_statements: bool = False,
) -> TableWriter:
    table.context.check_writes()
    tracker, collector = table.tracker, table.collector
    collector.versions.check_watermarks(base)

    def all_regions() -> list[tuple[int, Mapping[str, RegionValue] | None]]:
        regions = collector.registry.regions(tracker.latest())
        return [(region.spec_id, region.values) for region in regions]

    def last_indexes() -> Sequence[IndexRecipe]:
        return tracker.loaded.indexes.recipes()

    def merged(region_id: UUID) -> int:
        return tracker.loaded.details.merged_generations.get(region_id, 0)

    written = WrittenTable(
        context=table.context,
        info=base.info,
        base=BaseFormat.of(base.dataset),
        find=collector.registry.manifests_of,
        check_claimable=partial(check_claimable, table, base.etag, base.stored),
        check_base=partial(check_base, table),
        regions=all_regions,
        indexes=table.index_recipes,
        last_indexes=last_indexes,
        merged=merged,
    )
    rows = cast(LiveRows, table)  # `Table` adds the reads
    return TableWriter(written, rows, region=region, options=options, of_statements=of_statements)


def check_base(table: TableHandle) -> None:
    """Raise if nobody would read rows that are written now: the base table was overwritten, or
    has another MemWAL index. On a local disk this is two looks at its newest version; on an
    object store, where they are requests, flushes and claims find it."""
    if not table.context.store.remote:
        table.collector.versions.not_below_watermarks(table.tracker.latest())


def check_claimable(table: TableHandle, etag: str, stored: pa.Schema) -> None:
    """Raise if regions may not be claimed by a writer that was opened with the base version of
    an etag, and its columns: others may have written columns that it does not know, and its
    rows would replace theirs without them, whether these are in the log or merged."""
    latest = table.tracker.latest()
    if latest.etag == etag:
        return
    # It may have been restored to an earlier version.
    table.collector.versions.check_watermarks(latest)
    if not same_columns(latest.stored, stored):
        raise ReopenError(
            f"the columns of {table.uri} have changed since this writer was opened "
            f"({differences(stored, latest.stored)}), so that it may claim no region any more: "
            "these rows were not written, open a new writer"
        )
