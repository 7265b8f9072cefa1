"""Who takes part in a simulation, and what becomes of each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from math import inf
from random import Random
from typing import Any

import pyarrow as pa

import memwal_sql as mw
from memwal_sql.maintain.checks.findings import Severity
from memwal_sql.write.statement import Isolation
from tests.histories.register import Kind, Operation, Value
from tests.sim.copies import Copy
from tests.sim.cycles import Transaction, Values
from tests.sim.process import REFUSED, Process
from tests.sim.schedule import Gone, Schedule

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("op", pa.int64()), ("log", pa.string())])
KEYS = 4
WEEKS = 20 * 24 * 3600.0  # that a machine's clock may be off
# Keys of rows that are only appended to: in two regions of one table, and in another one.
LISTS = ((101, 103), (200,))
ALL_LISTS = tuple(key for keys in LISTS for key in keys)
Weights = dict[str, int]
READS = {"get": 4, "scan": 3, "manifest": 1, "eventual": 1}
WRITER = {
    "upsert": 8,
    "delete": 2,
    "update": 2,
    "insert": 2,
    "append": 3,
    "flush": 3,
    "get": 2,
    "scan": 1,
}
WRITER |= {"reopen": 1, "jump": 1}
CLAIMANT = {"upsert": 4, "append": 2, "reopen": 4, "flush": 2, "scan": 1}
JOBS = {"merge": 4, "collect": 4, "compact": 1, "flush_logs": 1, "check": 1}
BANK = {"transact": 6, "scan": 1, "survey": 1, "upsert": 1, "append": 1, "flush": 1, "reopen": 1}
COPIER = {"copy": 3, "survey": 1}
SURVEYS = {"survey": 4, "scan": 1, "get": 1}
FOLLOWER = {"follow": 3, "scan": 1, "checkpoint": 1}


class Actor:
    """One process after the other, each of which goes on where the one before it died."""

    def __init__(
        self,
        name: str,
        number: int,
        uris: Sequence[str],
        schedule: Schedule,
        weights: Weights,
        isolation: Isolation = "snapshot",
    ) -> None:
        self.name = name
        self.operations: list[Operation] = []
        self.transactions: list[Transaction] = []
        self.errors: list[str] = []
        self.followed: dict[int, Value] = {}
        self.offsets: Any = None
        self.all: Sequence[Actor] = (self,)
        self.copies: list[Copy] = []
        self.copied: list[Transaction] = []
        self._uris = uris
        self._schedule = schedule
        self._weights = weights
        self._isolation = isolation
        self._rng = Random(f"{schedule.rng.random()}")
        self._next = number * 100_000
        self._process: Process | None = None
        self._since: dict[int, float] = {}

    def play(self, steps: int) -> None:
        """Make `steps` calls. Raises what no caller may be told."""
        names, weights = list(self._weights), list(self._weights.values())
        for _ in range(steps):
            name = self._rng.choices(names, weights)[0]
            self._schedule.trace.append(f"{self._schedule.now} {self.name} begins: {name}")
            try:
                if self._process is None:
                    self._process = Process(self._uris, self.name, self._schedule)
                    self._process.off = self._rng.choice((0.0, -WEEKS, WEEKS))
                getattr(self, f"_{name}")(self._process)
            except Gone:
                self._process = None
            except (mw.RetryError, mw.ReopenError) as error:
                self.errors.append(f"{name}: {error!r}")
                self._schedule.trace.append(f"{self._schedule.now} {self.name}: {error!r}")
                if isinstance(error, mw.ReopenError):
                    self._reopen_after()

    def _reopen_after(self) -> None:
        process, self._process = self._process, None
        with suppress(Gone, mw.RetryError, mw.ReopenError):
            if process is not None:
                process.lose_writer()

    # Reads

    def read(self, keys: Sequence[int], call: Callable[[], pa.Table], since: float = inf) -> None:
        """Note what a read that sees all since a moment, or since its begin, has returned."""
        start = self._schedule.tick()
        rows = call()
        end = self._schedule.tick()
        found = dict(zip(rows["id"].to_pylist(), rows["op"].to_pylist(), strict=True))
        assert len(found) == rows.num_rows, f"a key is there twice: {rows.to_pylist()}"
        for key in keys:
            self._note(Kind.READ, key, found.get(key), min(start, since), end)
        if len(keys) == KEYS and since == inf:
            self.transactions.append(Transaction(f"{self.name} at {start}", reads=_lists(rows)))

    def _get(self, process: Process) -> None:
        keys = self._keys(2)
        self.read(keys, lambda: process.table.get(keys))

    def _scan(self, process: Process) -> None:
        self.read(range(KEYS), lambda: process.table.scan().read_all())

    def _survey(self, process: Process) -> None:
        self.survey(process)

    def survey(self, process: Process) -> dict[int, Values]:
        """Read the lists of all tables in one state; the values of each."""
        start = self._schedule.tick()
        tx = mw.transaction(*process.tables)
        lists = _read_lists(tx, process)
        self.transactions.append(Transaction(f"{self.name} at {start}", reads=lists))
        return lists

    def _manifest(self, process: Process) -> None:
        scan = lambda: process.table.scan(consistency="manifest").read_all()  # noqa: E731
        self.read(range(KEYS), scan, -inf)

    def _eventual(self, process: Process) -> None:
        scan = lambda: process.table.scan(consistency="eventual").read_all()  # noqa: E731
        self.read(range(KEYS), scan, -inf)

    def _follow(self, process: Process) -> None:
        """The last change of each key that the feed has had."""
        until = process.table.change_offsets()
        try:
            rows = process.table.changes(after=self.offsets, until=until).read_all()
        except mw.ChangesCollectedError:
            self.followed = {}
            rows = process.table.scan().read_all()
        for row in rows.to_pylist():
            self.followed[row["id"]] = None if row.get("_change") == "delete" else row["op"]
        self.offsets = until

    # Writes

    def _keys(self, most: int) -> list[int]:
        return self._rng.sample(range(KEYS), self._rng.randint(1, most))

    def _rows(self, keys: Sequence[int]) -> tuple[int, pa.Table]:
        """A value that no other write has, and its rows."""
        self._next += 1
        columns = {"id": keys, "op": [self._next] * len(keys), "log": [None] * len(keys)}
        return self._next, pa.table(columns, schema=SCHEMA)

    def _write(self, kind: Kind, keys: Sequence[int], value: Value, call: Callable[[], Any]) -> Any:
        start, end = self._schedule.tick(), inf
        try:
            result = call()
            end = self._schedule.tick()
        finally:
            for key in keys:
                self._note(kind, key, value, start, end)
        return result

    def _upsert(self, process: Process) -> None:
        keys = self._keys(3)
        value, rows = self._rows(keys)
        self._write(Kind.WRITE, keys, value, lambda: process.writer().upsert(rows))

    def _delete(self, process: Process) -> None:
        keys = self._keys(2)
        rows = pa.table({"id": pa.array(keys, pa.int64())})
        self._write(Kind.WRITE, keys, None, lambda: process.writer().delete(rows))

    def _insert(self, process: Process) -> None:
        [key] = self._keys(1)
        value, rows = self._rows([key])
        start = self._schedule.tick()
        try:
            self._write(Kind.INSERT, [key], value, lambda: process.writer().insert(rows))
        except mw.KeysExistError:  # nothing was written
            self.operations.pop()
            self._note(Kind.TAKEN, key, None, start, self._schedule.tick())

    def _update(self, process: Process) -> None:
        [key] = self._keys(1)
        value, _ = self._rows([key])
        update = lambda: process.writer().update({"op": str(value)}, where=f"id = {key}")  # noqa: E731
        if not self._write(Kind.WRITE, [key], value, update).rows:
            last = self.operations.pop()
            self._note(Kind.READ, key, None, last.start, last.end)

    def _append(self, process: Process) -> None:
        key = self._rng.choice(LISTS[0])
        value, _ = self._rows([key])
        outcome: bool | None = None
        try:
            process.writer().update({"log": f"log || ' {value}'"}, where=f"id = {key}")
            outcome = True
        finally:
            written = Transaction(f"append of {value}", appends={key: value}, outcome=outcome)
            self.transactions.append(written)

    def _transact(self, process: Process) -> None:
        """Read the lists of all tables, and append to some: first committer wins."""
        value, _ = self._rows(ALL_LISTS)
        chosen = self._rng.sample(ALL_LISTS, self._rng.randint(1, len(ALL_LISTS)))
        lists: dict[int, Values] = {}
        outcome: bool | None = None
        try:
            with mw.transaction(*process.tables, isolation=self._isolation) as tx:
                lists = _read_lists(tx, process)
                for table, keys in zip(process.tables, LISTS, strict=True):
                    logs = {key: " ".join(map(str, (*lists[key], value))) for key in keys}
                    rows = [{"id": k, "op": value, "log": logs[k]} for k in keys if k in chosen]
                    if rows:
                        tx.upsert(table, rows)
            outcome = True
        except mw.ConflictError:
            outcome = False
            raise
        finally:
            appends = dict.fromkeys(chosen, value)
            self.transactions.append(Transaction(f"{self.name}'s {value}", lists, appends, outcome))

    def _flush(self, process: Process) -> None:
        if process.writes:
            process.writer().flush()

    def _reopen(self, process: Process) -> None:
        process.lose_writer()
        process.writer()

    def _jump(self, process: Process) -> None:
        process.jump()

    def _copy(self, process: Process) -> None:
        """Copy a table alone, beside the others or away from them, and look at the copy."""
        place = self._rng.randrange(len(self._uris))
        table, keys = self._uris[place], LISTS[place]
        folder, _, last = table.rpartition("/")
        beside, name = self._rng.random() < 0.5, f"{self.name}-{len(self.copies)}"
        uri = f"{folder}/{name}" if beside else f"{folder}-{name}/{last}"
        copy = Copy(uri, has_home=beside or place == 0)
        self.copies.append(copy)
        copy.take(table)
        acknowledged = {
            (key, value)
            for actor in self.all
            for written in actor.transactions
            if written.outcome
            for key, value in written.appends.items()
            if key in keys
        }
        try:
            lists = copy.lists(self.name, self._schedule, keys)
            lost = {value for key, value in acknowledged if value not in lists[key]}
            copy.check(self.name, self._schedule, lost)
        finally:
            process.resume()
        self.copied.append(Transaction(uri, reads=lists))

    # Jobs

    def _merge(self, process: Process) -> None:
        self._rng.choice(process.tables).merge()

    def _collect(self, process: Process) -> None:
        self._rng.choice(process.tables).collect_garbage(older_than=timedelta(0))

    def _compact(self, process: Process) -> None:
        self._rng.choice(process.tables).compact(fragments=2, deleted=0.2)

    def _flush_logs(self, process: Process) -> None:
        self._rng.choice(process.tables).flush()

    def _check(self, process: Process) -> None:
        report = self._rng.choice(process.tables).check()
        # What the store refuses in all passes is named too.
        wrong = [error for error in report.of(Severity.ERROR) if REFUSED not in error.what]
        assert not wrong, str(report)

    def _checkpoint(self, process: Process) -> None:
        try:
            process.table.drop_checkpoint(self.name)
        except mw.InvalidCallError:
            process.table.checkpoint(self.name)

    def _note(self, kind: Kind, key: int, value: Value, start: float, end: float) -> None:
        self.operations.append(Operation(kind, key, value, start, end, self.name))


def _read_lists(tx: mw.Transaction, process: Process) -> dict[int, Values]:
    tables = zip(process.tables, LISTS, strict=True)
    return {
        key: values
        for table, keys in tables
        for key, values in _lists(tx.get(table, list(keys))).items()
    }


def _lists(rows: pa.Table) -> dict[int, Values]:
    """The values of each list among some rows."""
    logs = zip(rows["id"].to_pylist(), rows["log"].to_pylist(), strict=True)
    return {key: tuple(map(int, log.split())) for key, log in logs if key in ALL_LISTS}
