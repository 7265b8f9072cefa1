"""What a benchmark reports: figures, what they are compared with, and the bound to reach; as one
table on the terminal, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table


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
        unit: "ms", "rows/s", "keys/s", "calls/s", "queries/s", "calls", "MB" or "s".
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


def print_report(results: Sequence[Result], facts: Mapping[str, str], console: Console) -> None:
    """Print every line and the machine below it."""
    table = Table(title="memwal_sql benchmarks", title_justify="left")
    for heading in ("work", "ours", "baseline", "ratio", "reach", "ok?"):
        table.add_column(heading, justify="left" if heading == "work" else "right")
    for result in results:
        baseline = _baseline(result)
        ratio = f"{result.ratio:.2f}" if result.ratio is not None else ""
        ours = f"{_number(result.ours)} {result.unit}"
        table.add_row(result.work, ours, baseline, ratio, _reach(result.reach), _ok(result.reach))
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in facts.items()), style="dim")


def write_json(results: Sequence[Result], facts: Mapping[str, str], path: Path) -> None:
    """Write the same figures as one JSON document."""
    lines = [
        asdict(result) | {"ratio": result.ratio, "ok": result.reach.ok if result.reach else None}
        for result in results
    ]
    path.write_text(json.dumps({"machine": dict(facts), "results": lines}, indent=2) + "\n")


def _baseline(result: Result) -> str:
    if result.baseline is None:
        return ""
    return f"{result.baseline_name} {_number(result.baseline)} {result.unit}"


def _reach(reach: Reach | None) -> str:
    if reach is None:
        return ""
    figure = f"{_number(reach.figure)} {reach.unit}"
    return f"{reach.sense} {_number(reach.limit)} {reach.unit} ({figure})"


def _ok(reach: Reach | None) -> str:
    if reach is None:
        return ""
    return "[green]yes[/]" if reach.ok else "[bold red]no[/]"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
