"""The time by the clock of a store.

The times of objects are the store's, which may be another than this machine's: what is old is
decided against an object that was just put.
"""

from __future__ import annotations

from uuid import uuid4

from memwal_sql.life_log import life_log
from memwal_sql.storage.objects.probe import PROBE_FOLDER
from memwal_sql.storage.objects.protocol import ObjectStore

_log = life_log(__name__)

_MOST_OFF = 600.0


def store_time(store: ObjectStore) -> float | None:
    """Seconds since 1970 by the store's clock; None where it has none. Puts an object, lists it and
    deletes it."""
    path = f"{PROBE_FOLDER}/{uuid4().hex}"
    store.put(path, b"")
    try:
        times = [meta.modified for meta in store.list(PROBE_FOLDER) if meta.path == path]
    finally:
        store.delete([path])
    return times[0] if times else None


def now_by_store(store: ObjectStore, machine: float) -> float:
    """The time by the store's clock, or that of this machine, `machine`, where it has none. Logs a
    warning where they are more than ten minutes apart."""
    now = store_time(store)
    if now is None:
        return machine
    off = machine - now
    if abs(off) > _MOST_OFF:
        way = "ahead of" if off > 0 else "behind"
        _log.warning(
            "the clock of this machine is %d minutes %s that of %s, which decides what is old: "
            "set it right",
            round(abs(off) / 60),
            way,
            store.uri,
        )
    return now
