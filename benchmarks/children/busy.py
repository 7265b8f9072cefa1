"""Child process: writes and flushes beside the command line's job loop until it is told to stop."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

import memwal_sql as mw
from benchmarks.merging import vector_rows
from benchmarks.support.child import JOBS, until_told

_PAUSE_SECONDS = 1.0
_OPTIONS = ("--merge-generations", "1", "--interval", "0.2", "--output", "json")


def main(uri: str, base_rows: str, rows: str) -> None:
    """Print a line when the first of what is flushed has been merged."""
    table = mw.open_table(uri)
    stop = until_told()
    random = np.random.default_rng(11)
    seed = 0
    with (
        subprocess.Popen([*JOBS, uri, *_OPTIONS], stdout=subprocess.PIPE, text=True) as jobs,
        table.writer(durable=False, memtable_rows=int(rows) + 1) as writer,
    ):
        try:
            merged = (line for line in jobs.stdout or () if '"merge"' in line)
            while not stop.is_set():
                ids = random.choice(int(base_rows), int(rows), replace=False)
                writer.upsert(vector_rows(ids, seed))
                writer.flush()
                if not seed:
                    next(merged)  # StopIteration: the jobs have ended
                    print("busy", flush=True)
                seed += 1
                stop.wait(_PAUSE_SECONDS)
        finally:
            jobs.terminate()


if __name__ == "__main__":
    main(*sys.argv[1:])
