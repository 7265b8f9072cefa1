"""Live rows within the memory of the process."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from weakref import ref

import pyarrow as pa

from exec_nodes.resident.store import STORE, Key
from memwal_native import LiveImage
from memwal_sql.read.live.settings import Live

KEYS, COLUMNS, LOG = "live keys", "live columns", "live log"


class KeptImage:
    """Live rows whose keys, columns and log are artefacts of the resident store. If the keys are
    evicted, all rows are dropped; a column goes alone; and all columns take a log in that is.

    The store does not keep them alive: they go with the handle of the table, too.

    Attributes:
        live: the rows, until they are dropped.
        reason: why they were.
        refused: why some columns that queries asked for are not there, by number.
    """

    def __init__(self, live: LiveImage) -> None:
        self.live: LiveImage | None = live
        self.reason = ""
        self.refused: dict[int, str] = {}
        self._owner = ref(self)
        self._columns: frozenset[int] = frozenset()

    def admit(self, columns: Sequence[int], schema: pa.Schema) -> list[int]:
        """Those of some columns that can be loaded; others are refused for their types."""
        live = self.live
        if live is None:
            return []
        for column in columns:
            if not live.admit(column):
                kind = schema.field(column).type
                self.refused[column] = f"columns of type {kind} are not kept"
        return [column for column in columns if column not in self.refused]

    def keep(self) -> None:
        """Have them among the resident artefacts, instead of those of handles that are gone."""
        for kind in (KEYS, COLUMNS, LOG):
            STORE.evict_where(kind, lambda key: key.owners[0]() is None)  # type: ignore[operator]
        if self.live is not None:
            STORE.put(self._key(KEYS), True, self.live.nbytes[0], partial(_evicted, self._owner))
            self.note_sizes(self.live.nbytes[1])

    def note_sizes(self, new: Iterable[int] = ()) -> None:
        """Note what they take by now, and the columns that are `new`."""
        live = self.live
        if live is None:
            return
        self._bound_log(live)
        of_keys, of_columns, _ = live.nbytes
        self._columns = frozenset(of_columns)
        for column in self._columns.intersection(new):
            let_go = partial(_evicted, self._owner, column)
            STORE.put(self._key(COLUMNS, column), True, of_columns.get(column, 0), let_go)
        for column, nbytes in of_columns.items():
            if not STORE.resize(self._key(COLUMNS, column), nbytes) and live.has(column):
                live.evict(column)
        if not STORE.resize(self._key(KEYS), of_keys):
            self.drop("their memory was needed")

    def _bound_log(self, live: LiveImage) -> None:
        of_keys, of_columns, of_log = live.nbytes
        if of_log > max(Live.log, Live.log_share * (of_keys + sum(of_columns.values()))):
            for column in of_columns:
                if not live.has(column):
                    live.evict(column)  # as long as it is loaded, it needs all of the log
            live.settle()
            of_log = live.nbytes[2]
        if not STORE.resize(self._key(LOG), of_log):
            STORE.put(self._key(LOG), True, of_log, partial(_settle, self._owner))

    def note_use(self, columns: Sequence[int]) -> None:
        """Note that a query has read some columns."""
        STORE.get(self._key(KEYS))
        own = [self._key(COLUMNS, column) for column in columns if column in self._columns]
        if own:
            STORE.get_all(own)

    def drop(self, reason: str) -> None:
        """Let them go."""
        if self.live is not None:
            self.live, self.reason = None, reason
        STORE.evict(self._owner)

    def _key(self, kind: str, column: int | None = None) -> Key:
        return Key(kind, (self._owner,), column)


def _evicted(owner: ref[KeptImage], column: int | None = None) -> None:
    image = owner()
    if image is None or image.live is None:
        return
    if column is None:
        image.drop("their memory was needed")
    else:
        image.live.evict(column)


def _settle(owner: ref[KeptImage]) -> None:
    image = owner()
    if image is not None and image.live is not None:
        image.live.settle()


def too_large() -> str:
    """Why an image is not made."""
    return f"it would take more than {Live.budget:.0%} of the memory of {STORE.max_bytes} bytes"
