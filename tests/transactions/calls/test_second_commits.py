"""A transaction that is committed twice, or copied."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

import memwal_sql as mw
from memwal_sql.write.coordinator import AtomicWrite
from tests.each import each
from tests.transactions.tables import created, elsewhere, rows


def _staged(table: mw.Table, value: int, keys: range = range(16)) -> mw.Transaction:
    tx = mw.transaction(table, id="x")
    tx.upsert(table, rows(value, keys))
    return tx


@each("keys", [range(16), range(16, 32)])
def test_the_second_of_an_id_is_a_conflict(fast_folder: Path, keys: range) -> None:
    """Also where the two write other keys: of one id one is written."""
    table = mw.open_table(created(str(fast_folder / f"t{keys.start}"), "bucket(id, 4)"))
    first, second = _staged(table, 1), _staged(table, 2, keys)
    first.commit()
    with pytest.raises(mw.ConflictError):
        second.commit()
    assert not second.committed and second.result is None
    assert elsewhere(table.uri) == {1}
    with mw.transaction(table, id="x") as again:
        assert again.committed
    table.close()


def test_of_threads_that_commit_an_id_one_writes(fast_folder: Path) -> None:
    table = mw.open_table(created(str(fast_folder / "t"), "bucket(id, 4)"))
    together = Barrier(4)

    def commit(value: int) -> int | None:
        tx = _staged(table, value)
        together.wait()
        try:
            tx.commit()
        except mw.RetryError:
            return None
        return value

    with ThreadPoolExecutor(4) as pool:
        written = [value for value in pool.map(commit, range(1, 5)) if value is not None]
    assert len(written) == 1 and elsewhere(table.uri) == set(written)
    table.close()


def test_threads_that_commit_one_transaction_get_one_answer(
    fast_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = mw.open_table(created(str(fast_folder / "t"), "bucket(id, 4)"))
    tx, land, calls = _staged(table, 1), AtomicWrite.land, list[object]()

    with ThreadPoolExecutor(1) as pool:
        answers: list[Any] = []

        def landed(write: AtomicWrite) -> Any:
            if not calls:
                calls.append(write)
                answers.append(pool.submit(tx.commit))
            return land(write)

        monkeypatch.setattr(AtomicWrite, "land", landed)
        assert tx.commit() is answers[0].result()
    assert elsewhere(table.uri) == {1}
    table.close()


COPIES: list[Callable[[Any], Any]] = [pickle.dumps, copy.copy, copy.deepcopy]


@each("duplicate", COPIES)
def test_a_transaction_is_not_copied(fast_folder: Path, duplicate: Callable[[Any], Any]) -> None:
    table = mw.open_table(created(str(fast_folder / duplicate.__name__)))
    tx = mw.transaction(table)
    for given in (tx, tx.table(table)):
        with pytest.raises(mw.InvalidCallError, match="can't be pickled or copied"):
            duplicate(given)
    tx.rollback()
