"""The store answers nothing any more from some request of a call on.

Whoever is told that nothing was written, or to make the call again, is told the truth; and what
fails when a call is done, as clearing up does, does not make it one that failed.
`MEMWAL_SOAK=10` begins at all requests of each call, else at the last ones, and one before.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import lance
import pytest

import memwal_sql as mw
from memwal_sql.errors import ConflictError
from tests.crash.calls import WORK, Program, State, made, state_of
from tests.crash.conftest import with_kinds
from tests.crash.strikes import stores_by
from tests.model.process import forget_writers
from tests.soak import IS_SOAK
from tests.write.hooked_store import Call, HookedStore

LAST_REQUESTS = 1


class Outage:
    """Counts the requests of the stores that it is around, and of Lance's opening of tables; while
    it is `armed`, none from the `nth` on is answered.

    Attributes:
        count: of the requests while it was armed.
    """

    def __init__(self, nth: float) -> None:
        self.nth, self.count, self._armed = nth, 0, False
        self._open = lance.dataset

    def around(self, store: Any) -> HookedStore:
        return HookedStore(store, self._hook)

    @contextmanager
    def armed(self) -> Iterator[None]:
        with (
            stores_by(self.around),
            patch.object(lance, "dataset", self._dataset),
        ):
            self._armed = True
            try:
                yield
            finally:
                self._armed = False

    def _refuses(self) -> bool:
        self.count += self._armed
        return self._armed and self.count >= self.nth

    def _hook(self, operation: str, path: str, call: Call) -> Any:
        if self._refuses():
            raise mw.StoreUnavailableError(f"no answer to {operation} of {path}")
        return call()

    def _dataset(self, *given: Any, **named: Any) -> Any:
        if self._refuses():
            raise OSError("LanceError(IO): Generic S3 error: no answer, lance/src/dataset.rs:1:1")
        return self._open(*given, **named)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "table"
    made(str(folder), "bucket(id, 2)")
    return folder


@pytest.fixture(scope="module")
def before(template: Path) -> State:
    return state_of(str(template))


def run(name: str, template: Path, before: State, place: Path, nth: float) -> tuple[int, State]:
    """Make a call on a copy of the table; how many requests it took, and what there is then."""
    folder = place / f"{name}-{nth}"
    uri = str(folder / "table")
    shutil.copytree(template, uri)
    outage = Outage(nth)
    with stores_by(outage.around):
        program = Program(mw.open_table(uri))
    failed: Exception | None = None
    with outage.armed():
        try:
            WORK[name](program)
        except Exception as error:
            failed = error
    after = state_of(uri)
    if failed is not None:
        assert isinstance(failed, mw.RetryError | mw.ReopenError), repr(failed)
        says_nothing = isinstance(failed, mw.StoreUnavailableError | ConflictError)
        assert not says_nothing or after == before, f"{failed!r}: but it was written"
        forget_writers(uri)
        again = Program(mw.open_table(uri))
        with suppress(*([mw.InvalidCallError] if after != before else [])):
            WORK[name](again)
        again.close()
        after = state_of(uri)
    program.close()
    forget_writers(uri)
    shutil.rmtree(folder)
    return outage.count, after


@with_kinds("name", WORK)
def test_who_calls_while_the_store_goes_away_is_told_what_became_of_it(
    name: str,
    kind: str,
    template: Path,
    before: State,
    fast_folder: Path,
    no_pauses: None,
) -> None:
    count, done = run(name, template, before, fast_folder, inf)
    first = 1 if IS_SOAK else max(1, count + 1 - LAST_REQUESTS)
    for nth in [*range(first, count + 1), Random(f"{name} {kind}").randint(1, count)]:
        _, after = run(name, template, before, fast_folder, nth)
        assert after == done, f"outage from request {nth} of {count} on"
