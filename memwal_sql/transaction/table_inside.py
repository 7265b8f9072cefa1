"""A table as a transaction reads and writes it: one snapshot, with the staged rows in front."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import Any, NoReturn, Protocol, TypeVar, cast
from uuid import UUID

import pyarrow as pa

from exec_nodes.keys.keys import KeyBatch
from memwal_sql.errors import InvalidCallError, MemWalError, UnsupportedError
from memwal_sql.read.snapshots import check_consistency
from memwal_sql.state.base_table import BaseTable
from memwal_sql.table import Table
from memwal_sql.transaction.staged_rows import StagedRows
from memwal_sql.write.conditional.resolve import Compute, ReadChanges, Resolved, Resolver
from memwal_sql.write.coordinator import Description
from memwal_sql.write.ingest.files import named_file
from memwal_sql.write.ingest.missing import ERROR, KEEP, MissingInUpsert
from memwal_sql.write.ingest.normalise import Normaliser
from memwal_sql.write.result import WriteResult
from memwal_sql.write.router import RegionValues
from planner.model import Snapshot, TableInfo
from planner.predicates.expr import Predicate
from planner.regions.pruning import RegionT, prune

STAGED = "staged"
T = TypeVar("T")


class Choose(Protocol):
    """Chooses regions."""

    def __call__(self, regions: Sequence[RegionT], /) -> tuple[RegionT, ...]:
        """Those that may have rows of a read."""


class OneSnapshot:
    """Stands in for a `SnapshotCollector`: every read has the same snapshot, and the rows staged by
    then.

    Attributes:
        regions_read: the regions that reads have had in scope, by their ids.
        has_read_all: whether a read had every region in scope.
        reads: choose, among any regions, those in scope of each read.
    """

    pinned = True
    reads_base_alone = False
    takes_a_while = False

    def __init__(self, base: BaseTable, snapshot: Snapshot, staged: StagedRows) -> None:
        self.base = base
        self.regions_read: set[UUID] = set()
        self.reads: list[Choose] = []
        self.has_read_all = False
        self._snapshot = snapshot
        self._staged = staged
        self._over: MemWalError | None = None
        self._closed: MemWalError | None = None

    def close(self, error: MemWalError) -> None:
        """Refuse rows from now on by this error."""
        self._closed = error

    def end(self, error: MemWalError) -> None:
        """Refuse reads and rows from now on by this error, and forget the rows, read and staged."""
        self._over = self._over or error
        self._snapshot = replace(self._snapshot, regions=())
        self._staged.forget()

    def check_takes_rows(self) -> None:
        """Raise the error of the end, or that by which it was closed."""
        if (error := self._over or self._closed) is not None:
            raise error

    def query(self, consistency: str, take: Callable[[BaseTable], T]) -> T:
        """The result of `take` over the transaction's base version."""
        check_consistency(consistency)
        return take(self.base)

    def snapshot(
        self,
        _: BaseTable,
        consistency: str,
        filters: Sequence[Predicate] = (),
        planner: object = None,
    ) -> Snapshot:
        """The snapshot, without the regions that `filters` rule out. Raises the error of the end
        after that."""
        info = self.base.info
        return self._read(lambda regions: prune(filters, regions, info.region_specs, info.schema))

    def of_keys(self, base: BaseTable, keys: KeyBatch) -> Snapshot:
        """The snapshot, with the regions of some keys alone."""
        values: dict[int, set[tuple[object, ...]]] = {}
        for spec in base.info.region_specs:
            if not spec.is_manual:
                distinct, _ = spec.assign(keys.table)
                values[spec.spec_id] = {tuple(row.values()) for row in spec.values_of(distinct)}

        def choose(regions: Sequence[RegionT]) -> tuple[RegionT, ...]:
            return tuple(
                region
                for region in regions
                if region.values is None
                or region.spec_id not in values
                or tuple(region.values.values()) in values[region.spec_id]
            )

        return self._read(choose)

    def values_of(self, regions: Container[UUID]) -> list[tuple[int, RegionValues | None]]:
        """The spec and the values of some of the snapshot's regions."""
        chosen = [region for region in self._snapshot.regions if region.region_id in regions]
        return [(region.spec_id, cast(RegionValues, region.values)) for region in chosen]

    def _read(self, choose: Choose) -> Snapshot:
        self.reads.append(choose)
        regions = self._staged.in_front_of(self._snapshot.regions)
        if self._over is not None:  # by now, perhaps in another thread
            raise self._over
        chosen = choose(regions)
        self.regions_read.update(region.region_id for region in chosen)
        self.has_read_all |= len(chosen) == len(regions)
        pruned = len(regions) - len(chosen)
        return replace(self._snapshot, regions=chosen, regions_pruned=pruned)

    def collect(self, consistency: str, filters: Sequence[Predicate] = ()) -> Snapshot:
        """As `snapshot`."""
        check_consistency(consistency)
        return self.snapshot(self.base, consistency, filters)

    def catch_up(self) -> BaseTable:
        """The transaction's base version."""
        return self.base

    latest = catch_up

    def pin(self, *_: object) -> NoReturn:
        """Raise UnsupportedError: other processes can't read staged rows."""
        raise UnsupportedError("other processes can't read what a transaction has staged")


