"""Tables whose making ends at any step: told as what they are, and made by the same call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from threading import Event, Thread, current_thread
from typing import Any
from unittest.mock import Mock

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql import create
from planner.regions.text import text_of
from tests.crash.strikes import stores_by
from tests.model.process import as_another_process
from tests.write.hooked_store import Call, HookedStore

SCHEMA = pa.schema({"id": pa.int64(), "at": pa.int32(), "n": pa.int64()})
KEY = ("id", "at")
REGIONS = "bucket(id, 2)"
KEYS = list(range(8))
ROWS = pa.table({"id": KEYS, "at": pa.array(KEYS, pa.int32()), "n": KEYS})


def make(uri: str) -> mw.Table:
    return mw.create_table(uri, SCHEMA, KEY, REGIONS)


class Steps:
    """Counts the requests and the commits of making tables; calls `strike` before the `nth`, or
    after it, or before it and all later ones."""

    def __init__(self, nth: float, how: str, strike: Callable[[], object]) -> None:
        self._nth, self._how, self._strike = nth, how, strike
        self.count = 0

    @contextmanager
    def around(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Within it they count."""
        with monkeypatch.context() as patched, stores_by(lambda s: HookedStore(s, self._step)):
            for module, name in (
                (create, "_written"),
                (create, "commit_details"),
                (lance.LanceDataset, "create_scalar_index"),
            ):
                patched.setattr(module, name, self._counted(getattr(module, name)))
            yield

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given, **named: self._step("", "", lambda: call(*given, **named))

    def _step(self, _: str, __: str, call: Call) -> Any:
        self.count += 1
        now = self.count == self._nth
        if (now and self._how == "before") or (self.count >= self._nth and self._how == "from"):
            self._strike()
        found = call()
        if now and self._how == "after":
            self._strike()
        return found


def interrupts() -> None:
    raise KeyboardInterrupt


def gives_no_answer() -> None:
    raise mw.StoreUnavailableError("no answer")


