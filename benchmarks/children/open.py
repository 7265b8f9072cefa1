"""Child process: open a table, take one snapshot, and say how long both took."""

from __future__ import annotations

import sys
import time

import memwal_sql as mw
from benchmarks.support.child import ready


def main(uri: str, consistency: str) -> None:
    """Print the seconds, the number of regions and the number of generations."""
    ready()
    start = time.perf_counter()
    snapshot = mw.open_table(uri).snapshot(consistency)
    seconds = time.perf_counter() - start
    generations = sum(len(region.sources) for region in snapshot.regions)
    print(seconds, len(snapshot.regions), generations)


if __name__ == "__main__":
    main(*sys.argv[1:])
