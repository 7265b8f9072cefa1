"""The base of every part of a table handle: its place, its base table and its regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

import pyarrow as pa

from exec_nodes.node import Node
from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.life_log import life_log
from memwal_sql.maintain.unflushed import Fences
from memwal_sql.read.live.image import TableImage
from memwal_sql.read.pinned import PinnedSnapshot
from memwal_sql.read.planning import Planner, opened
from memwal_sql.read.recorded import check_whole
from memwal_sql.read.snapshots import SnapshotCollector
from memwal_sql.state.base_table import BaseTable, BaseTracker, load_base
from memwal_sql.state.context import TableContext
from memwal_sql.state.open_writers import OpenTable
from memwal_sql.storage.base.indexes import IndexRecipe
from planner.model import Snapshot, TableInfo
from planner.predicates.expr import Predicate

_log = life_log(__name__)


class TableHandle:
    """The state of a handle, and its reads."""

    def __init__(
        self,
        context: TableContext,
        dataset: Any,
        *,
        pinned: bool = False,
        past: Callable[[BaseTable], PinnedSnapshot] | None = None,
    ) -> None:
        """`past` gives the region states to read over a pinned base version; None: those recorded
        in it."""
        self._context = context
        self._moment: dict[str, Any] = {}  # the arguments that opened a past state
        self._pinned = pinned
        self._tracker = BaseTracker(context, dataset)
        if pinned and past is None:
            check_whole(context, self._tracker.loaded)
        snapshot = None if past is None else past(self._tracker.loaded)
        live = None if pinned else TableImage(context, self._tracker)
        self._collector = SnapshotCollector(
            context, self._tracker, pinned=pinned, checkpoint=snapshot, live=live
        )
        self._insert_writer: OpenTable | None = None
        self._insert_lock = Lock()
        self._fences: Fences = {}

    @property
    def uri(self) -> str:
        """The location of the table."""
        return self._context.uri

    @property
    def context(self) -> TableContext:
        """The place, the store and the identity of the table."""
        return self._context

    @property
    def collector(self) -> SnapshotCollector:
        """Takes snapshots of the table."""
        return self._collector

    @property
    def opened_with(self) -> dict[str, Any]:
        """The arguments of `open_table` that open another handle like this one, secrets too."""
        options = self._context.storage_options
        return {"uri": self.uri, "storage_options": options, **self._moment}

    @property
    def newest_of(self) -> tuple[str, str] | None:
        """Identifies the table whose newest state this handle reads, even among tables at the same
        location; None for a past state."""
        return None if self._pinned else self._context.identity

    @property
    def schema(self) -> pa.Schema:
        """The columns, in the base table's order."""
        return self._tracker.loaded.info.schema

    @property
    def field_ids(self) -> Mapping[str, int]:
        """The ids of the columns by name: a later column of a name has another one."""
        return self._tracker.loaded.info.field_ids

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns with their field ids, an `entry_schema`."""
        return self._tracker.loaded.stored

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key's columns, in key order."""
        return self._tracker.loaded.info.primary_key

    @property
    def info(self) -> TableInfo:
        """The columns, the primary key and the region specs."""
        return self._tracker.loaded.info

    @property
    def version(self) -> int:
        """The newest base version that this handle has read."""
        return self._tracker.loaded.version

    @property
    def reads_base_alone(self) -> bool:
        """Whether this handle reads a version without recorded region states (see
        `snapshot_regions`), and so only sees rows that had been merged by then."""
        return self._pinned and self._collector.reads_base_alone

    def refresh(self) -> None:
        """Read the newest version, as every read and write does, and take `schema`, `info` and
        `version` from it. Raises ReopenError if another table is at this location now."""
        self._collector.refresh()

    def catch_up(self) -> None:
        """Read the newest base version from now on.

        After merges and index commits, queries may go on reading the previous version for a moment.
        It shows the same rows, together with the merged generations.
        """
        self._collector.catch_up()

    def snapshot(self, consistency: str = "strong", filters: Sequence[Predicate] = ()) -> Snapshot:
        """An immutable, consistent state of the table; see `SnapshotCollector.collect`."""
        return self._collector.collect(consistency, filters)

    def planned(
        self, planner: Planner, consistency: str = "strong", filters: Sequence[Predicate] = ()
    ) -> Node:
        """The plan of a query over a snapshot of its own, with all sources open, and with the base
        version that queries read; for `filters`, see `snapshot`."""

        def planned(base: BaseTable) -> Node:
            snapshot = self._collector.snapshot(base, consistency, filters, planner)
            return opened(planner(snapshot))

        return self._collector.query(consistency, planned)

    def _afterwards(self, what: str, call: Callable[[], object]) -> None:
        """Make a call that follows a finished change. Its errors are logged, as later reads and
        jobs make up for it."""
        try:
            call()
        except (MemWalError, OSError) as error:
            _log.warning("%s: %s is left for later: %s", self.uri, what, type(error).__name__)

    def _base_of(self, version: int) -> BaseTable:
        """The base version of a snapshot that was just taken."""
        base = self._tracker.loaded
        if base.version != version:
            dataset = base.dataset.checkout_version(version)
            base = load_base(self._context, dataset, base.info)
        return base

    def _index_recipes(self) -> Sequence[IndexRecipe]:
        return self._tracker.latest().indexes.recipes()

    def _check_present(self, what: str) -> None:
        if self._pinned:
            raise InvalidCallError(
                f"this handle reads version {self.version}, and can't {what}: use open_table(uri) "
                "without a version"
            )

    def _check_writable(self, what: str) -> None:
        """As `_check_present`; also raises UnknownFormatError if this package is too old to
        write."""
        self._check_present(what)
        self._context.check_writes()

    def _columns(self, columns: Sequence[str] | None, schema: pa.Schema) -> tuple[str, ...]:
        names = schema.names
        if columns is None:
            return tuple(names)
        if isinstance(columns, str):
            raise InvalidCallError(f"columns={columns!r} must be a list: [{columns!r}]")
        if not isinstance(columns, Iterable):
            raise InvalidCallError(f"columns={columns!r} must be a list of names")
        unknown = [name for name in columns if name not in names]
        if unknown:
            raise InvalidCallError(f"unknown columns {unknown}; the table has {names}")
        if len(set(columns)) != len(columns):
            raise InvalidCallError(f"columns={list(columns)} names a column twice")
        return tuple(columns)
