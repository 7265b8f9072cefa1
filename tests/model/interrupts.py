"""What comes from outside between two lines of a module, as a signal's handler does."""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from types import CodeType, FrameType, ModuleType
from typing import Any

# Where the interpreter runs handlers: at the start of a function and of a round of a loop, and when
# a call has returned.
_AFTER = ("CALL", "RESUME", "JUMP_BACKWARD")


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


class Interrupt(BaseException):
    """What a signal handler raises."""


@cache
def places_of(code: CodeType) -> frozenset[int]:
    """The offsets of the instructions before which a handler may run."""
    steps = [one for one in dis.get_instructions(code) if one.opname != "CACHE"]
    return frozenset(
        after.offset for before, after in pairwise(steps) if before.opname.startswith(_AFTER)
    )


@contextmanager
def interrupted(modules: tuple[ModuleType, ...], step: int) -> Iterator[None]:
    """Raises Interrupt at the `step`th place in the modules' functions that is passed."""
    files, left = {module.__file__ for module in modules}, step

    def trace(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        nonlocal left
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_lasti in places_of(frame.f_code):
            left -= 1
            if left == 0:
                raise Interrupt
        return trace

    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(None)
