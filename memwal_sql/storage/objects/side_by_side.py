"""Requests that do not need each other's answers: on a remote store many are under way at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from threading import Lock
from typing import Generic, TypeVar

from exec_nodes.base.tasks import map_in_threads

_MOST = 32
T = TypeVar("T")
R = TypeVar("R")


def side_by_side(remote: bool, call: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """The results of `call` for all items, in their order: one after the other, or each on a thread
    of its own where the store is remote. Raises the first error, once none is under way any more.

    `call` may use it itself, as its threads are nobody else's.
    """
    return map_in_threads(call, items, _MOST) if remote else [call(item) for item in items]


def beside(remote: bool, call: Callable[[], R], other: Callable[[], object]) -> R:
    """What `call` returns, with `other` called meanwhile, or afterwards where the store is not
    remote. Raises the first error of both."""
    found: list[R] = []
    side_by_side(remote, lambda one: one(), (lambda: found.append(call()), other))
    return found[0]


class SharedCall(Generic[R]):
    """A call without arguments: threads that make it while it is under way share what it returns or
    raises. It may have begun before they asked, so it is for what need not be newer."""

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._under_way: Future[R] | None = None
        self._lock = Lock()

    def __call__(self) -> R:
        """What the call returns that is under way, or else one of its own."""
        with self._lock:
            shared, own = self._under_way, Future[R]()
            if shared is None:
                self._under_way = own
        if shared is not None:
            return shared.result()
        try:
            own.set_result(self._call())
        except BaseException as error:
            own.set_exception(error)
        finally:
            with self._lock:
                self._under_way = None
        return own.result()
