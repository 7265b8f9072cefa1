"""Two-phase stores that end at a chosen change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from memwal_sql.storage.objects.two_phase import TwoPhaseStore

PATH = "folder/0001.binpb"


class StepError(BaseException):
    """The process ends here; nothing catches it."""


class Stepping:
    """Whatever it wraps, until `steps` changes were made by all that share the counter."""

    def __init__(self, inner: Any, budget: list[int], after: bool) -> None:
        self._inner = inner
        self._budget = budget
        self._after = after

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if name not in ("put", "sync", "delete", "swap"):
            return value

        def step(*args: Any) -> Any:
            self._budget[0] -= 1
            if self._budget[0] == 0 and not self._after:
                raise StepError
            result = value(*args)
            if self._budget[0] == 0:
                raise StepError
            return result

        return step


def die_at(step: int, after: bool, inner: Any, log: Any, call: Callable[[Any], Any]) -> bool:
    """Do `call` with a store that dies at a step; whether it did."""
    budget = [step]
    store = TwoPhaseStore(Stepping(inner, budget, after), Stepping(log, budget, after))
    try:
        call(store)
    except StepError:
        return True
    return False
