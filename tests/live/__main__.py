"""Plays random histories, in which live rows are compared with the files, until so many states of
tables were; ends with 1 at the first difference.

    python -m tests.live [--states N] [--first SEED]

In turns those of `tests/live`, and those of `tests/histories`, without and with statements, which
have each type of keys and each region spec in turn.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import Executor, ProcessPoolExecutor
from importlib import import_module
from itertools import count
from tempfile import TemporaryDirectory

from memwal_sql.read.live.settings import Live
from tests.histories.history import History
from tests.histories.statements import StatementHistory
from tests.live.compared import Compared, compared
from tests.live.test_histories import play
from tests.model.kinds import COMBINATIONS
from tests.model.process import forks

_KINDS = 3
_STEPS, _QUESTIONS = 6, 4
_ROUTED = [(keys, regions) for keys, regions in COMBINATIONS if not regions.is_manual]
_WAITS = "tests.conftest"  # where all tests are told not to wait for long


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    given = parser.parse_args()
    import_module(_WAITS)
    states, queries, begun = 0, 0, time.process_time()
    with ProcessPoolExecutor(1, forks(), import_module, (_WAITS,)) as other:
        for run in count():
            kind, seed = run % _KINDS, run // _KINDS + given.first
            try:
                one = history(kind, seed, other)
            except BaseException:
                print(f"history {kind} of seed {seed}, after {states} states", flush=True)
                raise
            states, queries = states + len(one.states), queries + one.queries
            if run % 30 == 29 or states >= given.states:
                spent = time.process_time() - begun
                print(
                    f"{run + 1} histories, to seed {seed}: {states} states and {queries} queries "
                    f"compared in {spent:.0f} s of processor time",
                    flush=True,
                )
            if states >= given.states:
                return 0
    return 1


def history(kind: int, seed: int, other: Executor) -> Compared:
    """Play one, in a folder of its own; what it has compared."""
    with TemporaryDirectory(prefix="memwal-live-") as folder, compared() as one:
        if kind == 0:
            play(f"{folder}/table", seed, checked=True)
            return one
        choice = COMBINATIONS if kind == 1 else _ROUTED
        keys, regions = choice[seed % len(choice)]
        names = f"{seed}/{keys.name}/{regions.name}", keys, regions, f"{folder}/table"
        with Live.set(enabled=1, checked=1, least_rows=0, waited=1):
            played = History(*names) if kind == 1 else StatementHistory(*names, other)
            played.run(_STEPS, _QUESTIONS)
        return one


if __name__ == "__main__":
    sys.exit(main())
