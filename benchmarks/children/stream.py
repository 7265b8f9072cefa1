"""Child process: stream every row of a table, ours or a plain Lance one, and sum it up."""

from __future__ import annotations

import sys

import datafusion  # noqa: F401 - part of the idle process
import lance
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.child import ready
from benchmarks.support.data import checksum


def main(kind: str, uri: str) -> None:
    """Print the table's row count and sums."""
    ready()
    stream = mw.open_table(uri).scan() if kind == "ours" else lance.dataset(uri).to_batches()
    total: list[int] = []
    for batch in stream:
        sums = checksum(pa.Table.from_batches([batch]))
        total = [a + b for a, b in zip(total, sums, strict=True)] if total else list(sums)
    print(*(number % 2**64 for number in total))


if __name__ == "__main__":
    main(*sys.argv[1:])
