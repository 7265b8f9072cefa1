"""A process may exit while a thread of it still queries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.program import run
from tests.soak import IS_SOAK
from tests.sql import panicking_child
from tests.sql.panicking_child import PLACES, statements

ROOT = Path(__file__).parents[2]
TIMES = 5 if IS_SOAK else 1


def exits(how: str, times: int) -> list[tuple[int, str]]:
    """Exit code and stderr of processes that run side by side."""
    command = [sys.executable, "-m", "tests.sql.exiting_child", how]
    children = [
        subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(times)
    ]
    said = [child.communicate(timeout=120)[1] for child in children]
    return [(child.returncode, text) for child, text in zip(children, said, strict=True)]


def test_a_process_exits_while_daemon_threads_query() -> None:
    """Threads of the native library were attached when the interpreter was torn down: SIGABRT."""
    for code, said in exits("plainly", TIMES):
        assert code == 0 and "Fatal" not in said, said


@pytest.mark.parametrize("how", ["in a fork", "busy, in a fork"])
def test_a_fork_waits_for_its_own_queries_and_no_others(how: str) -> None:
    for code, said in exits(how, TIMES):
        assert code == 0 and "Fatal" not in said, said


def test_a_panic_is_an_error_wherever_a_provider_has_it() -> None:
    done = run("-m", panicking_child.__name__)
    assert done.returncode == 0, done.stderr[-2000:]
    everything = [f"{place}: {sql}" for place in PLACES for sql in statements(place)]
    assert done.stdout.splitlines() == everything


def test_the_end_of_another_interpreter_ends_no_query_of_this_one() -> None:
    [(code, said)] = exits("after another interpreter", 1)
    assert code == 0 and "Fatal" not in said, said
