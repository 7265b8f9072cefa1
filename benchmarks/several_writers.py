"""Several processes that write one table: the same regions in turns, others, and short programs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import memwal_sql as mw
from benchmarks.support.child import Steps, steps
from benchmarks.support.data import WrongResultError
from benchmarks.support.result import Reach, Result
from benchmarks.support.workspace import Workspace

_KEYS = 8
_PARTS = 4  # processes over regions of their own
_AT_ONCE = 2  # short programs
_CLI = (sys.executable, "-c", "from memwal_sql.cli.app import main; main()")
SCHEMA = pa.schema({"part": pa.int64(), "id": pa.int64(), "n": pa.int64()})
Calls = npt.NDArray[np.float64]  # begin and end of each, by the clock of the machine


def several_writers(work: Workspace) -> Iterator[Result]:
    """Closed loops of durable upserts of eight keys in all four regions of a table."""
    seconds = work.sizes.turn_seconds

    def together(name: str, count: int, kind: str, long: float = seconds) -> list[Calls]:
        table = _table(work.folder / name, disjoint=kind == "disjoint")
        return _calls(Path(table.uri), count, kind, long)

    alone = together("alone-1", 1, "turns")
    reopened = together("reopened", 2, "reopened")
    both = together("turns", 2, "turns")
    apart = together("disjoint", _PARTS, "disjoint")
    three = together("three", 3, "turns", 3 * seconds)
    dying = together("dying", 2, "dying")
    again = together("alone-2", 1, "turns")
    one = (_rate(alone) + _rate(again)) / 2
    part = _rate(together("disjoint-alone", 1, "disjoint"))
    name = "upserts by two processes, the same regions"
    ratio = _rate(both) / one
    yield Result(name, _rate(both), "calls/s", one, "one alone", Reach(ratio, 0.6, "at least"))
    ratio = _rate(both) / _rate(reopened)
    other = "reopened at FencedError"
    reach = Reach(ratio, 1.0, "at least")
    yield Result(name, _rate(both), "calls/s", _rate(reopened), other, reach)
    wait = max(float(_waits(calls).max()) for calls in both)
    yield Result(f"{name}: longest call", wait, "s", reach=Reach(wait, 3.0, "at most", "s"))
    name = f"upserts by {_PARTS} processes, each its own region"
    ratio = _rate(apart) / part
    yield Result(name, _rate(apart), "calls/s", part, "one alone", Reach(ratio, 1.5, "at least"))
    shares = [len(calls) for calls in three]
    name = f"upserts by three processes for {3 * seconds:.0f} s, the largest share"
    reach = Reach(max(shares) / min(shares), 2.0, "at most")
    yield Result(name, max(shares), "calls", min(shares), "the smallest", reach)
    gap = _gap(*dying)
    name = "the next upsert of a process after kill -9 of the other one"
    yield Result(name, gap, "s", reach=Reach(gap, 0.5, "at most", "s"))


def short_programs(work: Workspace) -> Iterator[Result]:
    """A service that upserts all the time, and programs that insert a row each."""
    folder, count = work.folder / "service", work.sizes.short_programs
    uri = str(_table(folder).uri)
    with steps("write_beside", uri, "until", "turns", "0") as service:
        done = service.begin("go")

        def insert(number: int) -> None:
            row = f"INSERT INTO t VALUES ({number % 4}, {10_000 + number}, {number})"
            subprocess.run([*_CLI, "sql", uri, row], check=True, capture_output=True)

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            list(pool.map(insert, range(count)))
        (folder / "stop").touch()
        done.wait()
    calls = np.load(folder / "0.npy")
    with mw.open_table(uri) as table:
        if table.count_rows("id >= 10000") != count:
            raise WrongResultError("rows of short programs are lost")
    wait = float(_waits(calls).max())
    name = f'longest upsert of a service beside {count} programs `memwal sql "INSERT"`'
    yield Result(name, wait, "s", reach=Reach(wait, 1.0, "at most", "s"))


def _table(folder: Path, *, disjoint: bool = False) -> mw.Table:
    regions = [mw.identity("part")] if disjoint else [mw.bucket("id", 4)]
    return mw.create_table(folder, SCHEMA, primary_key=["part", "id"], regions=regions)


def _calls(folder: Path, count: int, kind: str, seconds: float) -> list[Calls]:
    """The calls of so many processes, which begin together; what they wrote is checked."""
    with ExitStack() as stack:
        children: list[Steps] = []
        for number in range(count):
            words = (str(folder), str(seconds), kind, str(number))
            if kind == "dying":
                stack.enter_context(suppress(subprocess.CalledProcessError))
            children.append(stack.enter_context(steps("write_beside", *words)))
        for done in [child.begin("go") for child in children]:
            done.wait()
    made = [np.load(folder / f"{number}.npy") for number in range(count)]
    with mw.open_table(folder) as table:
        for number, calls in enumerate(made):
            if table.count_rows(f"part = {number}") != min(_KEYS * len(calls), 10_000):
                raise WrongResultError(f"rows of process {number} are lost")
    return made


def batch_of(number: int, call: int) -> pa.Table:
    """The rows of a call of a process."""
    ids = (np.arange(_KEYS) + _KEYS * call) % 10_000
    columns = [np.full(_KEYS, number), ids, np.full(_KEYS, call)]
    return pa.table([pa.array(column, pa.int64()) for column in columns], schema=SCHEMA)


def _rate(made: Sequence[Calls]) -> float:
    """Calls in a second, all together."""
    begin = min(calls[0, 0] for calls in made)
    return sum(len(calls) for calls in made) / float(max(calls[-1, 1] for calls in made) - begin)


def _waits(calls: Calls) -> Calls:
    return np.asarray(calls[1:, 1] - calls[1:, 0])  # the first one opens everything


def _gap(dead: Calls, other: Calls) -> float:
    """Seconds from the end of the last call of one that died to that of the other one's next."""
    died = dead[-1, 1]
    return float(other[other[:, 1] > died][0, 1] - died)
