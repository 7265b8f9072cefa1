"""The state of a table handle: its place, its base table and its regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from exec_nodes.node import Node, opened
from memwal_native import LiveAnswers
from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.life_log import life_log
from memwal_sql.read.live.image import TableImage
from memwal_sql.read.pinned import FixedState
from memwal_sql.read.recorded import check_whole
from memwal_sql.read.snapshots import SnapshotCollector
from memwal_sql.state.base_table import BaseTable, BaseTracker, load_base
from memwal_sql.state.context import TableContext
from memwal_sql.state.open_writers import OpenTable
from memwal_sql.storage.base.indexes import IndexRecipe
from memwal_sql.storage.region.manifest import RegionManifest
from planner.model import Planner, Snapshot, TableInfo
from planner.predicates.expr import Predicate

if TYPE_CHECKING:
    from memwal_sql.maintain.unflushed import Fences

_log = life_log(__name__)


class TableHandle:
    """What every method of a table works on. The files of this folder have one subject each, as
    functions of a handle.

    Attributes:
        context: the place, the store and the identity of the table.
        tracker: the newest base version that the handle has read, or the one that it stays at.
        collector: takes snapshots of the table.
        kept_writer: the writer that statements opened, if there is one.
        kept_writer_lock: guards it.
        fences: the fences of logs that were looked at for unflushed rows.
    """

    def __init__(
        self,
        context: TableContext,
        base: BaseTable,
        *,
        pinned: bool = False,
        fixed: FixedState | None = None,
        moment: Mapping[str, Any] | None = None,
    ) -> None:
        """`base` is the version to begin with, or to stay at if it is `pinned`: with the region
        states recorded in it, or with a `fixed` one. `moment` has the arguments that opened a past
        state."""
        self.context = context
        self._moment = moment or {}
        self._pinned = pinned
        self._fixed = fixed
        self.tracker = BaseTracker(context, base)
        if pinned and fixed is None:
            check_whole(context, base)
        self._image = None if pinned else TableImage(context, self.tracker)
        live = None if self._image is None else self._image.of
        self.collector = SnapshotCollector(
            context, self.tracker, pinned=pinned, fixed=fixed, live=live
        )
        self.kept_writer: OpenTable | None = None
        self.kept_writer_lock = Lock()
        self.fences: Fences = {}

    @property
    def uri(self) -> str:
        """The location of the table."""
        return self.context.uri

    @property
    def answers(self) -> LiveAnswers | None:
        """Answers from live rows, of strong reads; None for a past state and in a transaction."""
        return None if self._pinned or self._image is None else self._image.answers

    @property
    def opened_with(self) -> dict[str, Any]:
        """The arguments of `open_table` that open another handle like this one, secrets too."""
        options = self.context.storage_options
        return {"uri": self.uri, "storage_options": options, **self._moment}

    @property
    def newest_of(self) -> tuple[str, str] | None:
        """Identifies the table whose newest state this handle reads, even among tables at the same
        location; None for a past state."""
        return None if self._pinned else self.context.identity

    @property
    def schema(self) -> pa.Schema:
        """The columns, in the base table's order."""
        return self.tracker.loaded.info.schema

    @property
    def field_ids(self) -> Mapping[str, int]:
        """The ids of the columns by name: a later column of a name has another one."""
        return self.tracker.loaded.info.field_ids

    @property
    def stored_schema(self) -> pa.Schema:
        """The columns with their field ids, an `entry_schema`."""
        return self.tracker.loaded.stored

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key's columns, in key order."""
        return self.tracker.loaded.info.primary_key

    @property
    def info(self) -> TableInfo:
        """The columns, the primary key and the region specs."""
        return self.tracker.loaded.info

    @property
    def version(self) -> int:
        """The newest base version that this handle has read."""
        return self.tracker.loaded.version

    @property
    def reads_base_alone(self) -> bool:
        """Whether this handle reads a version without recorded region states (see
        `snapshot_regions`), and so only sees rows that had been merged by then."""
        return self._pinned and self.collector.reads_base_alone

    def refresh(self) -> None:
        """Read the newest version, as every read and write does, and take `schema`, `info` and
        `version` from it. Raises ReopenError if another table is at this location now."""
        self.collector.versions.refresh()

    def catch_up(self) -> None:
        """Read the newest base version from now on.

        After merges and index commits, queries may go on reading the previous version for a moment.
        It shows the same rows, together with the merged generations.
        """
        self.collector.versions.catch_up()

    def snapshot(self, consistency: str = "strong", filters: Sequence[Predicate] = ()) -> Snapshot:
        """An immutable, consistent state of the table; see `SnapshotCollector.collect`."""
        return self.collector.collect(consistency, filters)

    def planned(
        self, planner: Planner, consistency: str = "strong", filters: Sequence[Predicate] = ()
    ) -> Node:
        """The plan of a query over a snapshot of its own, with all sources open, and with the base
        version that queries read; for `filters`, see `snapshot`."""

        def planned(base: BaseTable) -> Node:
            snapshot = self.collector.snapshot(base, consistency, filters, planner)
            return opened(planner(snapshot))

        return self.collector.query(consistency, planned)

    def afterwards(self, what: str, call: Callable[[], object]) -> None:
        """Make a call that follows a finished change. Its errors are logged, as later reads and
        jobs make up for it."""
        try:
            call()
        except (MemWalError, OSError) as error:
            _log.warning("%s: %s is left for later: %s", self.uri, what, type(error).__name__)

    def base_of(self, version: int) -> BaseTable:
        """The base version of a snapshot that was just taken."""
        base = self.tracker.loaded
        if base.version != version:
            dataset = base.dataset.checkout_version(version)
            base = load_base(self.context, dataset, base.info)
        return base

    def manifests(self) -> list[RegionManifest]:
        """The current manifests of all regions."""
        return [
            region.refresh() for region in self.collector.registry.regions(self.tracker.latest())
        ]

    def index_recipes(self) -> Sequence[IndexRecipe]:
        """What generations need to build the indexes of the newest base version."""
        return self.tracker.latest().indexes.recipes()

    def check_present(self, what: str) -> None:
        """Raise InvalidCallError for a handle on a past state."""
        if self._pinned:
            raise InvalidCallError(
                f"this handle reads version {self.version}, and can't {what}: use open_table(uri) "
                "without a version"
            )

    def check_writable(self, what: str) -> None:
        """As `check_present`; also raises UnknownFormatError if this package is too old to
        write."""
        self.check_present(what)
        self.context.check_writes()

    def close(self) -> None:
        """Close the writer that statements opened, if there is one."""
        with self.kept_writer_lock:
            writer, self.kept_writer = self.kept_writer, None
        if writer is not None:
            writer.close()


def named_columns(columns: Sequence[str] | None, schema: pa.Schema) -> tuple[str, ...]:
    """The columns that a caller names, by default all of `schema`. Raises InvalidCallError for
    unknown names, and for one that is given twice."""
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
