"""What all tests share."""

from __future__ import annotations

import functools
import gc
import itertools
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import lance
import pytest
import typer.main
import typer.testing
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

import memwal_sql as mw
from memwal_sql.storage.retries import Pauses
from memwal_sql.write.turns import TurnSeconds
from tests.model.process import forks
from tests.model.small_rows import make_rows

# A shell that starts the tests in the background has them ignore it, and tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# A run makes half a million small files: each takes a millisecond of a disk, none of memory.
_MEMORY = Path("/dev/shm")
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 4 << 30:
    tempfile.tempdir = os.environ.setdefault("TMPDIR", str(_MEMORY))
# The command has nineteen subcommands: to read their signatures takes longer than most calls.
typer.testing._get_command = functools.cache(typer.main.get_command)
# Nobody waits long for another try, or for a region that another process has.
Pauses.first, Pauses.longest = 0.01, 0.1
TurnSeconds.local = TurnSeconds.remote = 0.05
# A slow machine is no failure of the code; a database of examples would make runs differ.
settings.register_profile("repeatable", deadline=None, database=None)
settings.load_profile("repeatable")

# Tests that share what takes long to make: one Spark, one built wheel, all syntax trees.
_SHARED = ("tests/spark/", "tests/install/", "tests/test_layers.py")


class _FolderScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """One worker runs all tests of a shared folder; any other test is handed out by itself."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in _SHARED if nodeid.startswith(folder)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """The marks of groups that xdist offers have no effect with pytest 9.2."""
    return _FolderScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first."""
    items.sort(key=lambda item: not item.nodeid.startswith(_SHARED))


def pytest_collection_finish() -> None:
    """What is there by now stays: to look through it takes a third of a second each time."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the ten slowest files: workers send their reports to the process that prints."""
    seconds, tests = Counter[str](), Counter[str]()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            path = report.nodeid.partition("::")[0]
            seconds[path] += report.duration
            tests[path] += report.when == "call"
    if len(seconds) > 1:
        terminalreporter.section(f"slowest of {len(seconds)} files, {seconds.total():.0f} s in all")
    for path, duration in seconds.most_common(10 if len(seconds) > 1 else 0):
        terminalreporter.line(f"{duration:7.1f} s {tests[path]:5} tests  {path}")


@pytest.fixture
def within() -> Iterator[Callable[[AbstractContextManager[Any]], Any]]:
    """Enters a context that lasts until the test ends."""
    with ExitStack() as stack:
        yield stack.enter_context


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """Where a test makes its table."""
    return str(tmp_path / "table")


@pytest.fixture
def fast_folder(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one, for tests of meaning and not of the disk."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    folder = Path(tempfile.mkdtemp(prefix="memwal-tests-", dir=memory))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def table(uri: str) -> mw.Table:
    """One with the keys 0 to 2, for what is done wrong to any table."""
    lance.write_dataset(make_rows(0, 1, 2), uri)
    return mw.enable(uri, primary_key="id")


@pytest.fixture
def no_pauses() -> Iterator[None]:
    """Retries without waiting."""
    with Pauses.set(longest=0.0):
        yield


@pytest.fixture(scope="session")
def other() -> Iterator[Executor]:
    """Another process."""
    with ProcessPoolExecutor(1, forks(), initializer=_with_short_turns) as process:
        yield process


def _with_short_turns() -> None:
    TurnSeconds.local = 0.05
