"""Finds out who won a put-if-absent, by reading back (protocol rule 3).

A store's "exists" may be an answer to our own request that was sent twice, or about nothing that
landed; a timeout may have landed. Bytes that carry a random nonce tell. On a local disk they tell
what is there, and not that it stays: what could not be synced is synced again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from memwal_sql.errors import (
    InvalidCallError,
    NotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
    UnsupportedError,
)
from memwal_sql.storage.objects.probe import check_put_if_absent
from memwal_sql.storage.objects.protocol import ObjectStore
from memwal_sql.storage.retries import with_retries

ATTEMPTS = 4  # callers of writers wait meanwhile
# Each says that nothing was written, which holds only for the request that it answers.
_REFUSALS = (StoreUnavailableError, InvalidCallError, UnsupportedError)


def settle_put(
    store: ObjectStore,
    path: str,
    data: bytes,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> bytes | None:
    """Create `path` with `data`, which carries a nonce.

    None when it landed, else the bytes of whoever was first. Raises `OutcomeUnknownError` when
    neither could be found out, `StoreUnavailableError` or `InvalidCallError`, as the store said,
    when nothing was written for certain; `UnsupportedError` is that it can't put if absent.
    """
    check_put_if_absent(store)
    maybe_written = False
    last: Exception | None = None

    def put() -> bytes | None:
        nonlocal maybe_written, last
        try:
            if store.put_if_absent(path, data):
                return None
        except OutcomeUnknownError as error:
            maybe_written, last = True, error
        except _REFUSALS as error:
            if not maybe_written:
                raise
            last = error
        try:
            stored = store.get(path)
            if maybe_written and stored == data:
                store.sync(path)  # a disk may show what it could not sync
        except NotFoundError as error:
            last = last or error
        except (OutcomeUnknownError, *_REFUSALS) as error:
            maybe_written, last = True, error
        else:
            return None if stored == data else stored
        raise OutcomeUnknownError(
            f"{path}: could not find out in {ATTEMPTS} attempts whether it was written; try again, "
            f"which finds out: {last}"
        ) from last

    return with_retries(put, path, on=OutcomeUnknownError, attempts=ATTEMPTS, sleep=sleep)
