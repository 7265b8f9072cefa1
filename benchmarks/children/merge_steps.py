"""Child process: flushes, merges or builds indexes each time it is told to."""

from __future__ import annotations

import sys

import numpy as np

import memwal_sql as mw
from benchmarks.merging import GENERATIONS, vector_rows
from memwal_sql.cli.app import give_way


def main(uri: str, base_rows: str, rows: str) -> None:
    """Print a line at the start, and one for each step that was read from the input and is done:
    "flush" writes some generations of `rows` rows, "merge" and "index" are what `memwal` does."""
    give_way()
    table = mw.open_table(uri)
    random = np.random.default_rng(11)
    with table.writer(durable=False, memtable_rows=int(rows) + 1) as writer:
        print("ready", flush=True)
        for step in map(str.strip, sys.stdin):
            if step == "flush":
                for _ in range(GENERATIONS):
                    ids = random.choice(int(base_rows), int(rows), replace=False)
                    writer.upsert(vector_rows(ids, int(random.integers(1 << 32))))
                    writer.flush()
            elif step == "merge":
                table.merge()
            else:
                table.build_indexes()
            print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
