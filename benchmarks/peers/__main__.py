"""`python -m benchmarks.peers`: upserts, aggregates and lookups in turns, beside other tables."""

from __future__ import annotations

import argparse
import os
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from benchmarks.mixed import EVERY, LOOKUPS
from benchmarks.peers.peer import PEERS
from benchmarks.peers.work import Figures, mixed_by
from benchmarks.support.chart import bars
from benchmarks.support.sizes import FULL, SMALL, Sizes

_WORK = ("upsert", "count(*), avg", "lookup by key")


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--only", action="append", choices=PEERS, metavar="NAME")
    parser.add_argument("--small", action="store_true", help="sizes that only show that all runs")
    parser.add_argument("--upsert-rows", type=int, metavar="N", help="rows of an upsert")
    parser.add_argument("--folder", type=Path, default=Path(".benchmarks"))
    parser.add_argument("--chart", type=Path, help="also draw the medians here, as SVG")
    options = parser.parse_args(arguments)
    sizes = SMALL if options.small else FULL
    sizes = replace(sizes, append_rows=options.upsert_rows or sizes.append_rows)
    options.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        figures = mixed_by(options.only or list(PEERS), Path(temporary).resolve(), sizes)
    print("\n".join(report(figures, sizes)))
    if options.chart:
        options.chart.write_text(_chart(figures))
    return 0


def report(figures_by_name: Mapping[str, Figures], sizes: Sizes) -> Iterator[str]:
    """The lines of a table in Markdown."""
    memory = psutil.virtual_memory().total / 2**30
    yield (
        f"{sizes.base_rows:,} rows; {sizes.mixed_upserts} upserts of {sizes.append_rows:,} random "
        f"keys; after every {EVERY}th `count(*), avg` and {LOOKUPS} lookups. Medians in "
        f"milliseconds; {os.cpu_count()} cores, {memory:.0f} GiB, a local disk."
    )
    yield ""
    yield "| table | upsert | aggregate | lookup | all of it | writes |"
    yield "|---|---:|---:|---:|---:|---|"
    for name, figures in figures_by_name.items():
        *medians, total = (*figures.medians(), figures.total)
        cells = [
            f"{1e3 * figure:.3g}" if figure < 1 else f"{1e3 * figure:,.0f}" for figure in medians
        ]
        peer = figures.peer
        versions = ", ".join(f"{package} {version(package)}" for package in peer.packages)
        title = f"{name} ({versions or sqlite3.sqlite_version})"
        yield f"| {title} | {' | '.join(cells)} | {total:.1f} s | {peer.setting} |"


def _chart(figures_by_name: Mapping[str, Figures]) -> str:
    groups: dict[str, dict[str, float]] = {}
    for name, figures in figures_by_name.items():
        for work, median in zip(_WORK, figures.medians(), strict=True):
            groups.setdefault(work, {})[name] = 1e3 * median
    return bars("Medians of the mixed work", "ms", groups)


if __name__ == "__main__":
    raise SystemExit(main())
