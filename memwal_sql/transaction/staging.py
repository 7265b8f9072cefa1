"""The calls of a transaction that change rows of one table: what they write is staged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from exec_nodes.arrow.row_stream import RowStream
from memwal_sql.transaction.staged_rows import StagedRows
from memwal_sql.write.conditional.resolve import (
    Compute,
    LiveRows,
    ReadChanges,
    Resolved,
)
from memwal_sql.write.ingest.normalise import Rows
from memwal_sql.write.result import WriteResult
from memwal_sql.write.row_calls import RowCalls
from memwal_sql.write.statement import SNAPSHOT, Isolation
from planner.model import TableInfo

STAGED = "staged"


class Staging(RowCalls):
    """Stages rows. The isolation is the transaction's, and all of it is atomic."""

    def __init__(
        self, info: TableInfo, rows: LiveRows, staged: StagedRows, check_open: Callable[[], None]
    ) -> None:
        """`rows` are the table's as the transaction sees them; `check_open` raises if no more are
        staged."""
        super().__init__(info, rows)
        self._staged = staged
        self._raise_if_over = check_open

    def insert_into(self, rows: pa.Table) -> WriteResult:
        """Stage the whole rows of an INSERT statement."""
        return self._stage(Resolved(self._normaliser.upserts(rows)))

    def change(self, read: ReadChanges) -> WriteResult:
        """Stage the changes that a statement computes from the rows that it reads."""
        select, _ = self._resolver.change(read)
        return self._stage(select())

    def _check_open(self) -> None:
        self._raise_if_over()

    def _write(
        self,
        rows: Rows,
        normalise: Callable[[Any], pa.RecordBatch],
        row_bytes: int = 0,
        *,
        atomic: bool = False,
    ) -> WriteResult:
        whole = rows.read_all() if isinstance(rows, RowStream) else rows
        return self._stage(Resolved(normalise(whole)))

    def _over_keys(
        self, keys: pa.RecordBatch, compute: Compute, isolation: Isolation = SNAPSHOT
    ) -> WriteResult:
        return self._stage(compute(keys) if keys.num_rows else Resolved(keys))

    def _over_rows(
        self, select: Callable[[], Resolved], compute: Compute, isolation: Isolation
    ) -> WriteResult:
        return self._stage(select())

    def _stage(self, resolved: Resolved) -> WriteResult:
        self._check_open()  # by now, perhaps in another thread
        if resolved.rows.num_rows:
            self._staged.add(resolved.rows)
        skipped, not_found = len(resolved.skipped), resolved.not_found
        return WriteResult(resolved.rows.num_rows, STAGED, {}, skipped, not_found)
