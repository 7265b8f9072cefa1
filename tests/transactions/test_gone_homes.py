"""Transactions whose record is not there: the table that had it was dropped, one of the others was
copied alone, or the file was lost."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pytest

import memwal_sql as mw
from memwal_sql import drop
from memwal_sql.errors import MemWalError, OutcomeUnknownError, RepairError, TransactionUnknownError
from memwal_sql.maintain.gc.collector import collect_garbage
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.table import read_record
from memwal_sql.storage.records.transactions import (
    TRANSACTIONS_FOLDER,
    Part,
    TransactionRecord,
    Transactions,
)
from memwal_sql.write.coordinator import AtomicWrite
from memwal_sql.write.wal_writer import WalWriter
from tests.each import each
from tests.model.process import as_another_process, forget_writers
from tests.transactions.tables import KEYS, SCHEMA, created, elsewhere, rows
from tests.write.hooked_store import Call, HookedStore

WEEKS = timedelta(days=30).total_seconds()


class Pair:
    """The table `a`, which has the records, and `b` with two regions. The rows of both are 0."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.a, self.b = str(folder / "a"), str(folder / "b")
        if not Path(self.a).exists():
            created(self.a)
            created(self.b, "bucket(id, 2)")
        self.end()

    def end(self) -> None:
        """The end of a process that wrote them."""
        for uri in (self.a, self.b):
            forget_writers(uri)

    def write(self, value: int, **options: Any) -> None:
        """A transaction of both."""
        tables = mw.open_table(self.a), mw.open_table(self.b)
        with mw.transaction(*tables, **options) as transaction:
            for uri in (self.a, self.b):
                transaction.upsert(mw.open_table(uri), rows(value))

    def leave(self, value: int) -> None:
        """The same, by a process that dies before the record."""
        with patch.object(AtomicWrite, "_put_record", _die), suppress(TransactionUnknownError):
            self.write(value)
        self.end()

    def write_on(self, uri: str, key: int, value: int, *, flush: bool = False) -> None:
        """Rows of one region, by the process that is there or the next one."""
        writer = mw.open_table(uri).writer()
        writer.upsert({"id": [key], "v": [value]})
        if flush:
            writer.flush()

    def copy(self) -> str:
        """A copy of `b` alone."""
        copy = self.folder / "copies" / "b"
        shutil.copytree(self.b, copy)
        return str(copy)

    def drop(self) -> None:
        self.end()
        mw.drop_table(self.a)

    def lose_records(self) -> None:
        self.end()
        store = open_store(self.a)
        Transactions(store).delete(Transactions(store).ids())


def _die(*_: Any) -> TransactionRecord:
    raise TransactionUnknownError("the process died", "id") from OutcomeUnknownError("dead")


def of_a_region(pair: Pair, which: int) -> int:
    """A key of one of the regions of `b`."""
    keys = {
        row["_region"]: row["id"] for row in mw.open_table(pair.b).changes().read_all().to_pylist()
    }
    return keys[sorted(keys)[which]]


Change = Callable[[Pair], object]


def refused(pair: Pair) -> None:
    pair.leave(-1)


def settled(pair: Pair) -> None:
    """Refused, and a claimant of one region has said so and written on."""
    refused(pair)
    pair.write_on(pair.b, 100, 0)


def settled_and_flushed(pair: Pair) -> None:
    refused(pair)
    pair.write_on(pair.b, 100, 0, flush=True)


def collected(pair: Pair) -> None:
    """Refused, and the record of that was collected."""
    settled(pair)
    pair.lose_records()


def half(pair: Pair) -> None:
    """Only one of the two intents of `b` has landed."""
    append, seen = WalWriter.append, list[object]()

    def once(writer: WalWriter, *given: Any, **also: Any) -> int:
        if also.get("intent") is not None:
            seen.append(writer)
            if len(seen) > 2:
                raise MemWalError("the process died")
        return append(writer, *given, **also)

    abort = patch.object(Transactions, "abort", _die)
    with patch.object(WalWriter, "append", once), abort, suppress(MemWalError):
        pair.write(-1)
    pair.end()


def dropped(pair: Pair) -> str:
    pair.drop()
    return pair.b


def copied(pair: Pair) -> str:
    pair.end()
    return pair.copy()