def begin(uri: str, steps: Steps, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make a table as far as the steps let it come; how many there were."""
    with steps.around(monkeypatch):
        try:
            make(uri)
        except (KeyboardInterrupt, mw.RetryError) as error:
            says_nothing = isinstance(error, mw.StoreUnavailableError)
            assert not (says_nothing and Path(uri, "_versions").exists())
    return steps.count


@pytest.fixture
def folder(kind: str, fast_folder: Path) -> Path:
    """Where tables are made as on a disk, or as on a remote store."""
    del kind
    return fast_folder


@pytest.mark.parametrize(
    ("how", "strike"),
    [("before", interrupts), ("after", interrupts), ("from", gives_no_answer)],
)
def test_the_same_call_ends_what_another_one_has_begun(
    how: str,
    strike: Callable[[], object],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_pauses: None,
) -> None:
    steps = begin(str(folder / "whole"), Steps(inf, how, strike), monkeypatch)
    assert steps > 5
    unfinished = 0
    for nth in range(1, steps + 1):
        uri = str(folder / f"table-{nth}")
        begin(uri, Steps(nth, how, strike), monkeypatch)
        try:
            table = mw.open_table(uri)
        except mw.InvalidCallError as error:
            assert "create_table" in str(error), error
            unfinished += "was not made to its end" in str(error)
            table = make(uri)
        else:
            with pytest.raises(mw.InvalidCallError, match="is a table already: open_table"):
                make(uri)
        assert table.primary_key == KEY
        with table.writer() as writer:
            writer.upsert(ROWS)
            writer.flush()
        table.merge()
        with as_another_process():
            again = mw.open_table(uri)
            assert again.to_arrow().sort_by("id").equals(ROWS.cast(again.schema))
            assert [one.name for one in again.snapshot().regions] == ["id_bucket=0", "id_bucket=1"]
            assert again.check().ok
    assert unfinished > 1


def cut_off(monkeypatch: pytest.MonkeyPatch, call: Callable[[], object]) -> None:
    """Make a table without its MemWAL index."""
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(create, "commit_details", lambda *_: interrupts())
        call()


@pytest.fixture
def unfinished(uri: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A table without its MemWAL index."""
    cut_off(monkeypatch, partial(make, uri))
    return uri


def test_another_call_is_told_what_is_there(unfinished: str) -> None:
    other = pa.schema({"id": pa.int64(), "text": pa.string()})
    with pytest.raises(mw.InvalidCallError, match="drop_table deletes it"):
        mw.create_table(unfinished, other, "id")
    mw.drop_table(unfinished)
    assert mw.create_table(unfinished, other, "id").schema.names == ["id", "text"]


def test_versions_of_before_a_table_was_whole_are_told_as_such(uri: str) -> None:
    table = make(uri)
    for version in range(1, table.version):
        for call in (table.as_of, table.restore, partial(mw.open_table, uri)):
            with pytest.raises(mw.InvalidCallError, match="has no regions of this table"):
                call(version)


def test_a_table_that_is_ended_while_it_is_opened_is_opened_or_the_next_call_does(
    fast_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = 0
    for nth in count(1):
        uri = str(fast_folder / f"table-{nth}")
        cut_off(monkeypatch, partial(make, uri))
        steps = Steps(nth, "before", partial(make, uri))
        with steps.around(monkeypatch):
            try:
                mw.open_table(uri)
            except mw.RetryError as error:
                refused += "open it again" in str(error)
            except mw.InvalidCallError as error:
                assert "is being made" in str(error)
        if steps.count < nth:
            break
        assert mw.open_table(uri).primary_key == KEY
    assert refused


# Before these somebody else may do anything.
ENABLING = [
    *("open_lance", "check_unique", "mark_table", "write_record"),
    *("stop_writers_before", "index_primary_key", "commit_details"),
]


class Turns:
    """Threads that enable a table, of which each waits before a step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._threads: dict[Thread, Turn] = {}
        for name in ENABLING:
            monkeypatch.setattr(create, name, self._waiting(name, getattr(create, name)))

    def thread(self, step: str, work: Callable[..., None], *given: Any) -> Turn:
        thread = Thread(target=work, args=given, daemon=True)
        self._threads[thread] = Turn(step, thread)
        return self._threads[thread]

    def _waiting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def waits(*given: Any) -> Any:
            turn = self._threads.get(current_thread())
            if turn is not None and turn.step == name and not turn.waits.is_set():
                turn.waits.set()
                turn.goes_on.wait()
            return call(*given)

        return waits


@dataclass
class Turn:
    """A thread, and the step that it waits before."""

    step: str
    thread: Thread
    waits: Event = field(default_factory=Event)
    goes_on: Event = field(default_factory=Event)

    def run_until_it_waits(self) -> None:
        """Or until it has come to its end before that."""
        self.thread.start()
        while self.thread.is_alive() and not self.waits.wait(0.001):
            pass

    def run_to_its_end(self) -> None:
        self.goes_on.set()
        self.thread.join()


@pytest.mark.parametrize("keys", [[], KEYS])
def test_enable_ends_what_it_has_begun(
    keys: list[int], uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(pa.table({"id": pa.array(keys, pa.int64())}), uri)
    cut_off(monkeypatch, partial(mw.enable, uri, "id"))
    if not keys:
        with pytest.raises(mw.InvalidCallError, match="create_table or enable again"):
            mw.open_table(uri)
    assert mw.enable(uri, "id").to_arrow().to_pydict() == {"id": keys}


@pytest.mark.parametrize("step", ENABLING)
def test_who_enables_a_table_second_is_told_so(
    step: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(pa.table({"id": KEYS}), uri)
    real = getattr(create, step)

    def second(*given: Any) -> Any:
        monkeypatch.setattr(create, step, real)
        mw.enable(uri, "id", "bucket(id, 3)")
        return real(*given)

    monkeypatch.setattr(create, step, second)
    error = mw.InvalidCallError if step == "open_lance" else mw.ConflictError
    with pytest.raises(error, match=r"changed meanwhile|has a MemWAL index already"):
        mw.enable(uri, "id", REGIONS)
    table = mw.open_table(uri)
    assert [text_of(spec) for spec in table.info.region_specs] == ["bucket(id, 3)"]
    assert table.check().ok


@pytest.mark.parametrize("second", ENABLING)
@pytest.mark.parametrize("first", ENABLING)
def test_of_two_who_enable_a_table_at_once_nobody_breaks_it(
    first: str, second: str, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One waits before a step until the other one waits before another; then the one ends, and the
    other goes on. What either may write is there, and the table can be opened."""
    lance.write_dataset(pa.table({"id": KEYS}), uri)
    written: list[int] = []

    def enable(number: int) -> None:
        with suppress(mw.MemWalError), mw.enable(uri, "id") as table, table.writer() as writer:
            writer.upsert([{"id": number}])
            written.append(number)

    turns = Turns(monkeypatch)
    one, other = turns.thread(first, enable, 100), turns.thread(second, enable, 200)
    one.run_until_it_waits()
    other.run_until_it_waits()
    one.run_to_its_end()
    other.run_to_its_end()
    table = mw.open_table(uri)
    assert table.check().ok
    assert sorted(table.to_arrow()["id"].to_pylist()) == [*KEYS, *sorted(written)]


@pytest.mark.parametrize("error", [OSError("no answer"), mw.StoreUnavailableError("no answer")])
@pytest.mark.parametrize("step", ["mark_table", "write_record", "commit_details"])
def test_where_a_store_fails_it_is_unknown_whether_a_table_is_enabled(
    step: str, error: Exception, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(pa.table({"id": KEYS}), uri)
    with monkeypatch.context() as patched:
        patched.setattr(create, step, Mock(side_effect=error))
        with pytest.raises(mw.OutcomeUnknownError, match="no answer"):
            mw.enable(uri, "id")
    assert mw.enable(uri, "id").check().ok


@pytest.mark.parametrize("lenient", ["", "IF NOT EXISTS "])
@pytest.mark.parametrize("name", ["t", "lake.public.t"])
def test_sql_ends_it_too(
    name: str, lenient: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "t.lance")
    cut_off(monkeypatch, partial(make, uri))
    ctx = datafusion.SessionContext()
    mw.catalog(ctx, tmp_path, "lake")
    place = f" LOCATION '{uri}'" if name == "t" else ""
    statement = (
        f"{name} (id BIGINT, at INT, n BIGINT, PRIMARY KEY (id, at)) "
        f"PARTITIONED BY ({REGIONS}){place}"
    )
    mw.sql(ctx, f"CREATE TABLE {lenient}{statement}")
    mw.sql(ctx, f"INSERT INTO {name} VALUES (1, 2, 3)")
    assert mw.sql(ctx, f"SELECT n FROM {name}").to_pylist() == [{"n": 3}]
    with pytest.raises(mw.InvalidCallError, match="has a table of this name"):
        mw.sql(ctx, f"CREATE TABLE {statement}")


def test_of_two_that_make_it_at_once_one_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At each step of the first one comes another, with other regions."""
    whole = Steps(inf, "before", interrupts)
    for nth in range(1, begin(str(folder / "whole"), whole, monkeypatch) + 1):
        place, made = folder / f"table-{nth}", list[str]()

        def making(regions: str, place: Path = place, made: list[str] = made) -> None:
            with suppress(mw.InvalidCallError):
                mw.create_table(place, SCHEMA, KEY, regions)
                made.append(regions)

        with Steps(nth, "before", partial(making, "bucket(id, 3)")).around(monkeypatch):
            making(REGIONS)
        table = mw.open_table(place)
        with table.writer() as writer:
            writer.upsert(ROWS)
        assert table.check().ok
        [spec] = table.info.region_specs
        assert [text_of(spec)] == made