class TableInside(Table):
    """A table inside a transaction. Reads are as those of a `Table`; writes are staged."""

    def __init__(self, table: Table, base: BaseTable, snapshot: Snapshot) -> None:
        self.__dict__.update(table.__dict__)
        self._pinned = True
        self.as_of = table.as_of  # type: ignore[assignment, method-assign]  # the past is as it is
        self._info = base.info
        self._staged = StagedRows(base.info, table.context.incarnation)
        self._stored = base.stored
        self._version = base.version
        self.scope = OneSnapshot(base, snapshot, self._staged)
        self._collector = self.scope  # type: ignore[assignment]
        self._normaliser = Normaliser(base.info.schema, base.info.primary_key)
        self._resolver = Resolver(base.info.schema, base.info.primary_key, self._normaliser, self)

    def __reduce__(self) -> NoReturn:
        raise InvalidCallError(
            "a table inside a transaction can't be pickled or copied: give the table itself"
        )

    @property
    def info(self) -> TableInfo:
        """The columns, the primary key and the region specs at the beginning."""
        return self._info

    @property
    def schema(self) -> pa.Schema:
        """The columns at the beginning."""
        return self._info.schema

    @property
    def field_ids(self) -> Mapping[str, int]:
        """The ids of these columns by name."""
        return self._info.field_ids

    @property
    def stored_schema(self) -> pa.Schema:
        """These columns with their field ids."""
        return self._stored

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key's columns, in key order."""
        return self._info.primary_key

    @property
    def version(self) -> int:
        """The base version at the beginning."""
        return self._version

    def staged(self) -> pa.RecordBatch | None:
        """The rows to write, in the MemTables' schema; None without any."""
        return self._staged.rows()

    def upsert(
        self,
        data: Any,
        *,
        missing: MissingInUpsert = KEEP,
        when: str | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002 (SQL's word)
    ) -> WriteResult:
        """See `TableWriter.upsert`."""
        expressions = self._resolver.expressions(when, set or {})
        normaliser = self._normaliser
        with named_file(data):
            rows = normaliser.arrow_rows(data, missing)
            lacking = missing == KEEP and normaliser.lacks_columns(rows)
            rows = rows if isinstance(rows, pa.Table) else rows.read_all()
            if lacking:
                whole = normaliser.partial(rows)
            else:
                whole = normaliser.upserts(rows, ERROR if missing == KEEP else missing)
        if lacking:
            return self._computed(*self._resolver.upsert(whole, expressions))
        if not expressions:
            return self._stage(Resolved(whole))
        return self._computed(
            *self._resolver.upsert(whole.select(self._info.schema.names), expressions)
        )

    def insert_new(self, data: Any, *, missing: MissingInUpsert = KEEP) -> WriteResult:
        """See `TableWriter.insert`."""
        with named_file(data):
            rows = self._normaliser.upserts(data, missing, new=True)
        return self._computed(*self._resolver.insert(rows))

    def delete(self, keys: Any, *, when: str | None = None) -> WriteResult:
        """See `TableWriter.delete`."""
        with named_file(keys if isinstance(keys, PathLike) else None):
            rows = self._normaliser.tombstones(self._normaliser.keys(keys))
        if when is None:
            return self._stage(Resolved(rows))
        return self._computed(*self._resolver.delete(rows, self._resolver.expressions(when, {})))

    def insert(
        self, rows: pa.Table, columns: pa.Schema, description: Description | None = None
    ) -> WriteResult:
        """Stage the rows of an INSERT statement."""
        return self._stage(Resolved(self._normaliser.upserts(rows)))

    def change(
        self,
        read: ReadChanges,
        columns: pa.Schema,
        *,
        whole: bool = False,
        isolation: str = "snapshot",
        description: Description | None = None,
    ) -> WriteResult:
        """Stage the changes that a statement computes from the rows that it reads."""
        select, _ = self._resolver.change(read)
        return self._stage(select())

    def replace_rows(self, rows: pa.Table | Callable[[], pa.Table]) -> NoReturn:
        """Raise UnsupportedError."""
        self._check_present("replace all rows")

    def refresh(self) -> None:
        """Nothing: the transaction reads one version."""

    def close(self) -> None:
        """Nothing: the table outside has the writer."""

    def _computed(self, keys: pa.RecordBatch, compute: Compute) -> WriteResult:
        return self._stage(compute(keys) if keys.num_rows else Resolved(keys))

    def _stage(self, resolved: Resolved) -> WriteResult:
        self.scope.check_takes_rows()
        if resolved.rows.num_rows:
            self._staged.add(resolved.rows)
        skipped, not_found = len(resolved.skipped), resolved.not_found
        return WriteResult(resolved.rows.num_rows, STAGED, {}, skipped, not_found)

    def _check_present(self, what: str) -> NoReturn:
        raise UnsupportedError(f"a transaction can't {what}: call this outside of it")
