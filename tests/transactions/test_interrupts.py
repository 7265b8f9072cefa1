"""Ctrl-C within a transaction, entries that fail beside it, and what is left of it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from itertools import count, product
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import pytest

import memwal_sql as mw
from memwal_sql.errors import CorruptFileError, MemWalError
from memwal_sql.state.memtable import MemTable
from memwal_sql.storage.records.transactions import Transactions
from memwal_sql.write import coordinator
from memwal_sql.write.commit_queue import PendingWrites
from memwal_sql.write.conditional.recent import RecentWrites
from memwal_sql.write.coordinator import AtomicWrite
from memwal_sql.write.generations import OpenGenerations
from memwal_sql.write.region_writer import RegionWriter
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.interrupts import Interrupt, at_line
from tests.model.opened import opened_over
from tests.model.process import as_another_process
from tests.model.waiting import LONGEST_SECONDS, eventually, reached
from tests.soak import IS_SOAK
from tests.transactions.tables import created, elsewhere, rows, values


def started(call: Callable[[], object]) -> Thread:
    def run() -> None:
        with suppress(MemWalError):
            call()

    thread = Thread(target=run, daemon=True)
    thread.start()
    return thread


def ended(*threads: Thread) -> bool:
    for thread in threads:
        thread.join(LONGEST_SECONDS)
    return not any(thread.is_alive() for thread in threads)


def atomically(writer: mw.TableWriter, table: mw.Table, second: mw.Table) -> Callable[[], object]:
    return lambda: writer.upsert(rows(3), atomic=True)


def over_two(writer: mw.TableWriter, table: mw.Table, second: mw.Table) -> Callable[[], object]:
    """The commit of rows for another table too, whose writer is buffered."""
    tx = mw.transaction(table, second)
    tx.upsert(table, rows(3))
    tx.upsert(second, rows(3))
    return tx.commit


def has_intent(region: RegionWriter) -> bool:
    return region._pending.intents > 0


CALLS = [(atomically, False), (over_two, False), (over_two, True)]


def test_an_entry_that_meets_a_fence_while_a_buffered_transaction_waits_for_it_ends(
    fast_folder: Path,
) -> None:
    for number, (call, durable) in enumerate(CALLS):
        uri = created(str(fast_folder / f"a{number}"))
        other = created(str(fast_folder / f"b{number}"))
        stores: list[FaultyStore] = []

        def faulty(inner: Any, stores: list[FaultyStore] = stores) -> FaultyStore:
            stores.append(FaultyStore(inner))
            return stores[-1]

        table = opened_over(uri, faulty)
        writer = table.writer(durable=durable, wal_flush_interval_s=3600)
        second = mw.open_table(other)
        buffered = second.writer(durable=False)
        writer.upsert(rows(1))
        writer.sync()
        commit = call(writer, table, second)
        pause = Fault("put_if_absent", Kind.PAUSE, path="/wal/")
        for store in stores:
            store.plan.append(pause)

        def plain(writer: mw.TableWriter = writer) -> None:
            writer.upsert({"id": [100], "v": [2]})
            writer.sync()

        beside = started(plain)
        reached(pause.paused)
        transaction = started(commit)
        eventually(partial(has_intent, *writer.region_writers))
        with as_another_process(), mw.open_table(uri).writer(turns=False) as fencing:
            fencing.upsert(rows(9))
        pause.resume.set()
        assert ended(beside, transaction), (call.__name__, durable)
        for one in (writer, buffered):
            with suppress(mw.ReopenError):
                one.close()
        assert elsewhere(uri) - {2} in ({3}, {9}), (call.__name__, durable)
        if call is over_two:
            assert (3 in elsewhere(uri)) == (elsewhere(other) == {3}), durable


STRIDE = 1 if IS_SOAK else 17
CALLED: list[tuple[type, str]] = [
    (PendingWrites, "add"),
    (RecentWrites, "add"),
    (PendingWrites, "take_intent"),
    (OpenGenerations, "begin_intent"),
    (OpenGenerations, "end_intent"),
    (OpenGenerations, "landed"),
    (MemTable, "append"),
    (RegionWriter, "enqueue_intent"),
    (RegionWriter, "begin_intent"),
    (RegionWriter, "end_intent"),
    (RegionWriter, "_end_commit"),
    (AtomicWrite, "_put_record"),
]


def interrupt() -> None:
    raise Interrupt


@contextmanager
def at_call(owner: type, name: str, nth: int, *, after: bool) -> Iterator[None]:
    call, calls = getattr(owner, name), 0

    def struck(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == nth and not after:
            raise Interrupt
        result = call(*given, **named)
        if calls == nth:
            raise Interrupt
        return result

    with patch.object(owner, name, struck):
        yield


def strikes() -> Iterator[tuple[object, AbstractContextManager[object]]]:
    for (owner, name), nth, after in product(CALLED, (1, 2) if IS_SOAK else (2,), (False, True)):
        nth = 1 if name == "_put_record" else nth
        yield (name, nth, after), at_call(owner, name, nth, after=after)
    for line in count(STRIDE, STRIDE):
        yield line, at_line(coordinator, line, interrupt)


@pytest.mark.parametrize("durable", [True, False])
def test_a_transaction_that_is_interrupted_anywhere_is_whole_and_blocks_nobody(
    fast_folder: Path, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    for number, (case, strike) in enumerate(strikes()):
        uri = created(str(fast_folder / str(number)), "bucket(id, 2)")
        table = mw.open_table(uri)
        writer = table.writer(durable=durable)
        writer.upsert(rows(1))
        writer.sync()
        finished = False
        with suppress(Interrupt), strike:
            writer.upsert(rows(2), atomic=True)
            finished = True
        seen = elsewhere(uri)
        assert seen in ({1}, {2}), case
        assert values(table) == seen, case
        with suppress(mw.ReopenError):
            writer.upsert({"id": [0], "v": list(seen)})
            writer.flush()
        with suppress(mw.ReopenError):
            writer.close()
        assert elsewhere(uri) == values(table) == seen, case
        if finished:
            assert isinstance(case, int) and case > 50
            break
    assert {args.exc_type for args in ignored} <= {Interrupt}  # within __del__


@pytest.mark.parametrize("fails", [False, True])
def test_a_transaction_gives_its_regions_back_before_it_says_that_it_was_aborted(
    fast_folder: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """Which a store that is slow, or gives a damaged record, must not keep from others."""
    uri = created(str(fast_folder / "t"), "bucket(id, 2)")
    fault = Fault("put_if_absent", Kind.REFUSED, path="/transactions/")
    table = opened_over(uri, lambda store: FaultyStore(store, [fault]))
    abort, aborts = Transactions.abort, 0
    with table.writer() as writer:
        writer.upsert(rows(1))

        def beside_others(*given: Any) -> Any:
            nonlocal aborts
            aborts += 1
            assert ended(started(lambda: writer.upsert(rows(2))))
            if fails:
                raise CorruptFileError("a damaged record")
            return abort(*given)

        monkeypatch.setattr(Transactions, "abort", beside_others)
        with pytest.raises(mw.StoreUnavailableError):
            writer.upsert(rows(3), atomic=True)
        assert aborts == 1 and elsewhere(uri) == {2}
        writer.upsert(rows(4))
    assert elsewhere(uri) == {4}


def test_a_transaction_that_is_refused_leaves_nothing_to_clean_up(
    fast_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = created(str(fast_folder / "t")), created(str(fast_folder / "a/b/c/d/e/t"))
    tables = [mw.open_table(uri) for uri in (near, far)]
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    with (
        pytest.raises(mw.UnsupportedError, match="levels apart"),
        mw.transaction(named={"n": tables[0], "f": tables[1]}) as tx,
    ):
        tx.upsert("n", rows(1))
        tx.upsert("f", rows(1))
    del tx
    gc.collect()
    assert not ignored
