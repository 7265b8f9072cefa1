"""Calls that begin at the same moment."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


def race(*calls: Callable[[], T]) -> list[T]:
    """What the calls return, each made by a thread of its own. Raises what one of them raised."""
    start = Barrier(len(calls))

    def begin(call: Callable[[], T]) -> T:
        start.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(begin, calls))


def contest(lost: type[E], *calls: Callable[[], Any]) -> tuple[list[Any], list[E]]:
    """What the winners return, and what the losers raise, which is an error of kind `lost`."""
    outcomes = race(*(partial(_outcome, lost, call) for call in calls))
    errors = [one for one in outcomes if isinstance(one, lost)]
    return [one for one in outcomes if not isinstance(one, lost)], errors


def _outcome(lost: type[E], call: Callable[[], Any]) -> Any:
    try:
        return call()
    except lost as error:
        return error
