"""The table handle: everything that a program does with a MemWAL table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa

from exec_nodes.keys.keys import KeyBatch, as_key_table
from exec_nodes.keys.scalar import one_key
from memwal_sql.read.changes.feed import change_offsets, changes
from memwal_sql.read.changes.offsets import Offsets
from memwal_sql.read.lookup import distinct, get
from memwal_sql.state.base_table import BaseTable
from memwal_sql.table.columns import AlteredTable
from memwal_sql.table.restoring import RestoredTable
from memwal_sql.table.scanning import ScannedTable
from memwal_sql.table.searching import SearchedTable
from memwal_sql.table.showing import ShownTable


class Table(ScannedTable, SearchedTable, AlteredTable, ShownTable, RestoredTable):
    """A Lance table with an LSM tree in front of it.

    Safe to share between threads. Reads are strongly consistent by default: they see every row that
    any writer reported as durable, and those that this process's own writers have buffered.
    """

    def get(self, keys: Any, columns: Sequence[str] | None = None) -> pa.Table:
        """The live rows with these primary keys, in the order of the keys; absent keys give no row.

        Args:
            keys: one key or many: values, tuples for a composite key, or any Arrow data with the
                key columns. A key given twice is answered once.
            columns: the columns; all of them by default.

        Examples:
            >>> table.get([2, 7], ["id", "degrees"]).to_pylist()
            [{'id': 2, 'degrees': 16.0}]
        """

        def rows(base: BaseTable) -> pa.Table:
            schema, primary_key = base.info.schema, base.info.primary_key
            names = self._columns(columns, schema)
            batch: KeyBatch | None = one_key(keys, schema, primary_key)
            if batch is None:
                batch = distinct(KeyBatch(as_key_table(keys, schema, primary_key)))
            return get(self._collector, base, batch, names)

        return self._collector.query("strong", rows)

    def changes(
        self,
        region: str | UUID | None = None,
        after: Offsets | None = None,
        until: Offsets | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.RecordBatchReader:
        """The rows written after a place, region by region in the order of writing, with the
        table's columns and `_change` (`upsert` or `delete`), `_region` (id), `_position` (in the
        region's WAL), `_generation` and `_transaction` (its id; null for rows of none). Deletes
        have their key only. The stream has durable rows only, and ends with those that existed when
        it came to the region, or before a transaction that is not decided yet. Changes in the base
        table itself are not included: rows from before `enable`, Lance's own writes, a replacement
        of all rows.

        Args:
            region: its id or name; all regions by default.
            after: a WAL position, or `[position, generation]` as in the last row read; by region id
                or name for several regions. A region that is not named is read from its beginning.
            until: the last place to read, in the same form; a region that is not named is not read.
            columns: the columns of the table; all of them by default.

        Raises ChangesCollectedError, here or in the middle of the stream, if changes after `after`
        were collected, and InvalidCallError for a place or a region that does not exist.

        Examples:
            >>> sorted(row["id"] for batch in table.changes() for row in batch.to_pylist())
            [1, 2, 2, 3, 3]
        """
        self._check_present("follow changes")
        return changes(
            self._context,
            self._collector.not_below_watermarks(self._tracker.latest()),
            self._collector.registry,
            region=region,
            after=after,
            until=until,
            columns=self._columns(columns, self.schema),
        )

    def change_offsets(self) -> dict[str, list[int]]:
        """The place after everything written so far, `[position, generation]` by region id."""
        self._check_present("follow changes")
        base = self._collector.not_below_watermarks(self._tracker.latest())
        return change_offsets(self._context, base, self._collector.registry)

    def __enter__(self) -> Table:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
