"""What a process keeps, as a test wants it to begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from exec_nodes.resident.store import STORE, ResidentStore


@contextmanager
def another_store(max_bytes: int | None = None) -> Iterator[ResidentStore]:
    """Within the context the store of the process is an empty one, of a budget of its own; what was
    resident is so again afterwards."""
    before = dict(vars(STORE))
    vars(STORE).update(vars(ResidentStore(max_bytes)))
    try:
        yield STORE
    finally:
        vars(STORE).update(before)


def never(call: Callable[[], object]) -> None:
    """For `background_by`: nothing is begun in the background any more."""
    raise RuntimeError("cannot schedule new futures after shutdown")
