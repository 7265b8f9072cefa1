"""`python -m demo`: replay a year of flights, ask SQL meanwhile, search docstrings, check every
answer."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory

import datafusion
from rich.console import Console

import memwal_sql as mw
from demo.checks import Oracle, Outcome, check_reopened, check_table, register_ordinary, run_example
from demo.documents import FEW_MODULES
from demo.events import Events
from demo.examples import load_examples
from demo.flights import PRIMARY_KEY, SCHEMA, final_state, load_flights, load_ordinary_tables
from demo.monitor import Monitor
from demo.progress import Progress, replay
from demo.report import make_console, print_example, print_outcome, print_summary, show_replay
from demo.searching import (
    QUESTION,
    Documents,
    check_searches,
    load_search_examples,
    run_search_example,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo; returns 0 if every check came out right, else 1."""
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__)
    parser.add_argument("--uri", type=Path, help="a new folder to keep; a temporary one otherwise")
    parser.add_argument(
        "--until", type=date.fromisoformat, help="leave out flights after this day, YYYY-MM-DD"
    )
    options = parser.parse_args(arguments)
    with ExitStack() as stack:
        uri = options.uri
        if uri is None:
            uri = Path(stack.enter_context(TemporaryDirectory())) / "flights"
            stack.callback(_remove_regions, uri)
        return run(make_console(), str(uri), options.until)


def run(console: Console, uri: str, until: date | None) -> int:
    """The demo over a new table at `uri`; returns the exit code."""
    start = time.perf_counter()
    flights = load_flights(until)
    expected, ordinary = final_state(flights), load_ordinary_tables()
    events = Events.of(flights)
    console.print(f"{flights.num_rows:,} flights from New York in 2013 make {len(events):,} events")

    table = mw.create_table(uri, SCHEMA, PRIMARY_KEY, regions=[mw.identity("carrier")])
    context = datafusion.SessionContext()
    mw.register(context, "flights", table, consistency="strong")
    register_ordinary(context, ordinary)
    oracle = Oracle(expected, ordinary)

    with table.writer() as writer:
        outcomes = [_replay(console, context, uri, events, writer)]
        print_outcome(console, outcomes[-1])
        for outcome in check_table(table, expected):
            outcomes.append(outcome)
            print_outcome(console, outcome)
        for example in load_examples():
            outcomes.append(run_example(context, example, oracle))
            print_example(console, example, outcomes[-1])
    console.print()
    outcomes.append(check_reopened(uri, oracle))
    print_outcome(console, outcomes[-1])
    outcomes += _search(console, FEW_MODULES if until else None)

    wrong = [outcome for outcome in outcomes if outcome.problem is not None]
    console.print()
    console.print(
        f"{len(outcomes) - len(wrong)} of {len(outcomes)} checks came out right"
        f" in {time.perf_counter() - start:.0f} s"
    )
    for outcome in wrong:
        print_outcome(console, outcome)
    return 1 if wrong else 0


def _search(console: Console, only: Collection[str] | None) -> list[Outcome]:
    """Search a table of docstrings, of these modules only, while it is written to."""
    outcomes = []
    with TemporaryDirectory() as folder:
        documents = Documents(Path(folder), only)
        console.print()
        console.print(
            f"{documents.live.num_rows:,} docstrings, each with a vector; $q is the vector of: "
            f"{QUESTION}"
        )
        with documents.writer:
            for example in load_search_examples():
                outcomes.append(run_search_example(documents, example))
                print_example(console, example, outcomes[-1])
            console.print()
            for outcome in check_searches(documents, Path(folder)):
                outcomes.append(outcome)
                print_outcome(console, outcome)
    return outcomes


def _replay(
    console: Console,
    context: datafusion.SessionContext,
    uri: str,
    events: Events,
    writer: mw.TableWriter,
) -> Outcome:
    """Replay all events while a second process asks; the outcome is about its answers."""
    progress = Progress()
    monitor = Monitor(uri, progress)
    start = time.perf_counter()
    batches = map(monitor.collecting, replay(events, writer, progress))
    show_replay(console, len(events), batches, monitor.observations)
    seconds = time.perf_counter() - start
    monitor.wait()
    print_summary(console, context, len(events), seconds, monitor.observations)
    title = f"second process: {len(monitor.observations):,} answers, none stale and none too early"
    problems = monitor.problems
    return Outcome(title, seconds, problems[0] if problems else None)


def _remove_regions(uri: Path) -> None:
    # Some disks take milliseconds to free a file, and there are thousands; one thread waits for
    # each of them in turn.
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(shutil.rmtree, uri.glob("_mem_wal/*/wal")))


if __name__ == "__main__":
    sys.exit(main())
