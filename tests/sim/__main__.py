"""Runs simulations for some seconds of processor time, and ends with 1 at the first that fails.

    python -m tests.sim [--seconds N] [--runs N] [--first SEED]
    python -m tests.sim SCENARIO SEED

The second form replays one run. Hashes of texts differ between processes, so each runs with those
of PYTHONHASHSEED=0.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from zlib import crc32

from tests.sim.scenario import SCENARIOS, run

# Names that Lance draws, below its folders.
_LANCES = re.compile(r"(_gen_\d+|_indices|_transactions|_deletions|data)/.*")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("scenario", nargs="?", choices=SCENARIOS)
    parser.add_argument("seed", nargs="?", type=int)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--runs", type=int, default=sys.maxsize)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, "-m", "tests.sim", *sys.argv[1:]], environment)
    if given.scenario is not None:
        schedule = run(given.scenario, given.seed)
        trace = _LANCES.sub(r"\1", "\n".join(schedule.trace))
        print(f"{schedule.now} steps, {crc32(trace.encode()):x}")
        return 0
    begun, runs, steps = time.process_time(), 0, 0
    while runs < given.runs and (spent := time.process_time() - begun) < given.seconds:
        seed, place = divmod(runs, len(SCENARIOS))
        scenario, seed = list(SCENARIOS)[place], seed + given.first
        runs += 1
        try:
            steps += run(scenario, seed).now
        except BaseException:
            print(f"run {runs}, {spent:.0f} s: {scenario} {seed}", flush=True)
            raise
    print(f"{runs} runs, {steps} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
