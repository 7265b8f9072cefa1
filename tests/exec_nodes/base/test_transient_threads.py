"""Calls in their order on a few threads."""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import pytest

from exec_nodes.base import transient_threads
from exec_nodes.base.transient_threads import TransientThreads
from tests.model.waiting import eventually, reached


def test_calls_are_made_in_order_and_the_threads_are_free_then() -> None:
    pool, made = TransientThreads(1, "calls"), list[int]()
    for number in range(100):
        pool.submit(partial(made.append, number))
    eventually(lambda: made == list(range(100)))
    eventually(lambda: not pool.is_busy)


def test_as_many_are_made_at_once_as_there_may_be_threads() -> None:
    pool, together = TransientThreads(3, "calls"), threading.Barrier(3)
    waited: list[int] = []
    for _ in range(6):
        pool.submit(lambda: waited.append(together.wait(60)))
    pool.shutdown()
    assert sorted(waited) == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_interrupted_submit_leaves_no_thread_uncounted(moment: str) -> None:
    """As by Ctrl-C, which comes in the main thread, while a started thread is waited for."""
    pool, may_end, made = TransientThreads(1, "calls"), threading.Event(), list[int]()
    wait = threading.Event.wait

    def interrupted(event: threading.Event, timeout: float | None = None) -> bool:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and moment == "before":
            raise KeyboardInterrupt
        is_set = wait(event, timeout)
        if is_main:
            raise KeyboardInterrupt
        return is_set

    def call() -> None:
        reached(may_end)
        made.append(1)

    with patch.object(threading.Event, "wait", interrupted), suppress(KeyboardInterrupt):
        pool.submit(call)
    assert pool.is_busy
    may_end.set()
    for _ in range(2):
        closing = threading.Thread(target=pool.shutdown, daemon=True)
        closing.start()
        closing.join(10)
        assert not closing.is_alive() and made == [1]
    assert pool._running == 0


def no_threads() -> Any:
    """As at the end of the interpreter."""
    return patch.object(transient_threads, "start_call", side_effect=RuntimeError("at shutdown"))


def test_calls_wait_for_who_has_no_lock_where_no_thread_can_be_started() -> None:
    """Each of two regions' threads, with its own lock, would take the call that needs the other."""
    pool, made = TransientThreads(2, "calls"), list[int]()
    for number, make in enumerate((pool.make_queued, pool.shutdown)):
        with no_threads():
            pool.submit(partial(made.append, number))
            assert len(made) == number and not pool.is_busy
            make()
        assert made == [*range(number + 1)]
    pool.submit(partial(made.append, 2))
    pool.shutdown()
    assert made == [0, 1, 2]
