"""Leaf requests on threads that stay."""

from __future__ import annotations

import os
import threading
from threading import Event

import pytest

from exec_nodes.base.tasks import in_background, map_concurrently
from tests.model.waiting import LONGEST_SECONDS, eventually
from tests.program import run


def test_results_come_in_order_and_several_calls_are_under_way_at_once() -> None:
    both = threading.Barrier(2, timeout=LONGEST_SECONDS)

    def call(number: int) -> int:
        both.wait()
        return number * number

    assert map_concurrently(call, [3, 4]) == [9, 16]
    assert map_concurrently(lambda number: number + 1, [1]) == [2]
    assert map_concurrently(lambda number: number, []) == []


def test_the_first_error_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        map_concurrently(lambda number: 1 // number, [1, 0, 2])


def test_background_work_may_have_several_calls_under_way() -> None:
    """As many of it as there could be threads for both: none would be left for its calls."""
    done: list[list[int]] = []
    for _ in range(32):
        in_background(lambda: done.append(map_concurrently(lambda number: number, range(4))))
    eventually(lambda: len(done) == 32)
    assert done == [[0, 1, 2, 3]] * 32


def test_a_thread_that_outlives_the_main_one_does_its_work_itself() -> None:
    """Python starts no work on a pool's threads any more then."""
    code = """
import threading
from exec_nodes.base.tasks import map_concurrently, in_background
def work():
    threading.main_thread().join()
    print(map_concurrently(lambda number: number + 1, [1, 2]), in_background(print))
assert in_background(lambda: None)
threading.Thread(target=work).start()
"""
    done = run("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2, 3] False\n", "")


# Lance warns of every fork of a process that has used it.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_threads_stay_and_a_forked_child_has_its_own() -> None:
    names = {name for _ in range(50) for name in map_concurrently(_thread_name, range(64))}
    assert len(names) <= 32  # some are about to be idle
    assert names <= {thread.name for thread in threading.enumerate()}
    child = os.fork()
    if child == 0:
        os._exit(0 if map_concurrently(lambda number: number, [1, 2]) == [1, 2] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _thread_name(_: int) -> str:
    return threading.current_thread().name


def test_calls_that_take_long_are_made_one_by_one_and_keep_no_other_waiting() -> None:
    done: list[str] = []
    go_on, others, last = Event(), Event(), Event()

    def takes_long() -> None:
        go_on.wait(60)
        done.append("long")

    for _ in range(3):
        in_background(takes_long, is_long=True)
    in_background(lambda: done.append("next") or last.set(), is_long=True)  # type: ignore[func-returns-value]
    in_background(others.set)
    assert others.wait(60) and not done
    go_on.set()
    assert last.wait(60) and done == ["long", "long", "long", "next"]
