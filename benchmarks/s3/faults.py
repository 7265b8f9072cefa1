"""What may go wrong with a request on its way to a server, drawn from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random
from threading import Lock


class Fault(StrEnum):
    """What happens to one request."""

    REFUSED = "refused"  # nothing is done, and the answer is 503
    LOST = "lost"  # it is done, and the answer is 500
    CUT = "cut off"  # it is done, and the connection ends, within the answer if that has a body
    STALLED = "stalled"  # it waits before it is done, as a rule until the client has given up


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """How often and how long.

    Attributes:
        share: of the requests, for each fault.
        seed: of the draws.
        stall_seconds: the longest that a stalled request waits.
    """

    share: float = 0.0
    seed: int = 0
    stall_seconds: float = 2.0


class Faults:
    """The faults of a plan, one draw a request in the order in which they come."""

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan
        self._random = Random(plan.seed)
        self._lock = Lock()

    def next(self) -> tuple[Fault | None, float]:
        """The fault of the next request, and for how many seconds it waits."""
        with self._lock:
            drawn, wait = self._random.random(), self._random.random()
        if drawn >= self._plan.share * len(Fault):
            return None, 0.0
        fault = list(Fault)[int(drawn / self._plan.share)]
        return fault, wait * self._plan.stall_seconds if fault is Fault.STALLED else 0.0
