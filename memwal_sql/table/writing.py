"""Writing to a table: writers for programs, and INSERT statements."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Unpack, cast
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
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.table.handle import TableHandle
from memwal_sql.write.conditional.resolve import LiveRows, ReadChanges
from memwal_sql.write.coordinator import Description
from memwal_sql.write.options import STATEMENT_WRITERS, WriterArguments, WriterOptions
from memwal_sql.write.result import DURABLE, WriteResult
from memwal_sql.write.statement import SNAPSHOT
from memwal_sql.write.table_writer import TableWriter
from planner.regions.values import RegionValue


class WrittenTable(TableHandle):
    """Writers, and the rows of INSERT statements."""

    def writer(
        self, *, region: str | None = None, **options: Unpack[WriterArguments]
    ) -> TableWriter:
        """A writer, to use as a context manager; it claims regions when rows come for them.

        Args:
            region: the region's name or UUID, only for tables with manual regions.
            options: the fields of `WriterOptions`, such as `durable=True, indexed=True`.

        Examples:
            >>> with table.writer() as writer:
            ...     result = writer.upsert([{"id": 4, "city": "Lima", "degrees": 19.0}])
            >>> table.count_rows()
            3
        """
        self._check_present("write")
        fields = WriterOptions.__dataclass_fields__
        unknown = sorted(set(options) - set(fields))
        if unknown:
            raise InvalidCallError(f"unknown writer options {unknown}; there are {sorted(fields)}")
        base = self._tracker.latest_verified()
        return self._open_writer(base, region=region, options=WriterOptions(**options))

    def insert(
        self, rows: pa.Table, columns: pa.Schema, description: Description | None = None
    ) -> WriteResult:
        """Upsert the rows of an INSERT statement, durably.

        They go through the writer that this process has open for the table, or through INSERT's
        own: claiming for every statement would take the regions from the writer of the previous
        one. INSERT's own writer is opened again when the columns have changed, as SQL has no words
        for that; a program's writer is left to the program. A writer that is closed meanwhile is
        replaced.

        Args:
            columns: the columns that the statement was planned with.
            description: what the record of its transaction says, if it is one.

        Raises ReopenError if the table has other columns by now, and the errors of
        `TableWriter.upsert`.
        """
        return self._by_open_writer(columns, lambda writer: writer.insert_into(rows, description))

    def change(
        self,
        read: ReadChanges,
        columns: pa.Schema,
        *,
        whole: bool = False,
        isolation: str = SNAPSHOT,
        description: Description | None = None,
    ) -> WriteResult:
        """Write the changes that a statement computes from the rows it reads, durably, by the
        writer that `insert` uses; see `TableWriter.change`. If that is closed before anything is
        written, everything is read and computed again.

        Raises the errors of that, and ReopenError as `insert` does.
        """
        return self._by_open_writer(
            columns,
            lambda writer: writer.change(
                read, whole=whole, isolation=isolation, description=description
            ),
        )

    def _by_open_writer(
        self, columns: pa.Schema, write: Callable[[OpenTable], WriteResult]
    ) -> WriteResult:
        """The result of a statement, made by the writer that this process has open, or by
        INSERT's; again, by the next one, if the program closes it before it has written anything.
        It is durable, whatever the writer promises."""
        self._check_present("write")
        while True:
            writer = self.statement_writer(columns)
            try:
                result = write(writer)
            except (PartlyWrittenError, TransactionUnknownError, WriterFailedError):
                raise
            except ReopenError:
                if not writer.closed:
                    raise
            else:
                if result.reached != DURABLE:
                    writer.land()
                if not result.atomic:
                    self._warn_of_parts()
                return result

    def _warn_of_parts(self) -> None:
        why = (
            f"{MOST_PARTS} regions are the most, and in each the rows of one MemTable"
            if self._context.takes_transactions
            else "the table takes none"
        )
        warnings.warn(
            f"a statement over {self.uri} was not one transaction, so that readers may have seen a "
            f"part of it: {why}. SET memwal.atomic = 'required' refuses such statements",
            NotAtomicWarning,
            stacklevel=2,
        )

    def close(self) -> None:
        """Close the writer that INSERT statements opened, if there is one."""
        with self._insert_lock:
            writer, self._insert_writer = self._insert_writer, None
        if writer is not None:
            writer.close()

    def statement_writer(self, columns: pa.Schema) -> OpenTable:
        """The writer of statements that were planned with some columns: the program's own, if it
        is open, else one that this handle keeps. Raises ReopenError if the table has others."""
        with self._insert_lock:
            base = self._collector.not_below_watermarks(self._tracker.latest_verified())
            if not base.info.schema.equals(columns):
                raise ReopenError(
                    f"the columns of {self.uri} have changed since the session registered it, or "
                    f"the transaction began ({differences(columns, base.info.schema)}): register "
                    "it again, or begin the transaction again, to write it"
                )
            writer = live_table_writer(self._context.identity)
            if writer is not None and same_columns(writer.columns, base.stored):
                return writer
            if writer is not None and not writer.of_insert:
                raise ReopenError(
                    f"the columns of {self.uri} have changed since this process opened its writer "
                    f"({differences(writer.columns, base.stored)}): close it, and open a new one "
                    "or leave that to INSERT"
                )
            for old in (writer, self._insert_writer):
                with suppress(MemWalError):  # its rows are durable, and nobody waits for them
                    if old is not None:
                        old.close()
            self._insert_writer = self._open_writer(
                base, options=replace(STATEMENT_WRITERS.options, durable=True), of_insert=True
            )
            return self._insert_writer

    def _open_writer(
        self,
        base: BaseTable,
        *,
        options: WriterOptions | None = None,
        region: str | None = None,
        of_insert: bool = False,
    ) -> TableWriter:
        self._context.check_writes()
        self._collector.check_watermarks(base)
        return TableWriter(
            context=self._context,
            info=base.info,
            base=BaseFormat.of(base.dataset),
            check_claimable=partial(self._check_claimable, base.etag, base.stored),
            check_base=self._check_base,
            regions_of=self._regions_of,
            rows=cast(LiveRows, self),  # the subclasses of this part add the reads
            regions=self._all_regions,
            indexes=self._index_recipes,
            last_indexes=self._last_index_recipes,
            merged=self._merged_of,
            region=region,
            options=options,
            of_insert=of_insert,
        )

    def _last_index_recipes(self) -> Sequence[IndexRecipe]:
        return self._tracker.loaded.indexes.recipes()

    def _merged_of(self, region_id: UUID) -> int:
        return self._tracker.loaded.details.merged_generations.get(region_id, 0)

    def _check_base(self) -> None:
        """Raise if nobody would read rows that are written now: the base table was overwritten, or
        has another MemWAL index. On a local disk this is two looks at its newest version; on an
        object store, where they are requests, flushes and claims find it."""
        if not self._context.store.remote:
            self._collector.not_below_watermarks(self._tracker.latest())

    def _check_claimable(self, etag: str, stored: pa.Schema) -> None:
        """Raise if regions may not be claimed by a writer that was opened with the base version of
        an etag, and its columns: others may have written columns that it does not know, and its
        rows would replace theirs without them, whether these are in the log or merged."""
        latest = self._tracker.latest()
        if latest.etag == etag:
            return
        self._collector.check_watermarks(latest)  # it may have been restored to an earlier version
        if not same_columns(latest.stored, stored):
            raise ReopenError(
                f"the columns of {self.uri} have changed since this writer was opened "
                f"({differences(stored, latest.stored)}), so that it may claim no region any more: "
                "these rows were not written, open a new writer"
            )

    def _all_regions(self) -> list[tuple[int, Mapping[str, RegionValue] | None]]:
        regions = self._collector.registry.regions(self._tracker.latest())
        return [(region.spec_id, region.values) for region in regions]

    def _regions_of(
        self, spec_id: int, regions: Sequence[Mapping[str, RegionValue]]
    ) -> list[RegionManifest | None]:
        return self._collector.registry.manifests_of(self._tracker.loaded, spec_id, regions)
