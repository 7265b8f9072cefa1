"""The state of a table as tables and pictures."""

from __future__ import annotations

import pyarrow as pa

from memwal_sql.history import tables as history
from memwal_sql.read import inspect
from memwal_sql.table.handle import TableHandle
from memwal_sql.view.collect import overview
from memwal_sql.view.overview import Overview


class ShownTable(TableHandle):
    """Regions, generations, write-ahead logs and indexes, for people."""

    def regions(self) -> pa.Table:
        """One row per region: its values, epoch, positions and generations."""
        self._check_present("show the present")
        return inspect.regions(self._tracker.latest(), self._collector.registry)

    def generations(self) -> pa.Table:
        """One row per generation in memory or in files of its own, including merged ones."""
        self._check_present("show the present")
        return inspect.generations(self._tracker.latest(), self._collector.registry)

    def wal(self) -> pa.Table:
        """One row per stored WAL entry, by region and position. `kind` is `rows`, `fence` (of a
        claim) or `read` (a transaction has read the region). `transaction` is the id of the one
        that wrote the entry, and `verdict` is `committed`, `aborted` or `undecided`; null for
        others."""
        self._check_present("show the present")
        return inspect.wal(self._context, self._tracker.latest(), self._collector.registry)

    def indexes(self) -> pa.Table:
        """One row per index of the base table."""
        base = self._collector.latest()
        return inspect.indexes(base)

    def history(self) -> pa.Table:
        """One row per base version that exists, ascending: `version`, `timestamp`, Lance's
        `operation`, rows, files and bytes of the base, the number of recorded regions (null: no
        record), and its tags."""
        self._check_present("show the present")
        return history.history(self._context, self._tracker.latest())

    def snapshots(self) -> pa.Table:
        """One row per name of a past state: `name`, `kind` (`checkpoint` or `tag`), base `version`,
        `created`, `expires`."""
        self._check_present("show the present")
        return history.snapshots(self._context, self._tracker.latest())

    def files(self) -> pa.Table:
        """One row per file that holds current rows: `kind` (`base`, `deletion`, `generation`,
        `wal`), `region_id`, `number` of the fragment, generation or entry, `path` in the table's
        folder, `bytes`, where known."""
        self._check_present("show the present")
        return history.files(self._context, self._tracker.latest(), self._collector.registry)

    def overview(self) -> Overview:
        """The table's tree as numbers: regions, generations, sizes, merge and index progress; a
        handle on a version shows those recorded in it."""
        base = self._collector.latest()
        return overview(self._context, base, self._collector.registry, pinned=self._pinned)

    def __rich__(self) -> Overview:
        return self.overview()

    def _repr_html_(self) -> str:
        return self.overview()._repr_html_()

    def __repr__(self) -> str:
        key = ", ".join(self.primary_key)
        return f"Table({self.uri!r}, version={self.version}, primary_key=[{key}])"
