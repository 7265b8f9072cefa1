"""Transactions of several processes that append to lists in two tables can have come one after the
other, as far as their isolation says so."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import memwal_sql as mw
from tests.model.process import forks
from tests.sim.cycles import Transaction, anomalies
from tests.soak import IS_SOAK, SOAK
from tests.transactions.appending import IDS, KEYS, Client, Mode, work

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("log", pa.string())])
STEPS = 10 * SOAK if IS_SOAK else 6
MODES = {
    "snapshot": Mode("snapshot", appends_to_all=False, serial=False),
    "snapshot, appending to all that is read": Mode("snapshot", appends_to_all=True, serial=True),
    "serializable": Mode("serializable", appends_to_all=False, serial=True),
}


@pytest.mark.slow
@pytest.mark.timeout(300 * (SOAK if IS_SOAK else 1))
def test_transactions_have_an_order(fast_folder: Path) -> None:
    """Readers of all lists are in all processes; one merges, flushes and collects, too."""
    places = []
    for number, mode in enumerate(MODES.values()):
        uris = [str(fast_folder / f"{name}{number}") for name in ("a", "b")]
        for uri, regions in zip(uris, ("bucket(id, 2)", None), strict=True):
            with mw.create_table(uri, SCHEMA, "id", regions=regions).writer() as writer:
                writer.upsert({"id": range(IDS), "log": [""] * IDS})
        places.append((mode, uris))
    with ProcessPoolExecutor(2, forks()) as pool:
        processes = [
            pool.submit(work, places, number, STEPS, jobs=number == 2) for number in (1, 2)
        ]
        noted = [process.result() for process in processes]
    for number, (name, (mode, uris)) in enumerate(zip(MODES, places, strict=True)):
        transactions = [transaction for process in noted for transaction in process[number]]
        tables = [mw.open_table(uri) for uri in uris]
        transactions += Client(tables, mode, "end", 0).read(1, jobs=False)
        check(name, mode, transactions)
        for table in tables:
            assert not [f for f in table.check().findings if f.severity == "error"], table.check()


def check(name: str, mode: Mode, transactions: list[Transaction]) -> None:
    outcomes = Counter(t.outcome for t in transactions if t.appends)
    assert outcomes[True] > STEPS / 2, (name, outcomes)
    end = transactions[-1].reads
    assert set(end) == set(KEYS)
    for transaction in transactions:
        if transaction.outcome and transaction.appends:
            lost = {key: v for key, v in transaction.appends.items() if v not in end[key]}
            assert not lost, (name, transaction)
    assert list(anomalies(transactions, serial=mode.serial)) == [], name
