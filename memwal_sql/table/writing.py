"""Writing to a table: writers for programs, and INSERT statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Unpack, cast
from uuid import UUID

import pyarrow as pa

from exec_nodes.evolution.project import same_columns
from memwal_sql.errors import (
    ConflictError,
    FencedError,
    InvalidCallError,
    MemWalError,
    PartlyWrittenError,
    ReopenError,
    RetryError,
    WriterFailedError,
)
from memwal_sql.state.base_table import BaseTable
from memwal_sql.state.open_writers import OpenTable, live_table_writer
from memwal_sql.storage.base.indexes import IndexRecipe
from memwal_sql.storage.generation.write import BaseFormat
from memwal_sql.storage.region.manifest import RegionManifest
from memwal_sql.storage.retries import ATTEMPTS, with_retries
from memwal_sql.table.handle import TableHandle
from memwal_sql.write.conditional.resolve import LiveRows, ReadChanges
from memwal_sql.write.options import STATEMENT_WRITERS, WriterArguments, WriterOptions
from memwal_sql.write.result import DURABLE, WriteResult
from memwal_sql.write.statement import SNAPSHOT
from memwal_sql.write.table_writer import TableWriter
from planner.regions.values import RegionValue


class _TakenOverError(Exception):
    """Others took regions over before a statement had written anything."""


class WrittenTable(TableHandle):
    """Writers, and the rows of INSERT statements."""

    def writer(
        self, *, region: str | None = None, **options: Unpack[WriterArguments]
    ) -> TableWriter:
        """A writer, to use as a context manager; it claims regions when rows come for them.

        Args:
            region: the region's name or UUID, only for tables with manual regions.
            options: the fields of `WriterOptions`, such as `durable=True, indexed=True`.
        """
        self._check_present("write")
        fields = WriterOptions.__dataclass_fields__
        unknown = sorted(set(options) - set(fields))
        if unknown:
            raise InvalidCallError(f"unknown writer options {unknown}; there are {sorted(fields)}")
        base = self._tracker.latest_verified()
        return self._open_writer(base, region=region, options=WriterOptions(**options))

    def insert(self, rows: pa.Table, columns: pa.Schema) -> int:
        """Upsert the rows of an INSERT statement, durably, and return their number.

        They go through the writer that this process has open for the table, or through INSERT's
        own: claiming for every statement would fence the writer of the previous one. INSERT's own
        writer is opened again when another writer took a region over, or when the columns have
        changed, as SQL has no words for that; a program's writer is left to the program.

        Args:
            columns: the columns that the statement was planned with.

        Raises ReopenError if the table has other columns by now, RetryError if others kept taking
        the regions over, and the errors of `TableWriter.upsert`.
        """
        self._check_present("write")

        def upsert() -> int:
            writer = self._writer_for_insert(columns)
            try:
                written: int = writer.upsert(rows).rows
                writer.land()  # an INSERT is durable, whatever the program's own writer promises
                return written
            except WriterFailedError:
                raise
            except ReopenError as error:  # fenced, or closed meanwhile, with its rows durable
                if not (writer.of_insert or writer.closed):
                    raise
                raise ConflictError(str(error)) from error

        try:
            return with_retries(upsert, f"INSERT into {self.uri}", on=ConflictError)
        except ConflictError as error:
            raise RetryError(
                f"other writers took over regions of {self.uri} {ATTEMPTS} times while this INSERT "
                "claimed them: run it again, or let one process write"
            ) from error

    def change(
        self,
        read: ReadChanges,
        columns: pa.Schema,
        *,
        whole: bool = False,
        isolation: str = SNAPSHOT,
    ) -> WriteResult:
        """Write the changes that a statement computes from the rows it reads, durably, by the
        writer that `insert` uses; see `TableWriter.change`. If others take the regions over before
        anything is written, everything is read and computed again.

        Raises the errors of that, ReopenError as `insert` does, and RetryError if others kept
        taking the regions over and nothing was written.
        """
        self._check_present("write")

        def change() -> WriteResult:
            writer = self._writer_for_insert(columns)
            try:
                result: WriteResult = writer.change(read, whole=whole, isolation=isolation)
            except (PartlyWrittenError, WriterFailedError):
                raise
            except ReopenError as error:
                if not (writer.closed or (writer.of_insert and isinstance(error, FencedError))):
                    raise
                raise _TakenOverError from error
            if result.reached != DURABLE:
                writer.land()  # a statement is durable, whatever the program's own writer promises
            return result

        try:
            return with_retries(change, f"a statement on {self.uri}", on=_TakenOverError)
        except _TakenOverError as error:
            raise RetryError(
                f"other writers kept taking over regions of {self.uri}, or replacing its rows, "
                "while this statement ran: nothing was written, run it again, or let one process "
                "write"
            ) from error.__cause__

    def close(self) -> None:
        """Close the writer that INSERT statements opened, if there is one."""
        with self._insert_lock:
            writer, self._insert_writer = self._insert_writer, None
        if writer is not None:
            writer.close()

    def _writer_for_insert(self, columns: pa.Schema) -> OpenTable:
        with self._insert_lock:
            base = self._collector.not_below_watermarks(self._tracker.latest_verified())
            if not base.info.schema.equals(columns):
                raise ReopenError(
                    f"the columns of {self.uri} have changed since the session registered it: "
                    f"register it again to write {base.info.schema.names}"
                )
            writer = live_table_writer(self._context.identity)
            if writer is not None and same_columns(writer.columns, base.stored):
                return writer
            if writer is not None and not writer.of_insert:
                raise ReopenError(
                    f"the columns of {self.uri} have changed since this process opened its writer: "
                    "close it, and open a new one or leave that to INSERT"
                )
            for old in (writer, self._insert_writer):
                with suppress(MemWalError):  # its rows are durable, and nobody waits for them
                    if old is not None:
                        old.close()
            self._insert_writer = self._open_writer(
                base, options=STATEMENT_WRITERS.options, of_insert=True
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
            check_claimable=partial(self._check_claimable, base.etag),
            region_of=self._region_of,
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

    def _check_claimable(self, etag: str) -> None:
        # The base may have been restored to an earlier version since the writer was opened.
        if (latest := self._tracker.latest()).etag != etag:
            self._collector.check_watermarks(latest)

    def _all_regions(self) -> list[tuple[int, Mapping[str, RegionValue] | None]]:
        regions = self._collector.registry.regions(self._tracker.latest())
        return [(region.spec_id, region.values) for region in regions]

    def _region_of(self, spec_id: int, values: Mapping[str, RegionValue]) -> RegionManifest | None:
        return self._collector.registry.manifest_of(self._tracker.loaded, spec_id, values)
