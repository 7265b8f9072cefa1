"""Put-if-absent in two phases, on stores that have none (specification 4)."""

from __future__ import annotations

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest

from memwal_sql.errors import (
    CorruptFileError,
    NotFoundError,
    OutcomeUnknownError,
    StoreUnavailableError,
)
from memwal_sql.storage.objects.commit_log import Commit, CommitState, SqliteCommitLog
from memwal_sql.storage.objects.create_once import settle_put
from memwal_sql.storage.objects.local import LocalStore
from memwal_sql.storage.objects.memory import MemoryStore
from memwal_sql.storage.objects.two_phase import TwoPhaseStore
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.racing import race
from tests.model.waiting import reached
from tests.storage.stepping import PATH, StepError, Stepping, die_at


class RacyStore(MemoryStore):
    """Looks first and writes then: two puts at a time may both find the name free."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if self.exists(path):
            return False
        time.sleep(0.001)
        self.put(path, data)
        return True


@pytest.fixture(params=["memory", "local"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "memory":
        return RacyStore(f"memory://{tmp_path}")
    return LocalStore(str(tmp_path / "table"))


def contents(inner: Any) -> dict[str, bytes]:
    return {meta.path: inner.get(meta.path) for meta in inner.list("folder")}


def test_the_first_put_wins_and_leaves_one_object(inner: Any, log: SqliteCommitLog) -> None:
    store = TwoPhaseStore(inner, log)
    assert store.put_if_absent(PATH, b"one")
    assert not store.put_if_absent(PATH, b"two")
    assert contents(inner) == {PATH: b"one"}
    assert log.unfinished() == []
    assert (store.get(PATH), store.get_tail(PATH, 2)[:2], store.get_range(PATH, 0, 2)) == (
        b"one",
        (b"ne", 3),
        b"on",
    )


def test_a_put_that_is_decided_and_not_done_is_not_said_to_be_refused(
    inner: Any, log: SqliteCommitLog
) -> None:
    refused = Fault("put", Kind.REFUSED, nth=2)
    store = TwoPhaseStore(FaultyStore(inner, [refused]), log)
    with pytest.raises(OutcomeUnknownError, match="recorded"):
        store.put_if_absent(PATH, b"one")
    assert not TwoPhaseStore(inner, log).put_if_absent(PATH, b"two")
    assert contents(inner) == {PATH: b"one"}


def test_an_object_from_before_the_log_is_not_replaced(inner: Any, log: SqliteCommitLog) -> None:
    inner.put(PATH, b"old")
    assert not TwoPhaseStore(inner, log).put_if_absent(PATH, b"new")
    assert contents(inner) == {PATH: b"old"}


def test_a_deleted_name_is_free(inner: Any, log: SqliteCommitLog) -> None:
    store = TwoPhaseStore(inner, log)
    store.put_if_absent(PATH, b"one")
    store.put_if_absent("folder/other", b"kept")
    inner.put("folder/hint", b"plain")
    store.delete([PATH, "folder/hint", "folder/none"])
    assert contents(inner) == {"folder/other": b"kept"}
    assert store.put_if_absent(PATH, b"two")
    store.delete_in_bulk([PATH, "folder/other", "folder/none"])
    assert contents(inner) == {}
    assert log.read(PATH) is None


def test_a_table_removed_past_the_log_can_be_made_again(inner: Any, log: SqliteCommitLog) -> None:
    store = TwoPhaseStore(inner, log)
    store.put_if_absent(PATH, b"one")
    inner.delete([PATH])
    assert store.put_if_absent(PATH, b"two")
    assert contents(inner) == {PATH: b"two"}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_put_that_stops_at_any_step_is_finished_or_never_was(
    inner: Any, log: SqliteCommitLog, after: bool
) -> None:
    decided = 0
    step = 1
    while die_at(step, after, inner, log, lambda s: s.put_if_absent(PATH, b"one")):
        other = TwoPhaseStore(inner, log)
        decided += bool(log.unfinished())
        won = other.put_if_absent(PATH, b"two")
        assert other.get(PATH) == (b"two" if won else b"one")
        assert log.unfinished() == []
        assert [meta.path for meta in other.list("folder")] == [PATH]
        left = other.leftovers("folder")
        assert len(left) <= 1
        other.delete(meta.path for meta in left)
        assert contents(inner) == {PATH: other.get(PATH)}
        other.delete([PATH])
        assert contents(inner) == {}
        step += 1
    assert step > 6
    assert decided >= 2


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_delete_that_stops_at_any_step_is_finished_or_never_was(
    inner: Any, log: SqliteCommitLog, after: bool
) -> None:
    step = 1
    while True:
        TwoPhaseStore(inner, log).put_if_absent(PATH, b"one")
        if not die_at(step, after, inner, log, lambda s: s.delete([PATH])):
            break
        other = TwoPhaseStore(inner, log)
        begun = [commit.state for commit in log.unfinished()]
        assert begun in ([], [CommitState.DELETING])
        assert other.recover() == len(begun)
        gone = not other.exists(PATH)
        assert gone or not begun
        assert (log.read(PATH) is None) == gone
        assert other.put_if_absent(PATH, b"two") == gone
        other.delete([PATH])
        step += 1
    assert step > 3


@pytest.mark.parametrize("first", range(1, 7))
def test_a_recovery_that_stops_itself_is_taken_up_by_the_next(
    inner: Any, log: SqliteCommitLog, first: int
) -> None:
    die_at(first, False, inner, log, lambda s: s.put_if_absent(PATH, b"one"))
    pending = bool(log.unfinished())
    step = 1
    while die_at(step, True, inner, log, lambda s: s.recover()):
        step += 1
    assert log.unfinished() == []
    assert TwoPhaseStore(inner, log).exists(PATH) == (pending or first > 5)


@pytest.mark.parametrize("seed", range(8))
def test_random_puts_and_deletes_that_die_anywhere(log_file: str, seed: int) -> None:
    """Three threads, each a new process after every death, over few names. Whoever was told that
    it won has its bytes there until a delete begins; nobody else was told so; nothing is left
    unfinished."""
    memory = RacyStore(f"memory://random{seed}")
    told: dict[str, list[bytes]] = {}
    offered: dict[str, set[bytes]] = {}
    deleting: set[str] = set()
    lock = threading.Lock()

    def work(worker: int) -> None:
        rng = Random(f"{seed} {worker}")
        log = SqliteCommitLog(log_file, "table")
        for number in range(25):
            path = f"folder/{rng.randrange(12)}"
            mine = b"%d %d" % (worker, number)
            budget, after = [rng.choice([1, 2, 3, 4, 5, 6, 7, 99, 99])], rng.random() < 0.5
            store = TwoPhaseStore(Stepping(memory, budget, after), Stepping(log, budget, after))
            with lock:
                delete = rng.random() < 0.2 and path in told
                if path in deleting and not delete:
                    continue
                if delete:
                    deleting.add(path)
                else:
                    offered.setdefault(path, set()).add(mine)
            with contextlib.suppress(StepError, OutcomeUnknownError):
                if delete:
                    store.delete([path])
                elif store.put_if_absent(path, mine):
                    with lock:
                        told.setdefault(path, []).append(mine)

    race(*(partial(work, worker) for worker in range(3)))
    store = TwoPhaseStore(memory, SqliteCommitLog(log_file, "table"))
    store.recover()
    left = store.leftovers("folder")
    store.delete(meta.path for meta in left)
    found = contents(memory)
    assert store.recover() == 0
    for path, data in found.items():
        assert data in offered[path], f"seed {seed}"
    for path in told.keys() - deleting:
        assert told[path] == [found[path]], f"seed {seed}: {told[path]} won {path}"


def test_a_copy_that_comes_after_the_delete_takes_itself_back(log: SqliteCommitLog) -> None:
    memory = RacyStore("memory://late")
    fault = Fault("put", Kind.PAUSE, nth=2)
    slow = TwoPhaseStore(FaultyStore(memory, [fault]), log)
    with ThreadPoolExecutor(1) as pool:
        put = pool.submit(slow.put_if_absent, PATH, b"one")
        reached(fault.paused)
        TwoPhaseStore(memory, log).delete([PATH])
        fault.resume.set()
    assert isinstance(put.exception(), OutcomeUnknownError)
    assert contents(memory) == {}
    assert log.read(PATH) is None


def test_a_put_that_lost_finds_the_bytes_of_the_one_that_won(log: SqliteCommitLog) -> None:
    """Protocol rule 3 reads back: whoever lost finishes first what the winner began."""
    memory = RacyStore("memory://lost")

    class Overtaken(SqliteCommitLog):
        def swap(self, path: str, old: Commit | None, new: Commit | None) -> bool:
            if not log.unfinished():
                die_at(4, False, memory, log, lambda s: s.put_if_absent(PATH, b"first"))
            return super().swap(path, old, new)

    slow = TwoPhaseStore(memory, Overtaken(log._file, "table"))
    assert not slow.put_if_absent(PATH, b"second")
    assert contents(memory) == {PATH: b"first"}


def test_deleting_an_object_deletes_what_its_put_left(log: SqliteCommitLog) -> None:
    memory = RacyStore("memory://left")
    die_at(7, False, memory, log, lambda s: s.put_if_absent(PATH, b"one"))
    assert len(contents(memory)) == 2 and log.unfinished() == []
    TwoPhaseStore(memory, log).delete([PATH])
    assert contents(memory) == {}


def test_two_deletes_at_once_leave_nothing(log: SqliteCommitLog) -> None:
    memory = RacyStore("memory://deletes")
    TwoPhaseStore(memory, log).put_if_absent(PATH, b"one")
    fault = Fault("delete", Kind.PAUSE)
    slow = TwoPhaseStore(FaultyStore(memory, [fault]), log)
    with ThreadPoolExecutor(1) as pool:
        deleted = pool.submit(slow.delete, [PATH])
        reached(fault.paused)
        TwoPhaseStore(memory, log).delete([PATH])
        assert not memory.exists(PATH)
        fault.resume.set()
    deleted.result()
    assert contents(memory) == {} and log.read(PATH) is None


@pytest.mark.parametrize("kind", [Kind.REFUSED, Kind.TIMEOUT, Kind.LOST_REPLY, Kind.TORN])
@pytest.mark.parametrize("nth", [1, 2])
def test_a_failing_put_is_settled_by_reading_back(
    log: SqliteCommitLog, kind: Kind, nth: int
) -> None:
    """Protocol rule 3: the same outcome as on a store that puts if absent."""
    memory = RacyStore(f"memory://{kind.name}{nth}")
    faulty = FaultyStore(memory, [Fault("put", kind, nth=nth)])
    store = TwoPhaseStore(faulty, log)
    try:
        landed = settle_put(store, PATH, b"mine", sleep=lambda _: None) is None
    except StoreUnavailableError:
        landed = False
    faulty.check()
    TwoPhaseStore(memory, log).recover()
    if landed:
        assert memory.get(PATH) == b"mine"
    assert log.unfinished() == []


def test_damaged_bytes_are_never_copied(log: SqliteCommitLog) -> None:
    memory = RacyStore("memory://damaged")
    die_at(4, False, memory, log, lambda s: s.put_if_absent(PATH, b"one"))
    (commit,) = log.unfinished()
    memory.put(commit.source, b"onf")
    with pytest.raises(CorruptFileError, match="does not have the checksum in its name"):
        TwoPhaseStore(memory, log).put_if_absent(PATH, b"two")
    with pytest.raises(NotFoundError):
        memory.get(PATH)


def test_what_was_to_be_copied_is_gone(log: SqliteCommitLog) -> None:
    memory = RacyStore("memory://gone")
    die_at(4, False, memory, log, lambda s: s.put_if_absent(PATH, b"one"))
    (commit,) = log.unfinished()
    memory.delete([commit.source])
    other = TwoPhaseStore(memory, log)
    assert other.put_if_absent(PATH, b"two")
    assert other.get(PATH) == b"two"


def test_objects_on_their_way_are_no_leftovers(log: SqliteCommitLog) -> None:
    memory = RacyStore("memory://way")
    die_at(4, False, memory, log, lambda s: s.put_if_absent(PATH, b"one"))
    store = TwoPhaseStore(memory, log)
    assert store.list("folder") == [] and store.leftovers("folder") == []
    die_at(3, False, memory, SqliteCommitLog(log._file, "other"), _put_elsewhere)
    assert len(store.leftovers("folder")) == 1


def _put_elsewhere(store: Any) -> None:
    store.put_if_absent("folder/elsewhere", b"")
