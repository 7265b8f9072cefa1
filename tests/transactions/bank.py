"""What the processes of a bank of three tables do.

Money (`n`) moves between all accounts, points (`m`) between those of a table; `d` is the money that
the last write of a row moved. Every process keeps a diary, which outlives it.
"""

from __future__ import annotations

import json
import os
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

import memwal_sql as mw
from memwal_sql.read.live.settings import Live
from memwal_sql.storage.objects.concurrent import ReadWindow
from memwal_sql.write.turns import TurnSeconds

ACCOUNTS = 40
START = 1000
TABLES = (("a", 4), ("b", 3), ("c", 1))
Change = tuple[int, int, int, int]
"""A table, an account in it, and the money and the points that it gets."""
JOBS: Mapping[str, Callable[[mw.Table], object]] = {
    "merge": mw.Table.merge,
    "build_indexes": mw.Table.build_indexes,
    "snapshot_regions": mw.Table.snapshot_regions,
    "compact": lambda table: table.compact(fragments=2),
    "flush": mw.Table.flush,
    "collect": lambda table: table.collect_garbage(older_than=timedelta(seconds=5)),
}


@dataclass(frozen=True)
class Bank:
    """Where the tables and the diaries are."""

    uris: tuple[str, ...]
    options: Mapping[str, str] | None
    diaries: Path

    def open(self) -> list[mw.Table]:
        """Handles on the tables."""
        return [mw.open_table(uri, storage_options=self.options) for uri in self.uris]

    @property
    def is_open(self) -> bool:
        """Whether nobody has closed it."""
        return not self._closed.exists()

    def lines(self) -> list[list[Any]]:
        """What is in all diaries."""
        return [line for path in self.diaries.iterdir() for line in read_diary(path)]

    @property
    def _closed(self) -> Path:
        return self.diaries.with_name("closed")

    def close(self) -> None:
        """Let everybody come to an end."""
        self._closed.touch()


class Diary:
    """Lines that are there even if the process is killed after it wrote them."""

    def __init__(self, bank: Bank, name: str) -> None:
        path = bank.diaries / name
        self.before = read_diary(path)
        self._file = path.open("a", buffering=1)

    def note(self, kind: str, *values: object) -> None:
        """Add a line."""
        self._file.write(json.dumps([kind, *values]) + "\n")


