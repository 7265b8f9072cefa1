"""Who won a put-if-absent: settled by reading back (protocol rule 3).

A store's "exists" may be an answer to our own request that was sent twice, or about nothing that
landed; a timeout may have landed. Bytes that carry a random nonce tell.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from memwal_sql.errors import NotFoundError, OutcomeUnknownError, StoreUnavailableError
from memwal_sql.storage.object_store import ObjectStore

ATTEMPTS = 4
_FIRST_PAUSE_SECONDS = 0.05


def settle_put(
    store: ObjectStore,
    path: str,
    data: bytes,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> bytes | None:
    """Create `path` with `data`, which carries a nonce.

    None when it landed, else the bytes of whoever was first. Raises `OutcomeUnknownError` when
    neither could be found out, and `StoreUnavailableError` when nothing was written for certain.
    """
    maybe_written = False
    last: Exception | None = None
    for attempt in range(ATTEMPTS):
        if attempt:
            sleep(_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        try:
            if store.put_if_absent(path, data):
                return None
        except OutcomeUnknownError as error:
            maybe_written, last = True, error
        except StoreUnavailableError:
            if not maybe_written:
                raise
        try:
            found = store.get(path)
        except NotFoundError as error:
            last = last or error
        except (OutcomeUnknownError, StoreUnavailableError) as error:
            maybe_written, last = True, error
        else:
            return None if found == data else found
    raise OutcomeUnknownError(
        f"{path}: could not find out in {ATTEMPTS} attempts whether it was written"
    ) from last
