"""An image of a table: its live rows in memory, one a key, and what it has taken in."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from threading import Lock

import pyarrow as pa

from exec_nodes.base.tasks import in_background
from exec_nodes.lance.scan import row_bytes
from exec_nodes.resident.admission import Admission
from exec_nodes.resident.store import STORE
from memwal_native import LiveAnswers, LiveImage
from memwal_sql.errors import MemWalError
from memwal_sql.life_log import life_log
from memwal_sql.read.closed import ClosedRead, OlderReadError, TableRead
from memwal_sql.read.live.advance import advance_of, closed_regions
from memwal_sql.read.live.kept import KeptImage, too_large
from memwal_sql.read.live.questions import questions_of
from memwal_sql.read.live.settings import LIVE_ROWS, Live
from memwal_sql.read.live.state import LiveState
from memwal_sql.read.live.taken import ClosedRegion, ImageLostError, Taken, taken_region
from memwal_sql.read.region import StaleBaseError
from memwal_sql.state.base_table import BaseTracker
from memwal_sql.state.context import TableContext
from planner.model import LiveTable, Snapshot, TableInfo

_log = life_log(__name__)
_UNPAID = "queries have read too little of it so far"


@dataclass(slots=True)
class _Origin:
    """A closed look, from which an image or some columns can be made, and the `regions` in it.
    `state` is that of the image whose rows it has, if there is one; `whole` looks at all regions.
    """

    closed: ClosedRead
    regions: Sequence[ClosedRegion]
    whole: Callable[[], ClosedRead]
    state: object

    @property
    def snapshot(self) -> Snapshot:
        return self.closed.snapshot

    @property
    def pruned(self) -> int:
        return self.closed.read.pruned

    def has_rows_of(self, state: Taken) -> bool:
        """Whether it has all rows of an image in a state. A look at the region of a key may not
        know of other regions."""
        return state is self.state and len(self.regions) == len(state.regions)


class TableImage:
    """The live rows of one table handle, if it has them.

    Looks are taken in one after the other, each only if it has all that was taken in of its
    regions: so the rows are of the look's own state then. What an image has is always a closed
    state: the union of two closed states is one, too, so each transaction is whole in it or not
    there.

    An image is made, and a column loaded, once queries that lacked it have read so much that it
    pays (`Live`).
    """

    def __init__(self, context: TableContext, tracker: BaseTracker) -> None:
        self._context = context
        self._tracker = tracker
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self.answers = LiveAnswers()
        self._lock = Lock()
        self._image: KeptImage | None = None
        self._is_busy = self._is_small = False
        self._failures = self._pruned_looks = 0
        self._queries = {"live": 0, "general": 0}
        self._reason = _UNPAID

    def of(self, closed: ClosedRead, whole: Callable[[], ClosedRead]) -> LiveTable | None:
        """The live rows of the snapshot that was made of a closed look, or a place to note what
        queries lack; None where no rows are to be kept. `whole` looks at all regions. Raises
        OlderReadError."""
        if not LIVE_ROWS.are_on:
            return None
        if self._image is None:
            rows, is_all = _row_count(closed)
            self._is_small = is_all and rows < Live.least_rows
            if rows < Live.least_rows:
                return None
        self._check_process()
        regions = closed_regions(closed)
        live, state = self._take_in(closed.read, regions)
        if state is not None and self._is_whole_due(closed.read, state):
            every = whole()
            self._take_in(every.read, closed_regions(every))
        note = partial(self._note, _Origin(closed, regions, whole, state))
        return LiveTable(live, state, note, bool(Live.checked))

    def state(self) -> LiveState:
        """Whether there are live rows, and why not."""
        if not LIVE_ROWS.are_on:
            return LiveState("off")
        self._check_process()
        with self._lock:
            image, queries = self._image, dict(self._queries)
            queries["live"] += self.answers.count
            live = None if image is None else image.live
            if image is None or live is None:
                reason = self._reason if image is None else image.reason
                if image is None and self._is_small:
                    reason = f"tables of fewer than {Live.least_rows} rows are quick anyway"
                state = "loading" if self._is_busy else "none"
                return LiveState(state, queries=queries, reason=reason)
            taken: Taken = live.state
            names = taken.base.info.schema.names
            of_keys, of_columns, of_log = live.nbytes
            return LiveState(
                "loading" if self._is_busy else "live",
                len(live),
                tuple(name for column, name in enumerate(names) if live.has(column)),
                of_keys + sum(of_columns.values()) + of_log,
                queries,
                self._reason,
                {names[column]: reason for column, reason in image.refused.items()},
            )

    def _take_in(
        self, read: TableRead, regions: Sequence[ClosedRegion]
    ) -> tuple[LiveImage | None, Taken | None]:
        """Add what a closed look has read to the live rows; these, and their new state. Leaves the
        questions of the next look, if native code can ask them."""
        with self._lock:
            live = self._advance(read, regions)
            state: Taken | None = None if live is None else live.state
        if live is not None and state is not None and not Live.checked:
            asked = questions_of(self._context, self._tracker, read, state)
            if asked is not None:
                self.answers.leave(live, state, asked)
        return live, state

    def _is_whole_due(self, read: TableRead, state: Taken) -> bool:
        """Whether to look at all regions, after a look at those of a key: native code can then find
        out for all of them that nothing is new. After as many looks as there are regions, so that
        those at all regions cost no more than the others, beside writes too."""
        if not read.pruned or self._context.store.remote or len(state.regions) > Live.looked:
            return False
        self._pruned_looks += 1
        is_due = self._pruned_looks >= len(state.regions)
        if is_due:
            self._pruned_looks = 0
        return is_due

    def _check_process(self) -> None:
        """Begin anew in a fork: it has no other threads, and locks that they held stay locked."""
        if self._pid != os.getpid():
            self._begin()

    def _advance(self, read: TableRead, regions: Sequence[ClosedRegion]) -> LiveImage | None:
        """The live rows with all that a closed look has read. Where they can't have it, they are
        dropped."""
        image = self._image
        live = None if image is None else image.live
        if image is None or live is None:
            self._drop("" if image is None else image.reason)
            return None
        try:
            before: Taken = live.state
            changes, taken = advance_of(self._tracker, before, read, regions, len(live))
            if changes or taken != before:
                live.apply(changes, taken)
            if changes:
                image.note_sizes()
        except ImageLostError as error:
            self._drop(str(error))
            return None
        except OlderReadError:
            raise
        except BaseException:
            self._drop("an error or an interrupt came while rows were taken in")
            raise
        return image.live

    def _drop(self, reason: str) -> None:
        image, self._image = self._image, None
        if image is not None:
            image.drop(reason)
            self._reason = reason
            _log.debug("%s: live rows are dropped: %s", self._context.uri, reason)

    def _note(self, origin: _Origin, columns: Sequence[int], is_whole: bool, is_live: bool) -> None:
        """Note a query: see `LiveTable`."""
        with self._lock:
            image = self._image
            self._queries["live" if is_live else "general"] += 1
            if is_live:
                if image is not None:
                    image.note_use(columns)
                return
            if self._is_busy:
                return
            live = None if image is None else image.live
            if image is None or live is None:
                work = self._build_for(origin, columns, is_whole)
            else:
                work = self._load_for(image, live, origin, columns, is_whole)
            if work is None:
                return
            self._is_busy = True
        if Live.waited:
            self._run(work)
        elif not in_background(partial(self._run, work), is_long=True):
            self._is_busy = False

    def _build_for(
        self, origin: _Origin, columns: Sequence[int], is_whole: bool
    ) -> Callable[[], None] | None:
        """What makes an image, if it is to be made."""
        info, (rows, _) = origin.snapshot.info, _row_count(origin.closed)
        cost = rows * (Live.key_bytes + _row_bytes(info, columns))
        if len(origin.regions) + origin.pruned > Live.regions:
            self._reason = f"the table has more than {Live.regions} regions"
        elif cost > Live.budget * STORE.max_bytes or rows * Live.key_bytes > STORE.largest:
            self._reason = too_large()
        elif self._pays(info, rows, columns, is_whole, cost):
            return partial(self._build, origin, columns)
        return None

    def _load_for(
        self,
        image: KeptImage,
        live: LiveImage,
        origin: _Origin,
        columns: Sequence[int],
        is_whole: bool,
    ) -> Callable[[], None] | None:
        """What loads the columns that the image lacks, if they are to be loaded."""
        lacking = [column for column in columns if not live.has(column)]
        new = [column for column in lacking if column not in image.refused]
        if not new or len(new) < len(lacking):
            return None
        rows, info = len(live), origin.snapshot.info
        cost = rows * _row_bytes(info, new)
        of_keys, of_columns, of_log = live.nbytes
        room = Live.budget * STORE.max_bytes - of_keys - sum(of_columns.values()) - of_log
        if cost > room:
            image.refused |= dict.fromkeys(new, too_large())
        elif self._pays(info, rows, columns, is_whole, cost, tuple(new)):
            return partial(self._load, image, live, new, origin)
        return None

    def _pays(
        self,
        info: TableInfo,
        rows: int,
        columns: Sequence[int],
        is_whole: bool,
        cost: int,
        detail: Hashable = None,
    ) -> bool:
        if Live.waited:
            return True
        numbers = columns or [info.schema.get_field_index(name) for name in info.primary_key]
        saved = rows * _row_bytes(info, numbers) if is_whole else Admission.lookup
        key = self._context.scope.key("live rows", detail)
        # What can't be made now may be possible later, but is not tried at every turn.
        return STORE.pays(key, saved, int(Live.reads * cost) << min(self._failures, 32))

    def _run(self, work: Callable[[], None]) -> None:
        try:
            with suppress(OlderReadError):  # the next query tries again
                work()
        except (ImageLostError, MemWalError, StaleBaseError) as error:
            self._reason = str(error)
            self._failures += 1
        finally:
            self._is_busy = False

    def _build(self, origin: _Origin, columns: Sequence[int]) -> None:
        """Have the live rows of the snapshot that was made of a closed look, or of one at all
        regions."""
        if origin.pruned:
            closed = origin.whole()
            origin = _Origin(closed, closed_regions(closed), origin.whole, None)
        base, info = origin.closed.read.base, origin.snapshot.info
        schema, key = info.schema, info.primary_key
        regions = {region.reader.region_id: taken_region(region, None) for region in origin.regions}
        place = schema.get_field_index(key[0]) if len(key) == 1 else None
        taken = Taken(base, base.version, base.found, regions, origin.closed.read.lost)
        live = LiveImage(schema, place, taken)
        live.reserve(_row_count(origin.closed)[0])
        image = KeptImage(live)
        own = image.admit(columns, schema)
        image.refused |= _read(live, own, origin.snapshot, is_new=True)
        with self._lock:
            if not LIVE_ROWS.are_on:
                raise ImageLostError("live rows were switched off meanwhile")
            self._image, self._reason, origin.state = image, "", taken
            image.keep()
        self._failures = 0 if image.live is not None else self._failures + 1
        _log.debug("%s: %d rows are live", self._context.uri, len(live))

    def _load(self, image: KeptImage, live: LiveImage, new: Sequence[int], origin: _Origin) -> None:
        """Let an image have new columns. What is too large is not tried again."""
        columns = list[int]()
        try:
            columns, snapshot = self._admitted(image, live, new, origin)
            if not columns:
                return
            image.refused |= _read(live, columns, snapshot, is_new=False)
            with self._lock:
                live.loaded(columns)
                image.note_sizes(columns)
            evicted = [column for column in columns if not live.has(column)]
            image.refused = dict.fromkeys(evicted, too_large()) | image.refused
        except ImageLostError as error:
            image.refused |= dict.fromkeys(columns, str(error))
        finally:
            for column in columns:
                if not live.has(column):
                    live.evict(column)

    def _admitted(
        self, image: KeptImage, live: LiveImage, new: Sequence[int], origin: _Origin
    ) -> tuple[list[int], Snapshot]:
        """The columns that can be loaded, admitted now, and a snapshot with just the rows that the
        image has now: that of the query, or else of a look at all regions."""
        with self._lock:
            if origin.has_rows_of(live.state):
                return image.admit(new, origin.snapshot.info.schema), origin.snapshot
        closed = origin.whole()
        with self._lock:
            if self._image is image and self._advance(closed.read, closed_regions(closed)) is live:
                return image.admit(new, closed.snapshot.info.schema), closed.snapshot
        return [], closed.snapshot


def _row_count(closed: ClosedRead) -> tuple[int, bool]:
    """About how many rows the table has, from those that filters leave in sources that are open;
    and whether all are."""
    base, regions = closed.snapshot.base, closed.snapshot.regions
    every = [source for region in regions for source in region.sources]
    sources = [source for source in every if source.ready]
    rows, is_all = sum([source.rows for source in sources]), len(sources) == len(every)
    if closed.read.pruned and regions:
        rows = rows * (len(regions) + closed.read.pruned) // len(regions)
    if base is None:
        return rows, is_all
    return (rows + base.rows, is_all) if base.ready else (rows, False)


def _row_bytes(info: TableInfo, columns: Sequence[int]) -> int:
    return row_bytes(pa.schema([info.schema.field(column) for column in columns]))


def _read(
    live: LiveImage, columns: Sequence[int], snapshot: Snapshot, *, is_new: bool
) -> dict[int, str]:
    from memwal_sql.read.live.load import load

    return load(live, columns, snapshot, is_new=is_new)
