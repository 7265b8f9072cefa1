"""What each of several processes does to lists in two tables: transactions append to some of those
that they read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from random import Random

import memwal_sql as mw
from memwal_sql.write.statement import Isolation
from memwal_sql.write.turns import TurnSeconds
from tests.sim.cycles import Transaction, Values

IDS = 3
KEYS = tuple(10 * table + number for table in (0, 1) for number in range(IDS))
"""The lists: ten times the number of the table, and the row's id."""
_QUERY = "SELECT id AS key, log FROM a UNION ALL SELECT id + 10, log FROM b"
WRITERS = 2
"""The threads of a process that write; one more reads."""


@dataclass(frozen=True)
class Mode:
    """How transactions work.

    Attributes:
        appends_to_all: whether they append to every list that they read.
        serial: whether they must be as if they came one after the other, with all readers.
    """

    isolation: Isolation
    appends_to_all: bool
    serial: bool


class Client:
    """A thread of a process."""

    def __init__(self, tables: Sequence[mw.Table], mode: Mode, name: str, number: int) -> None:
        self.done: list[Transaction] = []
        self._tables, self._mode, self._name = tables, mode, name
        self._random = Random(number)
        self._session = mw.SessionContext()
        for name, table in zip("ab", tables, strict=True):
            mw.register(self._session, name, table)
        self._values: Iterator[int] = iter(range(10_000 * number, 10_000 * (number + 1)))

    def write(self, steps: int) -> list[Transaction]:
        """Transactions one after the other."""
        for _ in range(steps):
            self._transact()
        return self.done

    def read(self, steps: int, jobs: bool) -> list[Transaction]:
        """Read all lists again and again, and do some job in between."""
        for step in range(steps):
            with suppress(mw.RetryError, mw.ReopenError):
                begin = partial(mw.transaction, *self._tables)
                reads = self._read(begin(), KEYS) if step % 2 else self._query()
                self.done.append(Transaction(f"read {self._name}.{step}", reads))
            if jobs and step % 4 == 3:
                table = self._random.choice(self._tables)
                with suppress(mw.RetryError, mw.ReopenError):
                    self._random.choice([table.flush, table.merge, table.collect_garbage])()
        return self.done

    def _query(self) -> dict[int, Values]:
        """All lists by one query of both tables."""
        rows = mw.sql(self._session, _QUERY).to_pylist()
        return {row["key"]: tuple(map(int, row["log"].split())) for row in rows}

    def _transact(self) -> None:
        value = next(self._values)
        keys = self._random.sample(KEYS, self._random.randint(1, 3))
        count = len(keys) if self._mode.appends_to_all else self._random.randint(1, len(keys))
        appends = dict.fromkeys(keys[:count], value)
        reads: dict[int, Values] = {}
        outcome: bool | None = None
        try:
            with mw.transaction(*self._tables, isolation=self._mode.isolation) as tx:
                reads = self._read(tx, keys)
                for key in appends:
                    log = " ".join(map(str, (*reads[key], value)))
                    tx.upsert(self._tables[key // 10], {"id": [key % 10], "log": [log]})
            outcome = True
        except mw.TransactionUnknownError:
            pass
        except (mw.RetryError, mw.FencedError):
            outcome = False
        self.done.append(Transaction(f"append of {value}", reads, appends, outcome))

    def _read(self, tx: mw.Transaction, keys: Sequence[int]) -> dict[int, Values]:
        logs: dict[int, Values] = {}
        for place, group in groupby(sorted(keys), lambda key: key // 10):
            ids, table = [key % 10 for key in group], self._tables[place]
            if self._random.random() < 0.5:
                rows = tx.get(table, ids).to_pylist()
            else:
                rows = tx.scan(table, filter=f"id IN ({', '.join(map(str, ids))})").read_all()
                rows = rows.to_pylist()
            logs |= {10 * place + row["id"]: tuple(map(int, row["log"].split())) for row in rows}
        return logs


def work(
    places: Sequence[tuple[Mode, Sequence[str]]], number: int, steps: int, *, jobs: bool
) -> list[list[Transaction]]:
    """The transactions of one process, by mode; each mode has two tables of its own."""
    noted = []
    with TurnSeconds.set(local=0.05, remote=0.05), ThreadPoolExecutor(WRITERS + 1) as pool:
        for place, (mode, uris) in enumerate(places):
            tables = [mw.open_table(uri) for uri in uris]
            clients = [
                Client(tables, mode, f"{number}.{thread}", 100 * place + 10 * number + thread)
                for thread in range(WRITERS + 1)
            ]
            calls = [pool.submit(client.write, steps) for client in clients[:WRITERS]]
            calls.append(pool.submit(clients[-1].read, steps, jobs))
            noted.append([transaction for call in calls for transaction in call.result()])
            for table in tables:
                table.close()
    return noted
