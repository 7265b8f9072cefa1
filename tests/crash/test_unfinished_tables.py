"""Tables whose making ends at any step: told as what they are, and made by the same call.

`MEMWAL_SOAK=10` tries each pair of steps of two that make a table at once, else some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from math import inf
from pathlib import Path
from threading import Barrier, Event, Thread, current_thread
from typing import Any
from unittest.mock import Mock

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql import create
from planner.regions.text import text_of
from tests.crash.conftest import with_kinds
from tests.crash.strikes import stores_by
from tests.model.process import as_another_process
from tests.soak import IS_SOAK, usual
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


@with_kinds(
    "how, strike",
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
    for nth in usual(range(1, steps + 1), 7):
        uri = str(folder / f"table-{nth}")
        begin(uri, Steps(nth, how, strike), monkeypatch)
        try:
            table = mw.open_table(uri)
        except mw.InvalidCallError as error:
            assert "create_table" in str(error), error
            unfinished += "that call was interrupted" in str(error)
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


def cut_off(
    monkeypatch: pytest.MonkeyPatch, call: Callable[[], object], before: str = "commit_details"
) -> None:
    """Make a table without its MemWAL index."""
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(create, before, lambda *_: interrupts())
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


# Before these somebody else may do anything; a number is that of the call.
INDEXING = ["create_scalar_index", "create_scalar_index 2", "commit_details"]
ENABLING = ["open_lance", "mark_table", "write_record", *INDEXING]
CREATING = ["find_lance", "_written", "write_record", *INDEXING]
ENDING = ["find_lance", "write_record", *INDEXING]


class Turns:
    """Threads that make a table, of which each waits before a step."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._threads: dict[Thread, Turn] = {}
        for name in {step.partition(" ")[0] for step in (*ENABLING, *CREATING)}:
            owner: Any = lance.LanceDataset if name == "create_scalar_index" else create
            monkeypatch.setattr(owner, name, self._waiting(name, getattr(owner, name)))

    def turn(self, step: str, work: Callable[[], None]) -> Turn:
        """One whose thread does that work."""
        thread = Thread(target=work, daemon=True)
        self._threads[thread] = Turn(step, thread)
        return self._threads[thread]

    def _waiting(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def waits(*given: Any, **named: Any) -> Any:
            if (turn := self._threads.get(current_thread())) is not None:
                turn.comes_to(name)
            return call(*given, **named)

        return waits


@dataclass
class Turn:
    """A thread, and the step that it waits before."""

    step: str
    thread: Thread
    waits: Event = field(default_factory=Event)
    goes_on: Event = field(default_factory=Event)
    dies: bool = False
    calls: Counter[str] = field(default_factory=Counter)

    def comes_to(self, name: str) -> None:
        self.calls[name] += 1
        if self.step == (name if self.calls[name] == 1 else f"{name} {self.calls[name]}"):
            self.waits.set()
            self.goes_on.wait()
            if self.dies:
                interrupts()

    def run_until_it_waits(self) -> None:
        """Or until it has come to its end before that."""
        self.thread.start()
        while self.thread.is_alive() and not self.waits.wait(0.001):
            pass

    def run_to_its_end(self) -> None:
        self.goes_on.set()
        self.thread.join()

    def die(self) -> None:
        """Where it waits, if it does."""
        self.dies = True
        self.run_to_its_end()


@pytest.mark.parametrize("keys", [[], KEYS])
def test_enable_ends_what_it_has_begun(
    keys: list[int], uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lance.write_dataset(pa.table({"id": pa.array(keys, pa.int64())}), uri)
    cut_off(monkeypatch, partial(mw.enable, uri, "id"))
    with pytest.raises(mw.InvalidCallError, match="create_table or enable again"):
        mw.open_table(uri)
    assert mw.enable(uri, "id").to_arrow().to_pydict() == {"id": keys}


@pytest.mark.parametrize(
    "step",
    ["open_lance", "check_unique", "mark_table", "write_record", "index_primary_key"],
)
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
    with pytest.raises(error, match=r"open it, or call this again|has a MemWAL index already"):
        mw.enable(uri, "id", REGIONS)
    table = mw.open_table(uri)
    assert [text_of(spec) for spec in table.info.region_specs] == ["bucket(id, 3)"]
    assert table.check().ok


def plain(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Lance table without any marks, with rows."""
    del monkeypatch
    lance.write_dataset(ROWS, uri)


def nothing(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    del uri, monkeypatch


def begun(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table whose maker ended after its record."""
    cut_off(monkeypatch, partial(make, uri), "index_primary_key")


def enable(uri: str) -> mw.Table:
    return mw.enable(uri, KEY, REGIONS)


Make = Callable[[str, int], None]
"""Makes a table at a place, and writes a row of a key."""


def creating(uri: str, key: int) -> None:
    add(make(uri), key)


def enabling(uri: str, key: int) -> None:
    add(enable(uri), key)


def add(table: mw.Table, key: int) -> None:
    with table, table.writer() as writer:
        writer.upsert([{"id": key, "at": 0, "n": 0}])


def inserting(uri: str, key: int) -> None:
    """Unless the table is there, as a process of its own would."""
    ctx = datafusion.SessionContext()
    mw.sql(
        ctx,
        "CREATE TABLE IF NOT EXISTS t (id BIGINT, at INT, n BIGINT, PRIMARY KEY (id, at)) "
        f"PARTITIONED BY ({REGIONS}) LOCATION '{uri}'",
    )
    mw.sql(ctx, f"INSERT INTO t VALUES ({key}, 0, 0)")


@pytest.mark.parametrize("second_dies", [False, True], ids=["both", "second dies"])
@pytest.mark.parametrize(
    ("before", "first", "second", "first_steps", "second_steps"),
    [
        (plain, enabling, enabling, ENABLING, ENABLING),
        (nothing, creating, creating, CREATING, CREATING),
        (begun, creating, enabling, ENDING, ENABLING),
        (begun, enabling, creating, ENABLING, ENDING),
        (nothing, inserting, inserting, CREATING, CREATING),
    ],
)
def test_of_two_who_make_a_table_at_once_nobody_breaks_it(
    before: Callable[[str, pytest.MonkeyPatch], None],
    first: Make,
    second: Make,
    first_steps: list[str],
    second_steps: list[str],
    second_dies: bool,
    fast_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    no_pauses: None,
) -> None:
    """One waits before a step until the other one waits before another, or dies there; then the one
    ends, and the other goes on. What either may write is there, and the table can be opened."""
    pairs = product(enumerate(first_steps), enumerate(second_steps))
    for (first_place, one_step), (second_place, other_step) in pairs:
        if not IS_SOAK and (first_place + second_place + second_dies) % 6:
            continue
        uri = str(fast_folder / f"{one_step}, {other_step}")
        before(uri, monkeypatch)
        written: list[int] = []
        errors: list[Exception] = []

        def work(
            call: Make,
            key: int,
            uri: str = uri,
            written: list[int] = written,
            errors: list[Exception] = errors,
        ) -> None:
            try:
                call(uri, key)
                written.append(key)
            except mw.MemWalError as refused:
                errors.append(refused)
            except KeyboardInterrupt:
                pass

        with monkeypatch.context() as patched:
            turns = Turns(patched)
            one = turns.turn(one_step, partial(work, first, 100))
            other = turns.turn(other_step, partial(work, second, 200))
            one.run_until_it_waits()
            other.run_until_it_waits()
            if second_dies:
                other.die()
            one.run_to_its_end()
            other.run_to_its_end()
        case = f"{one_step}, {other_step}: {errors}"
        for error in errors:
            assert "or call this again" in str(error) or " already: " in str(error), case
        if first is inserting:
            assert 100 in written and (second_dies or 200 in written), case
        try:
            mw.open_table(uri)
        except mw.InvalidCallError as error:
            assert second_dies and "enable" in str(error), case
            work(first, 300)
            assert 300 in written, case
        else:
            assert written or second_dies, case
        table = mw.open_table(uri)
        assert table.check().ok, case
        keys = [*(KEYS if before is plain else []), *sorted(written)]
        assert sorted(table.to_arrow()["id"].to_pylist()) == keys, case


@pytest.mark.parametrize("call", [creating, inserting])
def test_of_many_who_make_a_table_at_the_same_moment_one_does(
    call: Make, fast_folder: Path
) -> None:
    """Lance by itself makes one table over another then, nearly every second time."""
    for turn in range(10 if IS_SOAK else 2):
        uri, at_once = str(fast_folder / f"table-{turn}"), Barrier(4)
        ended: list[int] = []

        def work(
            key: int, uri: str = uri, at_once: Barrier = at_once, ended: list[int] = ended
        ) -> None:
            at_once.wait()
            with suppress(mw.ConflictError, mw.InvalidCallError):
                call(uri, key)
            ended.append(key)

        threads = [Thread(target=work, args=(key,)) for key in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(ended) == 4
        table = mw.open_table(uri)
        assert table.check().ok
        assert table.count_rows() == (4 if call is inserting else 1)


@pytest.mark.parametrize("before", [True, False], ids=["in time", "too late to be looked for"])
@pytest.mark.parametrize("change", ["add rows", "replace rows", "add a column", "drop a column"])
def test_a_table_that_is_changed_before_it_is_marked_is_not_enabled(
    change: str, before: bool, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keys may not be unique any more, and the marks would be those of an older schema."""
    lance.write_dataset(ROWS, uri)

    def changed(*given: Any, **named: Any) -> Any:
        other = lance.dataset(uri)
        match change:
            case "add rows":
                lance.write_dataset(ROWS, other, mode="append")
            case "replace rows":
                lance.write_dataset(ROWS, uri, mode="overwrite")
            case "add a column":
                other.add_columns({"more": "n + 1"})
            case _:
                other.drop_columns(["n"])
        return real(*given, **named)

    owner, name = (create, "mark_table") if before else (lance.LanceDataset, "commit")
    real = getattr(owner, name)
    with monkeypatch.context() as patched, pytest.raises(mw.ConflictError, match="call this again"):
        patched.setattr(owner, name, changed)
        enable(uri)
    names = lance.dataset(uri).schema.names
    if change == "add rows":
        with pytest.raises(mw.InvalidCallError, match="occurs more than once"):
            enable(uri)
    else:
        assert enable(uri).schema.names == names


def test_marks_leave_the_rest_of_a_schema_as_it_is(uri: str) -> None:
    inner = pa.struct([pa.field("text", pa.string(), metadata={b"unit": b"word"})])
    columns = [
        pa.field("gone", pa.int8()),
        pa.field("nested", pa.list_(inner), metadata={b"of": b"nested"}),
        pa.field("id", pa.int64(), metadata={b"of": b"id"}),
        pa.field("kind", pa.dictionary(pa.int8(), pa.string())),
    ]
    schema = pa.schema(columns, {b"of": "text \xff".encode()})
    rows = {"gone": [1], "nested": [[{"text": "a"}]], "id": [7], "kind": ["k"]}
    dataset = lance.write_dataset(pa.table(rows, schema), uri)
    dataset.drop_columns(["gone"])
    before = dataset.schema
    ids = [one.id() for one in dataset.lance_schema.fields()]
    table = mw.enable(uri, "id")
    marked = lance.dataset(uri)
    assert [one.id() for one in marked.lance_schema.fields()] == ids
    assert [one.name() for one in marked.lance_schema.unenforced_primary_key()] == ["id"]
    assert not marked.schema.field("id").nullable
    assert marked.schema.field("id").metadata.items() >= {b"of": b"id"}.items()
    assert marked.schema.metadata.items() >= before.metadata.items()
    for name in ("nested", "kind"):
        assert marked.schema.field(name).equals(before.field(name), check_metadata=True)
    assert table.to_arrow().to_pylist() == [{"nested": [{"text": "a"}], "id": 7, "kind": "k"}]


@pytest.mark.parametrize("moved", [("_mem_wal",), ("_mem_wal", "_memwal_sql")], ids=len)
def test_a_table_that_was_overwritten_is_enabled_as_another_one(
    moved: tuple[str, ...], uri: str
) -> None:
    old = make(uri)
    with old.writer() as writer:
        writer.upsert(ROWS)
    whole = lance.dataset(uri).version
    lance.write_dataset(ROWS.slice(0, 2), uri, mode="overwrite")
    for call in (partial(mw.open_table, uri), partial(enable, uri)):
        with pytest.raises(mw.MemWalError, match="away"):
            call()
    for name in moved:
        Path(uri, name).rename(f"{uri}-{name}")
    table = enable(uri)
    assert table.count_rows() == 2
    with pytest.raises(mw.ReopenError):
        old.to_arrow()
    lance.dataset(uri, version=whole).restore()
    with pytest.raises(mw.TableReplacedError, match="copy the rows to another place"):
        mw.open_table(uri)
    lance.write_dataset(lance.dataset(uri), f"{uri}-2")
    assert mw.enable(f"{uri}-2").count_rows() == 0


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
