"""A table as a transaction reads and writes it: one snapshot, with the staged rows in front."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from typing import NoReturn, cast
from uuid import UUID

import pyarrow as pa

from memwal_sql.errors import InvalidCallError, MemWalError, UnsupportedError
from memwal_sql.read.pinned import Choose
from memwal_sql.state.base_table import BaseTable
from memwal_sql.table import Table
from memwal_sql.transaction.staged_rows import StagedRows
from memwal_sql.transaction.staging import Staging
from memwal_sql.write.conditional.resolve import ReadChanges
from memwal_sql.write.coordinator import Description
from memwal_sql.write.result import WriteResult
from memwal_sql.write.router import RegionValues
from planner.model import Snapshot


class OneSnapshot:
    """The state of a table that a transaction reads: one snapshot, with the rows staged by then.

    Attributes:
        base: its base version.
        regions_read: the regions that reads have had in scope, by their ids.
        has_read_all: whether a read had every region in scope.
        reads: choose, among any regions, those in scope of each read.
    """

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

    def values_of(self, regions: Container[UUID]) -> list[tuple[int, RegionValues | None]]:
        """The spec and the values of some of the snapshot's regions."""
        chosen = [region for region in self._snapshot.regions if region.region_id in regions]
        return [(region.spec_id, cast(RegionValues, region.values)) for region in chosen]

    def snapshot(self, _: BaseTable, choose: Choose) -> Snapshot:
        """The snapshot, with the regions that a read chooses. Raises the error of the end after
        that."""
        self.reads.append(choose)
        regions = self._staged.in_front_of(self._snapshot.regions)
        if self._over is not None:  # by now, perhaps in another thread
            raise self._over
        chosen = choose(regions)
        self.regions_read.update(region.region_id for region in chosen)
        self.has_read_all |= len(chosen) == len(regions)
        pruned = len(regions) - len(chosen)
        return replace(self._snapshot, regions=chosen, regions_pruned=pruned)

    def pin(self) -> NoReturn:
        """Raise UnsupportedError: other processes can't read staged rows."""
        raise UnsupportedError("other processes can't read what a transaction has staged")


class TableInside(Table):
    """A table inside a transaction: a handle on the state that it reads. `staging` has the
    writes."""

    def __init__(self, table: Table, base: BaseTable, snapshot: Snapshot) -> None:
        self._staged = StagedRows(base.info, table.context.incarnation)
        self.scope = OneSnapshot(base, snapshot, self._staged)
        super().__init__(table.context, base, pinned=True, fixed=self.scope)
        self.staging = Staging(base.info, self, self._staged, self.scope.check_takes_rows)

    def __reduce__(self) -> NoReturn:
        raise InvalidCallError(
            "a table inside a transaction can't be pickled or copied: give the table itself"
        )

    def staged(self) -> pa.RecordBatch | None:
        """The rows to write, in the MemTables' schema; None without any."""
        return self._staged.rows()

    def insert(
        self, rows: pa.Table, columns: pa.Schema, description: Description | None = None
    ) -> WriteResult:
        """Stage the rows of an INSERT statement."""
        return self.staging.insert_into(rows)

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
        return self.staging.change(read)

    def replace_rows(self, rows: pa.Table | Callable[[], pa.Table]) -> NoReturn:
        """Raise UnsupportedError."""
        self.check_present("replace all rows")

    def check_present(self, what: str) -> NoReturn:
        raise UnsupportedError(f"a transaction can't {what}: call this outside of it")
