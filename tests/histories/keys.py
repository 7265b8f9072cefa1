"""Histories in which keys are inserted once and rows get other keys, beside everything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

import pytest

import memwal_sql as mw
from memwal_sql.errors import KeysExistError, MemWalError, UnsupportedError
from memwal_sql.write.router import active_spec
from tests.histories.history import History, Pairs, Step
from tests.model.oracle import Row, Rows, table_of
from tests.model.process import ProcessKilledError
from tests.model.queries import as_dict, random_row

Moves = dict[int, int]


@contextmanager
def beside(call: Callable[[], object]) -> Iterator[None]:
    """Within it, a thread makes a call, which is over and well at the end."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    thread = Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert not failed, failed


class KeyHistory(History):
    """A history without regions by hand, as neither statement can name one."""

    def _steps(self) -> list[Step]:
        return [
            *super()._steps(),
            (2, self._insert_new),
            (2, self._insert_beside_an_upsert),
            (3, self._move_keys),
            (2, self._crash_in_a_move),
            (2, self._move_beside_upserts),
        ]

    def _note(self, changed: dict[int, Row | None], *, durable: bool) -> None:
        for n, row in changed.items():
            if row is None:
                self.oracle.delete([n], durable=durable)
            else:
                self.oracle.upsert([(n, row)], durable=durable)

    def _sync(self) -> None:
        """What was written is durable."""
        for writer in self._writers.values():
            writer.sync()
        self.oracle.durable.clear()

    def _found(self, what: str) -> Rows:
        return as_dict(self.kind, self._process.table.scan().read_all(), what)

    def _job(self) -> Callable[[], object]:
        """Something that a thread does after what it writes."""
        return self.rng.choice((lambda: None, lambda: self._writer().flush()))

    # Keys that have no row

    def _insert_new(self) -> None:
        pairs = self._random_pairs(distinct=True)
        there = {n for n, _ in pairs} & self.oracle.rows.keys()
        self.log.append(f"insert {pairs}, of which are there: {there}")
        rows = table_of(self.kind, pairs)
        if there:
            with pytest.raises(KeysExistError) as refused:
                self._writer().insert(rows)
            assert len(refused.value.keys) == len(there)
        else:
            assert self._writer().insert(rows).rows == len(pairs)
            self.oracle.upsert(pairs, durable=self._durable)

    def _insert_beside_an_upsert(self) -> None:
        """As if one came before the other: all rows or none are inserted, and none over one that
        was there."""
        absent = sorted(set(range(self.keys)) - self.oracle.rows.keys())
        if not absent:
            return
        self._op += 1
        pairs = [
            (n, random_row(self.rng, self._op * 100 + n, self._texts))
            for n in self.rng.sample(absent, min(len(absent), 4))
        ]
        other: Pairs = [(pairs[0][0], random_row(self.rng, self._op * 100 + 99, self._texts))]
        self.log.append(f"insert {pairs} beside an upsert of {other}")
        before, given, upsert = dict(self.oracle.rows), dict(pairs), table_of(self.kind, other)
        writer, job = self._writer(), self._job()
        inserted = False
        with beside(lambda: (writer.upsert(upsert), job())), suppress(KeysExistError):
            writer.insert(table_of(self.kind, pairs))
            inserted = True
        if inserted:
            self.oracle.upsert(pairs, durable=self._durable)
        self.oracle.upsert(other, durable=self._durable)
        expected = before | (given if inserted else {}) | dict(other)
        assert self._found("scan after an insert") == expected, f"inserted: {inserted}"

    # Rows that get other keys

    def _region_of(self) -> dict[int, object]:
        """The values of each key's region."""
        spec = active_spec(self._process.table.info)
        assert spec is not None
        values = spec.evaluate(self.kind.table(range(self.keys))).to_pylist()
        return {n: tuple(row.values()) for n, row in enumerate(values)}

    def _random_moves(self, *, within: bool) -> Moves:
        """Rows that are there and keys for them, which others may have; `within` their regions."""
        region, moves = self._region_of(), Moves()
        there = sorted(self.oracle.rows)
        for old in self.rng.sample(there, min(len(there), self.rng.choice((1, 2, 4)))):
            free = [
                n
                for n in range(self.keys)
                if n not in moves.values() and (not within or region[n] == region[old])
            ]
            if free:
                moves[old] = self.rng.choice(free)
        return moves

    def _moved(self, moves: Moves, rows: Rows) -> dict[int, Row | None]:
        """What becomes of the keys."""
        gone: dict[int, Row | None] = dict.fromkeys(moves)
        return gone | {new: rows[old]._replace(op=self._op) for old, new in moves.items()}

    def _refusals(self, moves: Moves) -> tuple[type[MemWalError], ...]:
        """The errors of which one must be raised."""
        region, kinds, table = self._region_of(), [], self._process.table
        crosses = any(region[old] != region[new] for old, new in moves.items())
        if crosses and not table.context.takes_transactions:
            kinds.append(UnsupportedError)
        if set(moves.values()) & (self.oracle.rows.keys() - moves.keys()):
            kinds.append(KeysExistError)
        return tuple(kinds)

    def _move(self, moves: Moves) -> int:
        """Run the statement; how many rows it says that it changed."""
        names = self.kind.names
        before, after = self.kind.table(moves), self.kind.table(moves.values())
        for name in names:
            before = before.append_column(f"new_{name}", after[name])
        self._context.register_record_batches("moves", [before.to_batches()])
        new = ", ".join(f"{name} = m.new_{name}" for name in names)
        same = " AND ".join(f"t.{name} = m.{name}" for name in names)
        text = f"UPDATE t SET {new}, op = {self._op} FROM moves AS m WHERE {same}"
        try:
            return int(mw.sql(self._context, text).to_pylist()[0]["count"])
        finally:
            self._context.deregister_table("moves")

    def _move_keys(self) -> None:
        self._op += 1
        moves = self._random_moves(within=self.rng.random() < 0.8)
        if not moves:
            return
        refusals = self._refusals(moves)
        self.log.append(f"move {moves}, to be refused by {refusals}")
        if refusals:
            with pytest.raises(refusals):
                self._move(moves)
        else:
            assert self._move(moves) == len(moves)
            self._note(self._moved(moves, dict(self.oracle.rows)), durable=True)

    def _crash_in_a_move(self) -> None:
        """All of it is there or nothing."""
        self._op += 1
        moves = self._random_moves(within=self.rng.random() < 0.5)
        if not moves or self._refusals(moves):
            return
        at, before_it = self.rng.randint(1, 6), self.rng.random() < 0.5
        self.log.append(f"crash {'before' if before_it else 'after'} change {at}: move {moves}")
        self._sync()
        before, done = dict(self.oracle.rows), False
        changed = self._moved(moves, before)
        self._process.switch.kill_at(at, before=before_it)
        with suppress(MemWalError, ProcessKilledError):
            self._move(moves)
            done = True
        self._note(changed, durable=done)
        after = dict(self.oracle.rows)
        self._process.kill()
        self._after_crash()
        assert self.oracle.rows in (before, after), "a part was moved"

    def _move_beside_upserts(self) -> None:
        """A row is moved as it was before or after the upsert of its old key, and never both."""
        self._op += 1
        taken = self.oracle.rows.keys()
        moves = {
            old: new for old, new in self._random_moves(within=True).items() if new not in taken
        }
        if not moves:
            return
        new = {n: random_row(self.rng, self._op * 100 + n, self._texts) for n in moves}
        self.log.append(f"move {moves} beside upserts of {new}")
        self._write_pairs([(n, self.oracle.rows[n]) for n in moves])  # regions are claimed
        before, writer, job = dict(self.oracle.rows), self._writer(), self._job()

        def upsert() -> None:
            for pair in new.items():
                writer.upsert(table_of(self.kind, [pair]))
            job()

        with beside(upsert):
            self._move(moves)
        found = self._found("scan after a move")
        assert found.keys() <= before.keys() | set(moves.values())
        for old, to in moves.items():
            first, last = before[old]._replace(op=self._op), new[old]._replace(op=self._op)
            orders = [(new[old], first), (None, last)]
            assert (found.get(old), found.get(to)) in orders, f"{old} to {to}: {orders}"
            for row in (new[old], None, found.get(old)):
                self._note({old: row}, durable=self._durable)
            for row in (first, found.get(to)):
                self._note({to: row}, durable=self._durable)