def restored(pair: Pair) -> str:
    """`b` is put in another place, and another table is where `a` was."""
    pair.end()
    copy = pair.copy()
    created(str(Path(copy).parent / "a"))
    return copy


@each(
    "happened, gone",
    [
        (happened, gone)
        for happened in (refused, settled, settled_and_flushed, collected, half)
        for gone in (dropped, copied, restored)
    ],
)
def test_refused_rows_never_come_back(tmp_path: Path, happened: Change, gone: Any) -> None:
    pair = Pair(tmp_path)
    happened(pair)
    assert -1 not in elsewhere(pair.b)
    uri = gone(pair)
    assert elsewhere(uri) == {0}
    pair.write_on(uri, 101, 0)
    assert elsewhere(uri) == {0}
    mw.open_table(uri).flush()
    assert elsewhere(uri) == {0}


def nothing(pair: Pair) -> None:
    pass


def writes_on(pair: Pair) -> None:
    pair.write_on(pair.b, of_a_region(pair, 0), 1)


def next_process_writes_on(pair: Pair) -> None:
    pair.end()
    writes_on(pair)


def flushes_one(pair: Pair) -> None:
    """The log of one region is flushed and collected; that of the other one is not."""
    key = of_a_region(pair, 0)
    for _ in range(2):
        pair.end()
        pair.write_on(pair.b, key, 1, flush=True)
        mw.open_table(pair.b).merge()
    pair.end()
    mw.open_table(pair.b).collect_garbage(older_than=timedelta(0))


@each("then", [nothing, writes_on, next_process_writes_on])
def test_a_drop_leaves_what_was_acknowledged(tmp_path: Path, then: Change) -> None:
    """In all regions of the other table; and the next transaction with it works."""
    pair = Pair(tmp_path)
    pair.write(1)
    then(pair)
    pair.drop()
    assert elsewhere(pair.b) == {1}
    assert not (tmp_path / "a" / TRANSACTIONS_FOLDER).exists() or not list(
        (tmp_path / "a" / TRANSACTIONS_FOLDER).iterdir()
    )
    pair.write_on(pair.b, 101, 1)
    created(pair.a)
    assert elsewhere(pair.b) == {1}
    pair.write(2)
    assert elsewhere(pair.a) == {2}
    assert elsewhere(pair.b) == {1, 2}
    assert mw.open_table(pair.b).check().ok


@each("then", [writes_on, next_process_writes_on, flushes_one])
def test_a_copy_of_one_table_has_all_of_a_transaction_or_nothing(
    tmp_path: Path, then: Change
) -> None:
    """One of its regions says that it was committed, so that it was in the other one, too."""
    pair = Pair(tmp_path)
    pair.write(1)
    then(pair)
    pair.end()
    copy = pair.copy()
    assert elsewhere(copy) == {1}
    pair.write_on(copy, 101, 1)
    assert elsewhere(copy) == {1}


