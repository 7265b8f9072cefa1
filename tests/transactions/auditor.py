"""Reads a bank in every way, and looks whether the money is all there."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from random import Random
from typing import Any

import datafusion

import memwal_sql as mw
from memwal_sql.read.live.settings import Live
from tests.transactions.bank import ACCOUNTS, START, TABLES, Bank, read_diary

TOTAL = ACCOUNTS * START
COLUMNS = ["id", "n", "m"]


class Auditor:
    """Attributes:
    done: how often it read in which way.
    gaps: how often the changes that it wanted next had been collected.
    """

    def __init__(self, bank: Bank, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.gaps = 0
        self.use(bank)
        self._random = Random(seed)
        self._places: list[Any] = [None] * len(TABLES)
        # The rows of each transaction, or entry without one, and the money that they move.
        self._moved: dict[str, list[int]] = defaultdict(lambda: [0, 0])

    def use(self, bank: Bank) -> None:
        """Go on with other handles."""
        self._bank, self._tables = bank, bank.open()
        self._session = datafusion.SessionContext()
        for (name, _), table in zip(TABLES, self._tables, strict=True):
            mw.register(self._session, name, table)

    def read(self) -> None:
        """Read in some way; every second time live rows are compared with the files. Raises
        AssertionError if money was made or lost."""
        ways: dict[str, Callable[[], None]] = {
            "all tables": self._all,
            "statement": self._statement,
            "scan": self._scan,
            "get": self._get,
            "checkpoint": self._checkpoint,
            "feed": self.follow,
        }
        way = self._random.choices(list(ways), (4, 3, 2, 2, 1, 2))[0]
        is_checked = self._random.random() < 0.5
        try:
            with Live.set(checked=1) if is_checked else nullcontext():
                ways[way]()
        except (mw.RetryError, mw.ReopenError):
            self.done[f"{way}, refused"] += 1
        else:
            self.done[way] += 1

    def _all(self) -> None:
        tx = mw.transaction(*self._tables)
        self._check("a transaction", [rows_of(tx.table(table)) for table in self._tables])

    def _statement(self) -> None:
        tables = (f"SELECT '{name}' AS t, id, n, m FROM {name}" for name, _ in TABLES)
        with mw.memwal_errors():
            rows = mw.sql(self._session, " UNION ALL ".join(tables)).to_arrow_table().to_pylist()
        self._check(
            "a statement",
            [{row["id"]: row for row in rows if row["t"] == name} for name, _ in TABLES],
        )

    def _scan(self) -> None:
        table = self._random.choice(self._tables)
        self._check_points("a scan", rows_of(table))

    def _get(self) -> None:
        table = self._random.choice(self._tables)
        rows = table.get(list(range(ACCOUNTS)), COLUMNS).to_pylist()
        self._check_points("get", {row["id"]: row for row in rows})

    def _checkpoint(self) -> None:
        table = self._random.choice(self._tables)
        if "audit" in table.checkpoints()["name"].to_pylist():
            table.drop_checkpoint("audit")
        table.checkpoint("audit")
        for _ in range(2):  # jobs and claims go on meanwhile
            self._check_points("a checkpoint", rows_of(table.as_of(checkpoint="audit")))

    def follow(self) -> None:
        """Take in what the feeds have."""
        for number, table in enumerate(self._tables):
            until = table.change_offsets()
            columns = ["_transaction", "_region", "_position", "d"]
            try:
                rows = table.changes(after=self._places[number], until=until).read_all()
            except mw.ChangesCollectedError:
                self.gaps += 1
            else:
                for row in rows.select(columns).to_pylist():
                    place = row["_transaction"] or f"{row['_region']} {row['_position']}"
                    self._moved[place][0] += 1
                    self._moved[place][1] += row["d"]
            self._places[number] = until

    def check_feeds(self) -> None:
        """Every transaction of the feeds is whole, and moves no money out of the bank."""
        rows = {row["id"]: row["upserts"] for row in self._history()}
        whole = {
            place: sums for place, sums in self._moved.items() if sums[0] >= rows.get(place, 0)
        }
        wrong = {place: sums for place, sums in whole.items() if sums[1]}
        assert not wrong, wrong
        halves = self._moved.keys() - whole.keys()
        assert not halves or self.gaps, halves
        self.done["transactions of feeds"] = sum(place in rows for place in whole)

    def check_balances(self) -> None:
        """Every account has what the diaries say, except those of moves in doubt."""
        expected = {(t, a): [START, START] for t in range(len(TABLES)) for a in range(ACCOUNTS)}
        doubtful = set()
        for path in self._bank.diaries.glob("teller*"):
            plans: dict[str, list[Sequence[int]]] = {}
            for kind, *values in read_diary(path):
                if kind == "plan":
                    plans[values[0]] = values[2]
                elif kind in ("done", "not", "doubt"):
                    for table, account, n, m in plans.pop(values[0]):
                        if kind == "done":
                            expected[table, account][0] += n
                            expected[table, account][1] += m
                        elif kind == "doubt":
                            doubtful.add((table, account))
            assert not plans, plans
        for number, table in enumerate(self._tables):
            rows = rows_of(table)
            for account in range(ACCOUNTS):
                place = (number, account)
                balance = [rows[account]["n"], rows[account]["m"]]
                assert place in doubtful or balance == expected[place], (
                    place,
                    balance,
                    expected[place],
                )
        self.done["accounts in doubt"] = len(doubtful)

    def _history(self) -> list[dict[str, Any]]:
        return mw.history(*self._tables, limit=1_000_000).to_pylist()

    def _check(self, what: str, tables: Sequence[dict[int, Any]]) -> None:
        total = sum(row["n"] for rows in tables for row in rows.values())
        assert total == TOTAL * len(TABLES), (what, total, tables)
        for rows in tables:
            self._check_points(what, rows)

    def _check_points(self, what: str, rows: dict[int, Any]) -> None:
        total = sum(row["m"] for row in rows.values())
        assert total == TOTAL, (what, total, rows)


def rows_of(table: mw.Table) -> dict[int, Any]:
    """The rows by their ids, each once."""
    rows = table.scan(COLUMNS).read_all().to_pylist()
    by_id = {row["id"]: row for row in rows}
    assert len(by_id) == len(rows), rows
    return by_id
