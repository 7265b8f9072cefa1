"""What comes from outside between two lines of a module, as a signal's handler does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, ModuleType
from typing import Any


@contextmanager
def at_line(
    module: ModuleType, step: int, call: Callable[[], object]
) -> Iterator[Callable[[], bool]]:
    """Calls `call` before the `step`th line of the module's functions that is run on this thread;
    gives what says whether there was such a line."""
    left = step

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal left
        if frame.f_code.co_filename != module.__file__:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                call()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: left <= 0
    finally:
        sys.settrace(before)
