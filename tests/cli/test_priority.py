"""What a job asks of the system, so that it gives way to readers."""

from __future__ import annotations

import os

import pytest

from memwal_sql.cli.app import THREADS_VARIABLE, give_way
from tests.program import run


@pytest.mark.parametrize("chosen", [None, "1"])
@pytest.mark.parametrize("processors", [1, 2, 3, 8])
def test_a_job_takes_half_of_the_processors_and_a_lower_priority(
    monkeypatch: pytest.MonkeyPatch, processors: int, chosen: str | None
) -> None:
    """Unless somebody says how many threads."""
    asked: list[int] = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)), raising=False)
    monkeypatch.setattr(os, "nice", asked.append)
    monkeypatch.delenv(THREADS_VARIABLE, raising=False)
    if chosen is not None:
        monkeypatch.setenv(THREADS_VARIABLE, chosen)
    give_way()
    assert asked == [10]
    assert os.environ[THREADS_VARIABLE] == (chosen or str((processors + 1) // 2))


def test_a_process_that_gives_way_goes_on() -> None:
    """Whatever the system grants of it."""
    code = "from memwal_sql.cli.app import give_way; give_way(); print('goes on')"
    done = run("-c", code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "goes on\n", "")