def test_a_copy_without_a_verdict_leaves_the_rows_out_and_check_says_so(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.write(1)
    pair.end()
    copy = pair.copy()
    assert elsewhere(copy) == {0}
    with as_another_process():
        found = mw.open_table(copy).check()
    assert not found.ok
    assert "has no verdict, as the table with its record, at ../a, is gone" in str(found)
    shutil.copytree(pair.a, tmp_path / "copies" / "a")
    assert elsewhere(copy) == {1}


def same_writer_writes_on(pair: Pair) -> None:
    table = mw.open_table(pair.b)
    with table.writer() as writer:
        writer.upsert(rows(0))
        pair.write(1)
        for which in (0, 1):
            writer.upsert({"id": [of_a_region(pair, which)], "v": [2]})


def next_transaction_comes(pair: Pair) -> None:
    pair.write(1)
    pair.write(2)
    for which in (0, 1):
        pair.write_on(pair.b, of_a_region(pair, which), 1)


def others_write_on(pair: Pair) -> None:
    pair.write(1)
    pair.end()
    for which in (0, 1):
        pair.write_on(pair.b, of_a_region(pair, which), 2)


@each("committed", [same_writer_writes_on, next_transaction_comes, others_write_on])
def test_the_log_says_what_was_committed_where_the_record_is_lost(
    tmp_path: Path, committed: Change
) -> None:
    pair = Pair(tmp_path)
    committed(pair)
    before = elsewhere(pair.b)
    assert before == {1, 2}
    pair.lose_records()
    assert elsewhere(pair.b) == before
    with as_another_process():
        assert "its record is missing" in str(mw.open_table(pair.b).check())
    pair.write_on(pair.b, 101, 2)  # a claim
    pair.end()
    assert elsewhere(pair.b) == before


def test_a_feed_has_what_the_manifest_says_was_committed(tmp_path: Path) -> None:
    """The record is lost, nothing is behind the entries, and they are flushed."""
    pair = Pair(tmp_path)
    pair.write(1)
    pair.end()
    mw.open_table(pair.b).flush()
    pair.lose_records()
    assert elsewhere(pair.b) == {1}
    with as_another_process():
        feed = mw.open_table(pair.b).changes().read_all()
    assert feed["v"].to_pylist().count(1) == len(KEYS)


def test_a_log_whose_writer_went_on_without_a_verdict_is_damaged(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    forgetful = patch.object(WalWriter, "note", lambda *_: None)
    table = mw.open_table(pair.b)
    with table.writer() as writer, forgetful:
        writer.upsert(rows(0))
        pair.write(1)
        writer.upsert({"id": [of_a_region(pair, 0)], "v": [2]})
    assert elsewhere(pair.b) == {1, 2}
    pair.lose_records()
    with pytest.raises(RepairError, match="does not say whether it was committed"):
        elsewhere(pair.b)


def test_a_coordinator_that_slept_through_a_drop_commits_nothing(tmp_path: Path) -> None:
    """The drop has settled its transaction, and the record of that outlives the table."""
    pair = Pair(tmp_path)
    put = AtomicWrite._put_record

    def after_drop(write: AtomicWrite, parts: list[Part]) -> TransactionRecord:
        with as_another_process():
            mw.drop_table(pair.a)
            pair.write_on(pair.b, 100, 0)
        return put(write, parts)

    with patch.object(AtomicWrite, "_put_record", after_drop), pytest.raises(MemWalError):
        pair.write(-1)
    pair.end()
    assert elsewhere(pair.b) == {0}


def test_a_coordinator_that_wakes_up_within_a_drop_commits_nothing(tmp_path: Path) -> None:
    """What says that its transaction is aborted is there all the time; and what says that another
    one is committed is found all the time."""
    pair = Pair(tmp_path)
    pair.write(1)
    pair.end()
    put, hand_over = AtomicWrite._put_record, drop.settle_and_hand_over
    drop_base, open_store_ = lance.LanceDataset.drop, drop.open_store
    verdicts, seen = list[bool](), list[set[int]]()

    def within_drop(write: AtomicWrite, parts: list[Part]) -> TransactionRecord:
        def after(call: Callable[..., Any], *given: Any) -> Any:
            result = call(*given)
            verdicts.append(put(write, parts).committed)
            seen.append(elsewhere(pair.b))
            return result

        def hook(operation: str, _: str, call: Call) -> Any:
            return after(call) if verdicts and operation.startswith("delete") else call()

        with (
            patch.object(drop, "settle_and_hand_over", partial(after, hand_over)),
            patch.object(lance.LanceDataset, "drop", partial(after, drop_base)),
            patch.object(drop, "open_store", lambda *a: HookedStore(open_store_(*a), hook)),
        ):
            mw.drop_table(pair.a)
        return put(write, parts)

    with patch.object(AtomicWrite, "_put_record", within_drop), pytest.raises(MemWalError):
        pair.write(-1)
    pair.end()
    assert len(verdicts) > 2
    assert not any(verdicts)
    assert {1} == set().union(*seen) == elsewhere(pair.b)


@each("opened_before, key", product([True, False], [0, 100]))
def test_nobody_writes_a_table_that_is_being_dropped(
    tmp_path: Path, opened_before: bool, key: int
) -> None:
    """Neither a region that is there, claimed again, nor a new one: the records of the table have
    been handed over by then."""
    pair = Pair(tmp_path)
    pair.a = mw.create_table(str(tmp_path / "0"), SCHEMA, "id", regions="identity(id)").uri
    pair.write_on(pair.a, 0, 0)
    pair.end()
    handles = [mw.open_table(pair.a), mw.open_table(pair.b)]
    hand_over, raised = drop.settle_and_hand_over, list[MemWalError]()

    def then_written(*given: Any) -> Any:
        stay = hand_over(*given)
        try:
            a, b = handles if opened_before else map(mw.open_table, (pair.a, pair.b))
            with mw.transaction(a, b) as tx:
                tx.upsert(a, {"id": [key], "v": [1]})
                tx.upsert(b, rows(1))
        except MemWalError as error:
            raised.append(error)
        return stay

    with patch.object(drop, "settle_and_hand_over", then_written):
        mw.drop_table(pair.a)
    (error,) = raised
    assert isinstance(error, mw.TableReplacedError), error
    assert ("is being dropped" in str(error)) is opened_before
    pair.end()
    assert elsewhere(pair.b) == {0}


def test_a_drop_that_failed_is_done_again(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.write(1)
    pair.end()
    with patch.object(drop, "settle_and_hand_over", _die), pytest.raises(TransactionUnknownError):
        mw.drop_table(pair.a)
    with patch.object(Transactions, "hand_over", _die), pytest.raises(TransactionUnknownError):
        mw.drop_table(pair.a)
    assert elsewhere(pair.a) == {1}
    with pytest.raises(mw.TableReplacedError, match=r"is being dropped.* call it again"):
        pair.write_on(pair.a, 1, 2)
    mw.drop_table(pair.a)
    assert elsewhere(pair.b) == {1}


@each("given", [None, "given-1"])
def test_a_table_that_was_only_read_has_no_record(tmp_path: Path, given: str | None) -> None:
    """The drop of it would find no intent there, so it would keep nobody from committing."""
    pair = Pair(tmp_path)
    put, hand_over = AtomicWrite._put_record, drop.settle_and_hand_over

    def within_drop(write: AtomicWrite, parts: list[Part]) -> TransactionRecord:
        def settled(*given: Any) -> Any:
            stay = hand_over(*given)
            record.append(put(write, parts))
            return stay

        record = list[TransactionRecord]()
        with as_another_process(), patch.object(drop, "settle_and_hand_over", settled):
            mw.drop_table(pair.a)
        return record[0]

    a, b = mw.open_table(pair.a), mw.open_table(pair.b)
    with (
        patch.object(AtomicWrite, "_put_record", within_drop),
        mw.transaction(a, b, id=given) as tx,
    ):
        assert tx.sql("SELECT max(v) AS v FROM a").to_pydict() == {"v": [0]}
        tx.upsert(b, rows(1))
    assert tx.result is not None
    assert elsewhere(pair.b) == {1}
    pair.end()
    assert elsewhere(pair.b) == {1}
    assert mw.outcome(mw.open_table(pair.b), id=tx.result.id) == "committed"


def test_an_id_is_looked_up_in_all_tables(tmp_path: Path) -> None:
    """The first one is read by both, and written by the second attempt alone."""
    pair = Pair(tmp_path)
    a, b = mw.open_table(pair.a), mw.open_table(pair.b)
    late = mw.transaction(a, b, id="given-1")
    with mw.transaction(a, b, id="given-1") as tx:
        tx.sql("SELECT v FROM a").to_pydict()
        tx.upsert(b, {"id": [1], "v": [1]})
    late.upsert(a, rows(2))
    with pytest.raises(mw.ConflictError, match="another transaction with the id given-1"):
        late.commit()
    for tables in ((a, b), (b, a)):
        assert mw.transaction(*tables, id="given-1").committed
        assert mw.outcome(*tables, id="given-1") == "committed"
    assert elsewhere(pair.a) == {0}


def test_records_that_were_handed_over_go_when_nobody_needs_them(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.write(1)
    pair.drop()
    folder = Path(pair.b) / TRANSACTIONS_FOLDER
    (handed,) = folder.iterdir()

    def collect(after: float) -> None:
        context = mw.open_table(pair.b).context
        collect_garbage(context, older_than=timedelta(0), clock=lambda: handed_at + after)

    handed_at = handed.stat().st_mtime
    collect(WEEKS)
    assert handed.exists()  # the intents are not flushed
    table = mw.open_table(pair.b)
    for value in (1, 1):
        with table.writer() as writer:
            writer.upsert(rows(value))
            writer.flush()
        table.merge()
    assert elsewhere(pair.b) == {1}
    for _ in range(2):
        collect(3600)
    assert handed.exists()
    for _ in range(2):
        collect(WEEKS)
    assert not handed.exists()
    assert elsewhere(pair.b) == {1}
    assert read_record(open_store(pair.b)) is not None
