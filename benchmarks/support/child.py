"""Work in a process of its own: cold caches, and memory that nothing else uses."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

import psutil  # type: ignore[import-untyped]

# The job loop as operators run it: a process that gives way to readers.
JOBS = (sys.executable, "-c", "from memwal_sql.cli.app import main; main()", "run")
_SAMPLE_SECONDS = 0.002


@dataclass(frozen=True, slots=True)
class ChildAnswer:
    """What a child printed, and how much memory it took.

    Attributes:
        words: of the one line it printed when it was done.
        peak_bytes: the highest resident size while it worked, above the resident size with
            everything imported.
    """

    words: list[str]
    peak_bytes: int


def run_child(name: str, *arguments: str) -> ChildAnswer:
    """Run the child of this name (`benchmarks.children`).

    The child prints a line when it has imported everything, waits for a line, works, and prints
    one line. Raises CalledProcessError if it fails; its error output is shown.
    """
    with _started(name, arguments) as (child, tell, answers):
        process = psutil.Process(child.pid)
        idle = peak = process.memory_info().rss
        tell.write("go\n")
        tell.close()
        while child.poll() is None:
            peak = max(peak, _resident(process))
            time.sleep(_SAMPLE_SECONDS)
        words = answers.read().split()
    return ChildAnswer(words, peak - idle)


class Steps:
    """A child that does one step after the other, as it is told, and prints a line after each."""

    def __init__(self, tell: IO[str], answers: IO[str]) -> None:
        self._tell = tell
        self._answers = answers

    def do(self, step: str) -> None:
        """Let the child do a step, and wait."""
        self.begin(step).wait()

    def begin(self, step: str) -> threading.Event:
        """Let the child begin a step; set when it is done, or the child has ended."""
        done = threading.Event()

        def wait() -> None:
            self._answers.readline()
            done.set()

        print(step, file=self._tell, flush=True)
        threading.Thread(target=wait, daemon=True).start()
        return done


@contextmanager
def steps(name: str, *arguments: str) -> Iterator[Steps]:
    """The child of this name (`benchmarks.children`), which takes steps as lines of its input.
    Raises CalledProcessError if it fails."""
    with _started(name, arguments) as (_, tell, answers):
        yield Steps(tell, answers)
        tell.close()


@contextmanager
def _started(
    name: str, arguments: Sequence[str]
) -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """A child that has printed its first line, its input and its output."""
    command = [sys.executable, "-m", "benchmarks.children", name, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        if child.stdin is None or child.stdout is None:
            raise OSError("the child has no pipes")
        child.stdout.readline()
        yield child, child.stdin, child.stdout
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)


def _resident(process: psutil.Process) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.NoSuchProcess:
        return 0


def until_told() -> threading.Event:
    """In the child: set at the end of the input, by which the parent tells it to stop."""
    stop = threading.Event()

    def wait() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait, daemon=True).start()
    return stop


def ready() -> None:
    """In the child: everything is imported; wait until the parent watches."""
    print("ready", flush=True)
    sys.stdin.readline()