def read_diary(path: Path) -> list[list[Any]]:
    """The lines of a diary."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def work(bank: Bank, name: str, seed: int) -> None:
    """Be the teller or the keeper of this name, until the bank closes. Those of odd seeds compare
    all live rows with the files, the others read them without a look."""
    diary, random = Diary(bank, name), Random(seed)
    role = Teller if name.startswith("teller") else Keeper
    with as_in_all_processes(), Live.set(checked=seed % 2):
        try:
            role(bank, name, diary, random).work()
        except BaseException:
            diary.note("failed", traceback.format_exc())
    os._exit(0)  # as abruptly as a process that is killed


@contextmanager
def as_in_all_processes() -> Iterator[None]:
    """Have the turns that all processes of a bank have, and live rows at once."""
    turns = TurnSeconds.set(local=0.1, remote=0.5)
    with turns, ReadWindow.set(seconds=2.0), Live.set(enabled=1, least_rows=0, waited=1):
        yield


class Teller:
    """Moves money. Its diary says what it is about to do, and then what has become of that: `done`,
    `not` done, or `doubt`."""

    def __init__(self, bank: Bank, name: str, diary: Diary, random: Random) -> None:
        self._bank, self._name, self._diary, self._random = bank, name, diary, random
        self._tables = _opened(bank, diary)
        self._moves = sum(line[0] == "plan" for line in diary.before)

    def work(self) -> None:
        """Settle what the process before has left, then move money."""
        open_plans = {line[1]: line for line in self._diary.before if line[0] == "plan"}
        for kind, move, *_ in self._diary.before:
            if kind in ("done", "not", "doubt"):
                del open_plans[move]
        for _, move, by, changes in open_plans.values():
            if by == "transaction":
                self._settle(move, changes)
            else:
                self._diary.note("doubt", move)
        while self._bank.is_open:
            by = self._random.choices((self._move, self._update, self._write), (5, 3, 2))[0]
            by()
        for table in self._tables:
            with suppress(mw.RetryError, mw.ReopenError):
                table.close()

    def _changes(self, tables: list[int]) -> list[Change]:
        """Changes of some accounts of some tables, which sum up to nothing."""
        rows = [
            [table, account, 0, 0]
            for table in tables
            for account in self._random.sample(range(ACCOUNTS), self._random.randint(1, 2))
        ]
        for first in rows:
            second, amount = self._random.choice(rows), self._random.randint(1, 9)
            points = self._random.randint(1, 9) if first[0] == second[0] else 0
            for row, sign in ((first, -1), (second, 1)):
                row[2] += sign * amount
                row[3] += sign * points
        return [(table, account, n, m) for table, account, n, m in rows]

    def _plan(self, by: str, changes: list[Change]) -> str:
        self._moves += 1
        move = f"{self._name}-{self._moves}"
        self._diary.note("plan", move, by, changes)
        return move

    def _move(self) -> None:
        """Between tables, by a transaction."""
        chosen = self._random.sample(range(len(TABLES)), self._random.choice((2, 2, 3)))
        changes = self._changes(chosen)
        move = self._plan("transaction", changes)
        try:
            self._transact(move, changes)
        except mw.TransactionUnknownError as error:
            self._diary.note("error", repr(error))
            self._settle(move, changes)
        except (mw.RetryError, mw.ReopenError) as error:
            self._diary.note("not", move, repr(error))
        else:
            self._diary.note("done", move)

    def _transact(self, move: str, changes: list[Change]) -> None:
        isolation: Any = self._random.choice(("snapshot", "snapshot", "serializable"))
        with mw.transaction(*self._tables, id=move, isolation=isolation, timeout_s=20) as tx:
            if tx.committed:
                return
            for number, group in groupby(changes, itemgetter(0)):
                own = {account: (n, m) for _, account, n, m in group}
                table = self._tables[number]
                if self._random.random() < 0.3:
                    values = ", ".join(f"{c} = {text}" for c, text in _cases(own).items())
                    tx.sql(f"UPDATE {TABLES[number][0]} SET {values} WHERE {_condition(own)}")
                    continue
                rows = tx.get(table, list(own)).to_pylist()
                for row in rows:
                    n, m = own[row["id"]]
                    row.update(n=row["n"] + n, m=row["m"] + m, d=n)
                tx.upsert(table, rows)

    def _settle(self, move: str, changes: list[Change]) -> None:
        """Run a transaction again under its id, or ask for its outcome, until that is known."""
        while True:
            try:
                if self._random.random() < 0.5:
                    self._transact(move, changes)
                    outcome = "committed"
                else:
                    outcome = mw.outcome(*self._tables, id=move)
            except (mw.RetryError, mw.ReopenError) as error:
                self._diary.note("error", repr(error))
            else:
                self._diary.note("done" if outcome == "committed" else "not", move, "settled")
                return

    def _update(self) -> None:
        """Within a table, by a statement, which has no id that can be asked for after a kill."""
        number = self._random.randrange(len(TABLES))
        changes = self._changes([number])
        own = {account: (n, m) for _, account, n, m in changes}
        move = self._plan("statement", changes)
        try:
            with self._tables[number].writer() as writer:
                writer.update(_cases(own), where=_condition(own))
        except mw.ConflictError as error:
            self._diary.note("not", move, repr(error))
        except (mw.RetryError, mw.ReopenError) as error:
            self._diary.note("doubt", move, repr(error))
        else:
            self._diary.note("done", move)

    def _write(self) -> None:
        """Rows and columns that have no money, and perhaps a flush."""
        a, b = self._random.sample(range(ACCOUNTS), 2)
        try:
            with self._random.choice(self._tables).writer() as writer:
                writer.upsert([{"id": a, "note": "x", "d": 0}, {"id": b, "note": "y", "d": 0}])
                poor = {"n": 0, "m": 0, "d": 0, "note": self._name}
                rows = [{"id": ACCOUNTS + key, **poor} for key in range(self._random.randint(1, 8))]
                writer.upsert(rows, atomic=self._random.random() < 0.3)
                if self._random.random() < 0.3:
                    writer.flush()
        except (mw.RetryError, mw.ReopenError) as error:
            self._diary.note("error", repr(error))


class Keeper:
    """Merges, collects, and takes regions over."""

    def __init__(self, bank: Bank, name: str, diary: Diary, random: Random) -> None:
        self._bank, self._diary, self._random = bank, diary, random
        self._tables = _opened(bank, diary)

    def work(self) -> None:
        """One job after the other."""
        while self._bank.is_open:
            table = self._random.choice(self._tables)
            job, work = self._random.choices(list(JOBS.items()), (4, 1, 1, 1, 1, 2))[0]
            try:
                work(table)
            except (mw.RetryError, mw.ReopenError) as error:
                self._diary.note("error", job, repr(error))
            else:
                self._diary.note("did", job)
            time.sleep(self._random.random() / 4)


def _opened(bank: Bank, diary: Diary) -> list[mw.Table]:
    while True:
        try:
            return bank.open()
        except (mw.RetryError, mw.ReopenError) as error:
            diary.note("error", repr(error))


def _cases(own: Mapping[int, tuple[int, int]]) -> dict[str, str]:
    n = " ".join(f"WHEN {account} THEN {n}" for account, (n, _) in own.items())
    m = " ".join(f"WHEN {account} THEN {m}" for account, (_, m) in own.items())
    return {"n": f"n + CASE id {n} END", "m": f"m + CASE id {m} END", "d": f"CASE id {n} END"}


def _condition(own: Mapping[int, tuple[int, int]]) -> str:
    return f"id IN ({', '.join(map(str, own))})"
