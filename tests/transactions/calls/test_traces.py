"""A transaction is found from any table that it has written, wherever its record is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import memwal_sql as mw
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.transactions import Transactions
from memwal_sql.write.coordinator import AtomicWrite
from tests.each import each
from tests.model.process import ProcessKilledError, as_another_process, forget_writers
from tests.transactions.tables import created, rows, values


def _nothing(_: list[str]) -> None: ...


def _written(uris: list[str]) -> None:
    with mw.open_table(uris[1]).writer() as writer:
        writer.upsert(rows(5, [99]))


def _flushed(uris: list[str]) -> None:
    _written(uris)
    for uri in uris:
        mw.open_table(uri).flush()


def _collected(uris: list[str]) -> None:
    _flushed(uris)
    for uri in uris:
        table = mw.open_table(uri)
        table.merge()
        table.collect_garbage(older_than=timedelta(0))


def _dropped(uris: list[str]) -> None:
    mw.drop_table(uris[0])


MEANWHILE = [_nothing, _written, _flushed, _collected, _dropped]


def _commit(uris: list[str], value: int, name: str) -> str:
    """The tables of a transaction that both tables have rows of."""
    tables = [mw.open_table(uri) for uri in uris]
    with mw.transaction(*tables, id=name) as tx:
        if tx.committed:
            return "committed"
        for table in tables:
            tx.upsert(table, rows(value))
    return "written"


@each("meanwhile", MEANWHILE)
@each("restarts", [True, False])
def test_a_committed_one_is_found_from_each_table(
    fast_folder: Path, meanwhile: Callable[[list[str]], None], restarts: bool
) -> None:
    folder = fast_folder / f"{meanwhile.__name__}{restarts}"
    uris = [created(str(folder / name), "bucket(id, 2)") for name in "ab"]
    assert _commit(uris, 1, "x") == "written"
    meanwhile(uris)
    if restarts:
        for uri in uris:
            forget_writers(uri)
    for uri in uris[meanwhile is _dropped :]:
        before = values(mw.open_table(uri))
        assert _commit([uri], 2, "x") == "committed"
        assert mw.outcome(mw.open_table(uri), id="x") == "committed"
        assert values(mw.open_table(uri)) == before
        assert mw.outcome(mw.open_table(uri), id="y") == "aborted"
    for uri in uris:
        with suppress(mw.MemWalError):
            mw.open_table(uri).close()


@each("lands", [True, False])
def test_an_undecided_one_is_decided_from_each_table(fast_folder: Path, lands: bool) -> None:
    """Where its record would be: its coordinator finds that, or has been first."""
    for asked in (0, 1):
        uris = [created(str(fast_folder / f"{lands}{asked}{name}")) for name in "ab"]
        put = AtomicWrite._put_record

        def die(write: AtomicWrite, parts: Any, put: Any = put) -> Any:
            if lands:
                put(write, parts)
            raise ProcessKilledError("dead")

        with patch.object(AtomicWrite, "_put_record", die), suppress(ProcessKilledError):
            _commit(uris, 1, "x")
        for uri in uris:
            forget_writers(uri)
        with as_another_process():
            outcome = mw.outcome(mw.open_table(uris[asked]), id="x")
        assert outcome == ("committed" if lands else "aborted")
        record = Transactions(open_store(uris[0])).read("x")
        assert record is not None and record.committed == lands
        assert [values(mw.open_table(uri)) for uri in uris] == [{int(lands)}] * 2


def test_the_error_of_an_unknown_outcome_has_the_tables_written(fast_folder: Path) -> None:
    uris = [created(str(fast_folder / name)) for name in "abc"]
    tables = [mw.open_table(uri) for uri in uris]

    def unknown(*_: Any) -> Any:
        raise mw.OutcomeUnknownError("lost")

    with (
        patch.object(Transactions, "commit", unknown),
        pytest.raises(mw.TransactionUnknownError) as raised,
        mw.transaction(*tables) as tx,
    ):
        for table in tables[1:]:
            tx.upsert(table, rows(1))
    assert raised.value.tables == tuple(uris[1:])  # one of them was to have the record
    for table in tables:
        table.close()
    given = [mw.open_table(uri) for uri in raised.value.tables]
    assert mw.outcome(*given, id=raised.value.id) == "aborted"
