"""Threads that end when there is nothing to do."""

from __future__ import annotations

import threading
from unittest.mock import patch

import pytest

from exec_nodes.base.transient_threads import TransientThreads
from tests.model.waiting import eventually


def alive() -> int:
    return sum(one.name == "transient" for one in threading.enumerate())


def test_calls_are_made_in_order_and_the_threads_end() -> None:
    pool, made = TransientThreads(1, "transient"), list[int]()
    futures = [pool.submit(made.append, number) for number in range(100)]
    assert [one.result(60) for one in futures] == [None] * 100
    assert made == list(range(100))
    eventually(lambda: not alive() and not pool.is_busy)
    assert pool.submit(lambda: threading.current_thread().name).result(60) == "transient"


def test_as_many_are_made_at_once_as_there_may_be_threads() -> None:
    pool, together = TransientThreads(3, "transient"), threading.Barrier(3)
    waiting = [pool.submit(together.wait, 60) for _ in range(6)]
    assert alive() <= 3
    pool.shutdown()
    assert sorted(one.result(0) for one in waiting) == [0, 0, 1, 1, 2, 2]
    eventually(lambda: not alive())


def test_what_a_call_raises_is_its_result_and_ends_no_thread() -> None:
    pool = TransientThreads(1, "transient")
    failed, done = pool.submit(lambda: 1 // 0), pool.submit(lambda: 7)
    with pytest.raises(ZeroDivisionError):
        failed.result(60)
    assert done.result(60) == 7


def test_calls_are_made_at_once_where_no_thread_can_be_started() -> None:
    """As at the end of the interpreter."""
    pool = TransientThreads(2, "transient")
    with patch.object(threading.Thread, "start", side_effect=RuntimeError("at shutdown")):
        made = pool.submit(threading.get_ident)
    assert made.done() and made.result() == threading.get_ident()
    pool.shutdown()
