"""A deadline that the caller sets: no request begins after it, and the error says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base.tasks import map_concurrently, map_in_threads
from memwal_sql.errors import DeadlineExceededError, OutcomeUnknownError, StoreUnavailableError
from memwal_sql.storage import deadlines
from memwal_sql.storage.deadlines import check_deadline, remaining, unbounded
from memwal_sql.storage.objects.concurrent import ReadWindow
from memwal_sql.storage.objects.create_once import settle_put
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.objects.remote import RemoteStore
from memwal_sql.storage.retries import with_retries
from memwal_sql.storage.wal.log import Wal
from memwal_sql.write.wal_writer import WalWriter
from tests.each import each
from tests.model.s3 import Requests, s3_server

pytestmark = pytest.mark.slow

READS = ("GET", "HEAD", "LIST")
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("v", pa.int64())])


class Clock:
    """In the place of the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(deadlines, "time", clock)
    return clock


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Requests, dict[str, str]]]:
    seen = Requests()
    with s3_server("deadlines", around=seen.around) as options:
        yield seen, options


@each("seconds", [0, -1, float("nan"), True, "1s", None])
def test_a_deadline_is_a_number_of_seconds(seconds: Any) -> None:
    with pytest.raises(mw.InvalidCallError, match="seconds="), mw.deadline(seconds):
        raise AssertionError("it was taken")


def test_the_earliest_of_several_counts_and_what_must_be_finished_has_none(clock: Clock) -> None:
    assert remaining() == float("inf")
    with mw.deadline(5):
        with mw.deadline(9):
            assert remaining() == 5
        with mw.deadline(2):
            clock.now = 3
            with pytest.raises(DeadlineExceededError, match=r"deadline of 2 s.*again"):
                check_deadline("a request")
            with unbounded():
                check_deadline("a request")
        check_deadline("a request")
    assert remaining() == float("inf")


@pytest.mark.parametrize("mapped", [map_concurrently, lambda *a: map_in_threads(*a, 4)])
def test_it_counts_in_the_threads_that_a_call_waits_for(mapped: Any, clock: Clock) -> None:
    with mw.deadline(7):
        assert mapped(lambda _: remaining(), range(5)) == [7] * 5
    assert mapped(lambda _: remaining(), range(5)) == [float("inf")] * 5
    with ThreadPoolExecutor(1) as pool, mw.deadline(7):
        assert pool.submit(remaining).result() == float("inf"), "another thread has its own"


def test_nothing_is_tried_again_after_it_nor_slept_for(clock: Clock) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.now += 0.4

    def fail() -> None:
        raise StoreUnavailableError("the store is away")

    with mw.deadline(1), pytest.raises(StoreUnavailableError):
        with_retries(fail, "a test", on=StoreUnavailableError, sleep=sleep)
    assert len(slept) == 3
    assert max(slept) <= 1


