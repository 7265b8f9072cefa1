"""Coordinators that are stopped for longer than an hour, about the put of the record."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import memwal_sql as mw
from memwal_sql.errors import TransactionUnknownError, WriterFailedError
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.transactions import (
    LONGEST_SECONDS,
    Part,
    TransactionRecord,
    Transactions,
)
from memwal_sql.write.coordinator import AtomicWrite
from tests.each import each
from tests.model.process import as_another_process, forget_writers
from tests.transactions.tables import created, elsewhere, rows

HOUR = LONGEST_SECONDS + 1


@each(
    "before, during, claimed, error, read",
    [
        (0.0, 0.0, False, None, {1}),
        (HOUR, 0.0, False, WriterFailedError, {0}),
        (0.0, HOUR, False, None, {1}),  # nobody can have decided over it
        # A claimant has refused it, and the record that says so was collected meanwhile.
        (0.0, HOUR, True, TransactionUnknownError, None),
    ],
)
def test_a_stop_of_an_hour_is_seen_before_the_record_and_behind_it(
    tmp_path: Path,
    before: float,
    during: float,
    claimed: bool,
    error: type[Exception] | None,
    read: set[int] | None,
) -> None:
    uri = created(str(tmp_path / "t"), "bucket(id, 2)")
    forget_writers(uri)
    put, intents, now = AtomicWrite._put_record, AtomicWrite._put_intents, [0.0]

    def slow_intents(write: AtomicWrite) -> list[Part]:
        began = write._began or 0.0
        write._clock = lambda: began + now[0]
        parts = intents(write)
        now[0] += before
        return parts

    def slow_put(write: AtomicWrite, parts: list[Part]) -> TransactionRecord:
        now[0] += during
        if claimed:
            with as_another_process():
                mw.open_table(uri).writer().upsert(rows(0))
            records = Transactions(open_store(uri))
            records.delete(records.ids())
        return put(write, parts)

    patches: Any = {"_put_intents": slow_intents, "_put_record": slow_put}
    with (
        patch.multiple(AtomicWrite, **patches),
        pytest.raises(error) if error else nullcontext(),
    ):
        mw.open_table(uri).writer().upsert(rows(1), atomic=True)
    forget_writers(uri)
    if read is not None:
        assert elsewhere(uri) == read
