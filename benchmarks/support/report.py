"""The report: one table on the terminal, and the same figures as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.support.result import Reach, Result


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
