"""Waiting for what other threads do, for as long as a machine with much else to do may take.

What never comes fails before the time limit of a test does; nothing may be concluded from how long
something took.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event

LONGEST_SECONDS = 120.0


def reached(event: Event) -> None:
    """Return when `event` is set. Raises `AssertionError` when it never is."""
    assert event.wait(LONGEST_SECONDS), "what was waited for never came"


def eventually(condition: Callable[[], object]) -> None:
    """Return when `condition` holds. Raises `AssertionError` when it never does."""
    end = time.monotonic() + LONGEST_SECONDS
    while not condition():
        assert time.monotonic() < end, "what was waited for never came"
        time.sleep(0.001)
