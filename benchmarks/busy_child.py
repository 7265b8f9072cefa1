"""Child process: writes, flushes, merges and builds indexes until it is told to stop."""

from __future__ import annotations

import sys
import threading

import numpy as np

import memwal_sql as mw
from benchmarks.merging import vector_rows

_PAUSE_SECONDS = 0.5


def main(uri: str, base_rows: str, rows: str) -> None:
    """Print a line when the first merge begins; there is one at least before it stops."""
    table = mw.open_table(uri)
    stop = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    random = np.random.default_rng(11)
    merges = 0
    print("busy", flush=True)
    while not merges or not stop.wait(_PAUSE_SECONDS):
        with table.writer(durable=False, memtable_rows=int(rows) + 1) as writer:
            ids = random.choice(int(base_rows), int(rows), replace=False)
            writer.upsert(vector_rows(ids, merges))
            writer.flush()
        merges += table.merge()
        table.build_indexes()


if __name__ == "__main__":
    main(*sys.argv[1:])
