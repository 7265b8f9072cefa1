"""Flushes to object stores: files made in a temporary folder and put side by side."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, Event, Semaphore
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql import create
from memwal_sql.errors import DeadlineExceededError, StoreUnavailableError, WriterFailedError
from memwal_sql.storage.objects import concurrent as module
from memwal_sql.storage.objects.concurrent import SharedCall, map_remote, run_with
from memwal_sql.storage.objects.local import LocalStore
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.s3 import Requests, s3_server
from tests.model.waiting import reached

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("old", pa.int64()), ("body", pa.string())])
REGIONS = 4
CLAIM = 9  # of the first write, for each region
MOST = 12  # requests of a flush for each region


def rows(first: int, last: int) -> pa.Table:
    ids = list(range(first, last))
    return pa.table({"id": ids, "old": ids, "body": [f"word{one}" for one in ids]}, SCHEMA)


def contents(table: mw.Table) -> list[dict[str, Any]]:
    found = table.scan().read_all().select(["id", "body"]).sort_by("id")
    return found.to_pylist()


def expected(last: int) -> list[dict[str, Any]]:
    return [{"id": one, "body": f"word{one}"} for one in range(last)]


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch, no_pauses: None) -> None:
    """Folders are taken for object stores."""
    monkeypatch.setattr(LocalStore, "remote", True)


@pytest.fixture
def uri(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def open_with(uri: str, faults: list[Fault]) -> tuple[Any, FaultyStore]:
    store = FaultyStore(create.open_store(uri), faults)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(create, "open_store", lambda *_, **__: store)
        return mw.open_table(uri), store


@pytest.mark.slow
def test_requests_of_a_flush(scratch: Path) -> None:
    """At most so many a region, and none that asks what the writer knows."""
    seen = Requests()
    with s3_server("tables", around=seen.around) as options:
        uri = "s3://tables/flushed"
        regions = [mw.bucket("id", REGIONS)]
        mw.create_table(uri, SCHEMA, "id", regions=regions, storage_options=options)
        table = mw.open_table(uri, storage_options=options)
        with table.writer() as writer:
            for last in (400, 800):  # the second one finds a hint, and generations
                seen.take()
                writer.upsert(rows(last - 400, last))
                requests = seen.take()
                assert len(requests) <= (CLAIM * REGIONS if last == 400 else REGIONS), requests
                writer.flush()
                requests = seen.take()
                assert len(requests) <= MOST * REGIONS + 1, requests
                kinds = {one.partition(" ")[0] for one in requests}
                assert kinds == {"GET", "HEAD", "PUT"}
                assert [one for one in requests if one.startswith("GET") and "_gen_" in one] == []
        assert contents(mw.open_table(uri, storage_options=options)) == expected(800)
        table.merge()
        assert contents(mw.open_table(uri, storage_options=options)) == expected(800)
    assert os.listdir(scratch) == []


def test_lance_reads_a_generation_as_if_it_had_written_it(
    uri: str, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a base table whose columns have ids of their own, and with its indexes."""
    table = mw.create_table(uri, SCHEMA, "id")
    table.create_index("body", "FTS")
    lance.dataset(uri).drop_columns(["old"])
    found = []
    for generation, remote in ((1, False), (2, True)):
        monkeypatch.setattr(LocalStore, "remote", remote)
        table = mw.open_table(uri)
        with table.writer() as writer:
            writer.upsert(rows(0, 500).drop_columns(["old"]))
            writer.flush()
        (place,) = Path(uri).glob(f"_mem_wal/*/*_gen_{generation}")
        dataset = lance.dataset(str(place))
        kept = [one["version"] for one in dataset.versions()]
        assert kept[-1] == dataset.version and (len(kept) == 1) is remote
        taken = dataset.to_table(filter="id = 77", with_row_address=True)
        indexes = [
            (one.name, one.index_type, one.num_rows_indexed) for one in dataset.describe_indices()
        ]
        ids = [(one.name(), one.id()) for one in dataset.lance_schema.fields()]
        matched = dataset.to_table(full_text_query="word42").to_pylist()
        kind = type(dataset.read_transaction(dataset.version).operation)
        names = sorted(os.listdir(place / "_pk_index"))
        assert dataset.validate() is None
        found.append((taken.to_pylist(), indexes, ids, matched, kind, names))
    assert found[0] == found[1]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Kind.REFUSED, Kind.TIMEOUT, Kind.LOST_REPLY, Kind.TORN])
