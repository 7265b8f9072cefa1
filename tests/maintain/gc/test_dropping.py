"""Drops of the table that has the record of a transaction, beside others, request by request."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lance
import pytest

import memwal_sql as mw
from memwal_sql import create, drop
from memwal_sql.errors import InvalidCallError, MemWalError
from memwal_sql.state import context
from memwal_sql.storage.records.transactions import Part, TransactionRecord
from memwal_sql.write.coordinator import AtomicWrite
from tests.each import each
from tests.model.process import as_another_process
from tests.soak import IS_SOAK, usual
from tests.transactions.tables import created, elsewhere, rows, values
from tests.transactions.test_gone_homes import Pair, half
from tests.write.hooked_store import Call, Hook, HookedStore


@pytest.fixture
def pairs(fast_folder: Path) -> Iterator[Pair]:
    """Copies of two tables, of which `a` has the record of a transaction of both."""
    first = Pair(fast_folder / "first")
    first.write(1)
    first.end()

    def copies() -> Iterator[Pair]:
        number = 0
        while True:
            number += 1
            folder = fast_folder / str(number)
            shutil.copytree(first.folder, folder)
            yield Pair(folder)

    return copies()


@contextmanager
def through(hook: Hook, *, of: str = "") -> Iterator[None]:
    """Within it the requests go through a hook: those of all tables that are opened now, or of one.
    What Lance deletes is a request, too."""

    def wrapped(opened: Callable[..., Any]) -> Callable[..., Any]:
        def wrap(uri: str, *given: Any) -> Any:
            store = opened(uri, *given)
            return HookedStore(store, hook) if store.uri.endswith(of) else store

        return wrap

    drop_base = lance.LanceDataset.drop
    with ExitStack() as patched:
        for module in (create, drop, context):
            new = wrapped(module.open_store)
            patched.enter_context(patch.object(module, "open_store", new))
        by_lance = lambda *a: hook("drop", "", lambda: drop_base(*a))  # noqa: E731
        patched.enter_context(patch.object(lance.LanceDataset, "drop", by_lance))
        yield


class Steps:
    """A hook that calls `then` before each step, or before the `nth` alone; what that asks for is
    no step. Requests of one sort for files of one kind are one step, but in a soak."""

    def __init__(self, then: Callable[[], object], nth: int = 0, *, changes: bool = False) -> None:
        self.count = 0
        self._then, self._nth, self._changes = then, nth, changes
        self._seen = set[tuple[str, str]]()
        self._within = False

    def __call__(self, operation: str, path: str, call: Call) -> Any:
        kind = operation, re.sub(r"[0-9a-f]{8}.*", "", path)
        is_read = self._changes and operation.startswith(("get", "list", "exists", "leftovers"))
        if not self._within and not is_read and (IS_SOAK or kind not in self._seen):
            self._seen.add(kind)
            self.count += 1
            if self._nth in (0, self.count):
                self._within = True
                try:
                    self._then()
                finally:
                    self._within = False
        return call()


def committed(pair: Pair) -> None:
    pair.write(2)


@each("happened", [committed, half])
def test_reads_beside_a_drop_are_whole(pairs: Iterator[Pair], happened: Any) -> None:
    """Of a table that stays, by handles that were there before, and by new ones. Of the one that is
    dropped they are whole, or errors of this package."""
    pair = next(pairs)
    happened(pair)
    pair.end()
    expected = elsewhere(pair.b)
    before, dropped = mw.open_table(pair.b), mw.open_table(pair.a)
    errors = list[MemWalError]()

    def look() -> None:
        with as_another_process():
            assert values(before) == expected
            after = mw.open_table(pair.b)
            assert values(after) == expected
            assert set(after.get([0, 1, 2, 3])["v"].to_pylist()) <= expected
            assert {row["v"] for row in after.changes().read_all().to_pylist()} >= expected
            for read in (lambda: values(dropped), lambda: elsewhere(pair.a)):
                try:
                    assert read() == {max(expected & {1, 2})}
                except MemWalError as error:
                    errors.append(error)

    with through(steps := Steps(look, changes=True)):
        mw.drop_table(pair.a)
    look()
    assert steps.count > 6
    assert errors


def reads(pair: Pair) -> set[int]:
    return elsewhere(pair.b)


def writes(pair: Pair) -> set[int]:
    """As a claimant of both regions, which settles what is undecided."""
    with as_another_process(), mw.open_table(pair.b).writer(turns=False) as writer:
        writer.upsert(rows(9, range(100, 108)))
    return reads(pair)


def asks(pair: Pair) -> set[int]:
    with as_another_process():
        outcome = mw.outcome(mw.open_table(pair.b), id="given-1")
    return {2} if outcome == "committed" else {1}


Put = Callable[[], TransactionRecord]


def before_the_record(
    pair: Pair, value: int, then: Callable[[Put], TransactionRecord], **options: Any
) -> None:
    """A transaction of both tables, which others overtake when all of its intents have landed."""
    put_record = AtomicWrite._put_record

    def put(write: AtomicWrite, parts: list[Part]) -> TransactionRecord:
        pair.end()
        return then(lambda: put_record(write, parts))

    with patch.object(AtomicWrite, "_put_record", put), suppress(MemWalError):
        pair.write(value, **options)
    pair.end()


def while_looking(
    pair: Pair, call: Callable[[Pair], set[int]], nth: int
) -> tuple[bool, set[int]] | None:
    """What becomes of a transaction that is put, and whose home is dropped, before the `nth` of the
    requests to home that a call makes, and what that returns; None without such a request."""
    records, told = list[TransactionRecord](), set[int]()

    def within(put: Put) -> TransactionRecord:
        def commit_and_drop() -> None:
            records.append(put())
            mw.drop_table(pair.a)

        with through(Steps(commit_and_drop, nth), of="/a"):
            told.update(call(pair))
        return records[0] if records else put()

    before_the_record(pair, 2, within, id="given-1")
    return (records[0].committed, told & {1, 2}) if records else None


@each("call", [reads, writes, asks])
def test_a_commit_and_a_drop_while_a_verdict_is_looked_for(
    pairs: Iterator[Pair], call: Callable[[Pair], set[int]]
) -> None:
    """At any request to the home of the record: the transaction is whole, and what was told once
    stays."""
    fates = list[bool]()
    while (found := while_looking(pair := next(pairs), call, len(fates) + 1)) is not None:
        is_committed, told = found
        fates.append(is_committed)
        assert elsewhere(pair.b) & {1, 2} == ({2} if is_committed else {1}), fates
        assert told in ({1}, {2}), fates
        assert call is reads or (told == {2}) is is_committed, fates
    assert len(fates) > 2
    assert True in fates


def interrupted(pair: Pair, steps: Steps) -> None:
    """A drop that may be interrupted at a step, and is done again, beside a coordinator that puts
    its record after it."""

    def within(put: Put) -> TransactionRecord:
        with through(steps), suppress(KeyboardInterrupt):
            mw.drop_table(pair.a)
        assert elsewhere(pair.b) == {1}
        with suppress(InvalidCallError):  # nothing is there
            mw.drop_table(pair.a)
        record = put()
        assert not record.committed
        return record

    before_the_record(pair, -1, within)


def test_a_drop_that_is_interrupted_anywhere_is_done_again(pairs: Iterator[Pair]) -> None:
    """By the same call: nothing of the table is left but what keeps a coordinator from committing,
    what others have is whole, and a new table can be made."""

    def stop() -> None:
        raise KeyboardInterrupt

    interrupted(next(pairs), whole := Steps(lambda: None, changes=True))
    assert whole.count > 9
    for nth in usual(range(1, whole.count + 1), 6):
        interrupted(pair := next(pairs), Steps(stop, nth, changes=True))
        assert elsewhere(pair.b) == {1}, nth
        left = [path for path in Path(pair.a).rglob("*") if path.is_file()]
        assert len(left) == 1, nth
        created(pair.a)
        pair.write(3)
        assert elsewhere(pair.a) == elsewhere(pair.b) == {3}, nth
        assert mw.open_table(pair.b).check().ok
