"""What a job asks of the system, so that it gives way to readers."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from memwal_sql.cli import priority
from memwal_sql.cli.priority import THREADS_VARIABLE, give_way


@pytest.mark.parametrize("chosen", [None, "1"])
@pytest.mark.parametrize("processors", [1, 2, 3, 8])
def test_a_job_takes_half_of_the_processors_and_a_lower_priority(
    monkeypatch: pytest.MonkeyPatch, processors: int, chosen: str | None
) -> None:
    """Unless somebody says how many threads. Linux is to decide often who runs: the threads that
    see to it come before the priority is lowered, so that they keep that of readers."""
    own = set(range(10, 10 + processors))
    asked: list[Any] = []

    def nice(by: int) -> int:
        asked.append(("nice", by))
        return 7

    def limit(process: int, to: list[int]) -> None:
        asked.append(("limit", process, list(to)))

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: own, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", limit, raising=False)
    monkeypatch.setattr(os, "nice", nice)
    monkeypatch.setattr(priority, "take_turns_often", lambda which: asked.append(("often", which)))
    monkeypatch.setattr(priority, "take_long_turns", lambda at: asked.append(("long", at)))
    monkeypatch.delenv(THREADS_VARIABLE, raising=False)
    if chosen is not None:
        monkeypatch.setenv(THREADS_VARIABLE, chosen)
    give_way()
    half = (processors + 1) // 2
    upper = sorted(own)[-half:]
    limited: list[Any] = [("limit", 0, upper), ("often", upper)]
    expected = limited if chosen is None else [("often", sorted(own))]
    assert asked == [*expected, ("nice", 10), ("long", 7)]
    assert os.environ[THREADS_VARIABLE] == (chosen or str(half))


def test_a_process_that_gives_way_goes_on() -> None:
    """Whatever the system grants of it."""
    code = "from memwal_sql.cli.priority import give_way; give_way(); print('goes on')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("goes on\n", "")