REQUESTS: dict[str, Callable[[Any], object]] = {
    "get": lambda store: store.get("a"),
    "get_tail": lambda store: store.get_tail("a", 1),
    "get_range": lambda store: store.get_range("a", 0, 1),
    "put": lambda store: store.put("b", b"1"),
    "put_if_absent": lambda store: store.put_if_absent("c", b"1"),
    "exists": lambda store: store.exists("a"),
    "list": lambda store: store.list("folder"),
    "list_folders": lambda store: store.list_folders("folder"),
    "delete": lambda store: store.delete(["a"]),
    "delete_in_bulk": lambda store: store.delete_in_bulk(["a", "b"]),
    "move": lambda store: store.move("folder", "other"),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_no_request_begins_after_it(
    name: str, served: tuple[Requests, dict[str, str]], clock: Clock
) -> None:
    seen, options = served
    store = open_store("s3://deadlines/requests", options)
    with mw.deadline(1):
        clock.now = 1
        seen.take()
        with pytest.raises(DeadlineExceededError, match=r"deadline of 1 s.*again"):
            REQUESTS[name](store)
    assert seen.take() == []


class _Lossy:
    """A store that answers no put in time."""

    service = None

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def put_if_absent(self, path: str, data: bytes) -> bool:
        check_deadline(path)
        self._clock.now = 99
        raise OutcomeUnknownError(f"no answer to {path}")

    def get(self, path: str) -> bytes:
        check_deadline(path)
        raise AssertionError("asked after the deadline")


def test_a_put_whose_outcome_is_open_at_the_deadline_says_so(clock: Clock) -> None:
    store: Any = _Lossy(clock)
    with mw.deadline(9), pytest.raises(OutcomeUnknownError, match=r"written.*deadline of 9 s"):
        settle_put(store, "a", b"1")
    with mw.deadline(9):
        clock.now += 9
        with pytest.raises(DeadlineExceededError):
            settle_put(store, "a", b"1")


@pytest.mark.parametrize("step", range(6))
def test_a_write_whose_deadline_ends_with_any_of_its_commits_is_done_or_says_so(
    step: int,
    served: tuple[Requests, dict[str, str]],
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is committed then is looked after, so that it is known whether it counts."""
    uri = f"s3://deadlines/{uuid4().hex}"
    table = mw.create_table(uri, SCHEMA, "id", storage_options=served[1])
    with table.writer() as writer:
        writer.upsert({"id": [1], "v": [0]})
    put, left = RemoteStore.put_if_absent, [step]

    def slow(self: RemoteStore, path: str, data: bytes) -> bool:
        landed = put(self, path, data)
        left[0] -= 1
        clock.now += 9 if left[0] == 0 else 0
        return landed

    monkeypatch.setattr(RemoteStore, "put_if_absent", slow)
    writer, done = table.writer(), False
    with mw.deadline(9), suppress(DeadlineExceededError):
        clock.now += 9 if step == 0 else 0
        writer.upsert({"id": [1], "v": [1]})
        done = True
    assert table.get([1])["v"].to_pylist() == [int(done)]
    writer.upsert({"id": [1], "v": [2]})
    assert table.get([1])["v"].to_pylist() == [2]
    writer.close()


def test_an_entry_that_is_begun_is_seen_through_by_whoever_appends(
    served: tuple[Requests, dict[str, str]], clock: Clock
) -> None:
    region = uuid4()
    wal = Wal(open_store(f"s3://deadlines/{uuid4().hex}", served[1]), region)
    rows = pa.record_batch({"id": [1]})
    writer = WalWriter(wal, region, 1, 1, rows.schema)
    with mw.deadline(9):
        clock.now += 9
        assert writer.append(rows, 1) == 1


def test_calls_of_a_table_end_at_it_and_go_on_afterwards(
    served: tuple[Requests, dict[str, str]], clock: Clock, within: Callable[[Any], Any]
) -> None:
    within(ReadWindow.set(seconds=0.0))
    seen, options = served
    uri = f"s3://deadlines/{uuid4().hex}"
    rows = {"id": [1, 2, 3], "v": [1, 2, 3]}
    table = mw.create_table(uri, SCHEMA, "id", storage_options=options)
    with table.writer() as writer:
        calls: list[Callable[[], object]] = [
            lambda: writer.upsert(rows),
            lambda: writer.delete({"id": [3]}),
            lambda: writer.insert({"id": [4], "v": [4]}),
            writer.flush,
            lambda: table.get([1]),
            lambda: table.scan().read_all(),
            table.merge,
            table.build_indexes,
            table.snapshot_regions,
            table.collect_garbage,
            lambda: table.checkpoint("now"),
            lambda: mw.open_table(uri, storage_options=options),
            lambda: mw.create_table(f"{uri}-new", SCHEMA, "id", storage_options=options),
        ]
        for call in calls:
            with mw.deadline(5):
                clock.now += 5
                seen.take()
                with pytest.raises(DeadlineExceededError, match="again"):
                    call()
                changes = [one for one in seen.take() if one.split()[0] not in READS]
            # What was sealed is flushed in the background.
            assert not changes or call == writer.flush
            call()
    found = mw.open_table(uri, storage_options=options).scan().read_all()
    assert found.sort_by("id").to_pydict() == {"id": [1, 2, 4], "v": [1, 2, 4]}
