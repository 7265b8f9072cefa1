"""Trying whether a store puts if absent, before anything rests on it.

A store that takes no notice of the condition answers "created" to two writers, and the second one's
object replaces the first's: rows are lost without a word. Stores differ in it by version and by
setting, so each is tried once a process, before the process first decides something there: two
puts of a fresh name and a delete. A reader decides nothing. Whether the store keeps its word in a
race is not tried.
"""

from __future__ import annotations

import contextlib
from threading import Lock
from uuid import uuid4

from memwal_sql.errors import MemWalError, OutcomeUnknownError, StoreUnavailableError
from memwal_sql.life_log import life_log
from memwal_sql.storage.objects.errors import no_put_if_absent
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.paths import RECORD_FOLDER

_log = life_log(__name__)

PROBE_FOLDER = f"{RECORD_FOLDER}/probe"
"""Where an object is for a moment that asks something of the store; one left behind is garbage."""

_ATTEMPTS = 3

_proven: set[str] = set()
_locks: dict[str, Lock] = {}


def check_put_if_absent(store: ObjectStore) -> None:
    """Raise UnsupportedError where `store` can't put if absent, naming the way out.

    Asks once a process and place, and only stores that say for which `service` an answer holds.
    Raises StoreUnavailableError when the store can't be reached.
    """
    service = store.service
    if service is None or service in _proven:
        return
    with _locks.setdefault(service, Lock()):
        if service not in _proven:
            _probe(store)
            _proven.add(service)


def _probe(store: ObjectStore) -> None:
    for _ in range(_ATTEMPTS):
        path = f"{PROBE_FOLDER}/{uuid4().hex}"
        try:
            # A name that is taken from the start was taken by a request of ours that was sent
            # twice, or is not taken at all: this tells nothing.
            first = store.put_if_absent(path, b"first")
            second = store.put_if_absent(path, b"second")
        except OutcomeUnknownError as error:
            # Nothing but the probe was written.
            raise StoreUnavailableError(f"{error}; try again") from error
        finally:
            with contextlib.suppress(MemWalError):
                store.delete([path])
        if not second:
            _log.debug("%s puts if absent", store.uri)
            return
        if first:
            raise no_put_if_absent(store.uri, "it created one object twice")
    raise StoreUnavailableError(
        f"{store.uri}: could not find out whether it can put if absent; try again"
    )