def test_a_put_of_a_flush_that_fails_leaves_the_rows_in_the_wal(
    uri: str, scratch: Path, remote: None, kind: Kind
) -> None:
    """Every put of it in turn; what is tried again is written under another name."""
    nth = 0
    while True:
        nth += 1
        mw.create_table(place := f"{uri}-{nth}", SCHEMA, "id")
        for attempts in (1, 2):
            fault = Fault("put", kind, nth, "_gen_")
            table, _ = open_with(place, [fault])
            with table.writer(flush_attempts=attempts) as writer:
                writer.upsert(rows(0, 20))
                if attempts == 1 and nth <= 5:
                    with pytest.raises(WriterFailedError, match="safe in the WAL"):
                        writer.flush()
                else:
                    writer.flush()
            assert os.listdir(scratch) == []
            assert contents(mw.open_table(place)) == expected(20)
        if not fault.fired:
            break
    assert nth == 6  # data, manifest, bloom filter, and the two files of the keys' index


def test_a_temporary_folder_that_can_not_be_made_is_named(
    uri: str, remote: None, scratch: Path
) -> None:
    table = mw.create_table(uri, SCHEMA, "id")
    scratch.rmdir()
    with table.writer(flush_attempts=1) as writer:
        writer.upsert(rows(0, 20))
        with pytest.raises(WriterFailedError, match=f"in {scratch}, where it is made") as caught:
            writer.flush()
    assert isinstance(caught.value.__cause__, WriterFailedError | StoreUnavailableError)
    assert contents(mw.open_table(uri)) == expected(20)


def test_calls_side_by_side() -> None:
    """All at once where the store is remote, else in order; errors come once all have ended."""
    together = Barrier(3)
    assert len(set(map_remote(True, lambda _: together.wait(10), range(3)))) == 3
    ended: list[int] = []

    def fail(one: int) -> None:
        ended.append(one)
        if one < 2:
            raise ValueError(one)

    with pytest.raises(ValueError, match="0"):
        map_remote(True, fail, range(3))
    assert sorted(ended) == [0, 1, 2]
    ended.clear()
    with pytest.raises(ValueError, match="0"):
        map_remote(False, fail, range(3))
    assert ended == [0]
    both = Barrier(2)
    assert run_with(True, lambda: both.wait(10) >= 0, lambda: both.wait(10))
    order: list[str] = []
    assert run_with(False, lambda: order.append("first") or 5, lambda: order.append("then")) == 5
    assert order == ["first", "then"]


def failing() -> int:
    raise StoreUnavailableError("slow")


@pytest.mark.parametrize("outcome", [lambda: 7, failing], ids=["returns", "raises"])
def test_a_shared_call_is_made_once_for_who_comes_meanwhile(
    outcome: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[None] = []

    def call() -> int:
        calls.append(None)
        return outcome()

    shared, asked = asked_meanwhile(call, monkeypatch)
    assert len(calls) == 1 and len({one.exception() or one.result() for one in asked}) == 1
    with suppress(StoreUnavailableError):
        shared()
    assert len(calls) == 2


@pytest.mark.parametrize(
    "end",
    [KeyboardInterrupt(), TimeoutError("of the caller's"), DeadlineExceededError("over")],
    ids=repr,
)
def test_who_shares_a_call_does_not_share_what_ends_its_caller_alone(
    end: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [end]

    def call() -> int:
        if ends:
            raise ends.pop()
        return 7

    shared, (first, *others) = asked_meanwhile(call, monkeypatch)
    assert first.exception() is end
    assert [one.result() for one in others] == [7, 7, 7]
    assert shared() == 7


def asked_meanwhile(
    call: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> tuple[SharedCall[int], list[Future[int]]]:
    """A shared call, and the ended calls of four threads, of which three waited for the first."""
    came = Semaphore(0)

    class Watched(module._UnderWay[int]):
        @property
        def is_over(self) -> bool:
            if not (is_over := super().is_over):
                came.release()
            return is_over

    monkeypatch.setattr(module, "_UnderWay", Watched)
    begun, go_on = Event(), Event()

    def waiting() -> int:
        begun.set()
        reached(go_on)
        return call()

    shared = SharedCall(waiting)
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(shared)]
        reached(begun)
        asked += [pool.submit(shared) for _ in range(3)]
        for _ in range(3):
            assert came.acquire(timeout=10)
        go_on.set()
    return shared, asked
