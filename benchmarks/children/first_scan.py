"""Child process: warm plain scans, then the first scan of a table of ours after opening it.

A process of its own, as what is known of a table is shared by all handles of a process. The plain
scans come first, and one of a copy of our table, so that what a process does once is in neither
time: Lance's start and ours, and the first memory that their allocators get.
"""

from __future__ import annotations

import sys

import lance
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.child import ready
from benchmarks.support.data import checksum
from benchmarks.support.timing import lower_quartile, seconds

_ROUNDS = 9


def main(ours: str, copy: str, plain: str, *columns: str) -> None:
    """Print the seconds of both and whether they hold the same rows."""
    ready()
    names = list(columns)
    dataset = lance.dataset(plain)
    expected = dataset.to_table(columns=names)
    baseline = lower_quartile(
        [seconds(lambda: dataset.to_table(columns=names)) for _ in range(_ROUNDS)]
    )
    mw.open_table(copy).scan(columns=names).read_all()
    table = mw.open_table(ours)
    found: list[pa.Table] = []
    first = seconds(lambda: found.append(table.scan(columns=names).read_all()))
    print(first, baseline, checksum(found[0]) == checksum(expected))


if __name__ == "__main__":
    main(*sys.argv[1:])
