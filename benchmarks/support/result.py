"""What a benchmark reports: figures, what they are compared with, and the bound to reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Reach:
    """A bound on one figure.

    Attributes:
        figure: what is bounded: a ratio, a difference or an absolute value.
        limit: the bound, in the figure's unit.
        sense: whether the figure must stay at most or get to at least the limit.
        unit: of both; "x" for a ratio.
    """

    figure: float
    limit: float
    sense: Literal["at most", "at least"]
    unit: str = "x"

    @property
    def ok(self) -> bool:
        """Whether the bound is kept."""
        if self.sense == "at most":
            return self.figure <= self.limit
        return self.figure >= self.limit


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the report.

    Attributes:
        work: what was done, in the words of the goal.
        ours: our figure, in `unit`.
        baseline: the other's figure in the same unit; None when there is none.
        baseline_name: who the other is; empty when there is none.
        unit: "ms", "rows/s", "keys/s", "MB" or "s".
        reach: the bound; None for a line that is shown for comparison only.
    """

    work: str
    ours: float
    unit: str
    baseline: float | None = None
    baseline_name: str = ""
    reach: Reach | None = None

    @property
    def ratio(self) -> float | None:
        """Ours by the baseline's."""
        return self.ours / self.baseline if self.baseline else None


def at_most_ratio(work: str, ours: float, baseline: float, name: str, limit: float) -> Result:
    """A line in milliseconds (given in seconds) where ours / baseline is bounded from above."""
    reach = Reach(ours / baseline, limit, "at most")
    return Result(work, ours * 1e3, "ms", baseline * 1e3, name, reach)


def faster_than(work: str, ours: float, baseline: float, name: str, limit: float) -> Result:
    """A line in milliseconds (given in seconds) where baseline / ours is bounded from below."""
    reach = Reach(baseline / ours, limit, "at least")
    return Result(work, ours * 1e3, "ms", baseline * 1e3, name, reach)


def beside(work: str, ours: float, baseline: float, name: str) -> Result:
    """A line in milliseconds (given in seconds) that is shown without a bound."""
    return Result(work, ours * 1e3, "ms", baseline * 1e3, name)
