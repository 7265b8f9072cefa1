"""Histories in which statements and conditional writes change rows, beside everything else."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

import memwal_sql as mw
from memwal_sql.errors import MemWalError
from tests.histories.history import History, Step
from tests.model.oracle import Row, Rows, table_of
from tests.model.predicates import any_predicate
from tests.model.process import ProcessKilledError
from tests.model.queries import as_dict, random_row


@dataclass(frozen=True)
class Change:
    """What a statement does to a row.

    Attributes:
        sql: the statement; it may read the table `due`.
        where, set: the same for the writer's methods; None where these can't say it.
        row: the row that becomes of the one of a key; None if it is deleted, the same one if
            the statement leaves it alone.
    """

    sql: str
    row: Callable[[int, Row], Row | None]
    where: str | None = None
    set: dict[str, str] | None = None

    def of(self, rows: Rows) -> dict[int, Row | None]:
        """What becomes of the rows that are changed."""
        found = {n: self.row(n, row) for n, row in rows.items()}
        return {n: row for n, row in found.items() if row is not rows[n]}


class StatementHistory(History):
    """A history whose writes are mostly statements; no regions by hand, as they can't name one."""

    def _steps(self) -> list[Step]:
        return [
            *super()._steps(),
            (12, self._statement),
            (4, self._conditional_upsert),
            (4, self._crash_in_statement),
            (6, self._statement_beside_upserts),
        ]

    # What is changed

    def _change(self, due: dict[int, Row]) -> Change:
        """A DELETE or UPDATE by a condition, a subquery, or another table."""
        self._op += 1
        op, add = self._op, self.rng.randint(1, 9)
        names = self.kind.names
        same = " AND ".join(f"d.{name} = t.{name}" for name in names)
        sets: list[tuple[dict[str, str], Callable[[Row], Row]]] = [
            (
                {"val": f"coalesce(val, 0) + {add}"},
                lambda row: row._replace(val=(row.val or 0) + add),
            ),
            (
                {"txt": "txt || 'x'", "w": "w / 2"},
                lambda row: row._replace(
                    txt=row.txt if row.txt is None else f"{row.txt}x", w=row.w / 2
                ),
            ),
            ({"tags": "NULL", "val": "NULL"}, lambda row: row._replace(tags=None, val=None)),
        ]
        assigned, new = self.rng.choice(sets)
        assigned = {**assigned, "op": str(op)}
        text = ", ".join(f"{name} = {value}" for name, value in assigned.items())
        predicate = any_predicate(self.rng, self.kind, self.keys)
        exists = f"EXISTS (SELECT 1 FROM due AS d WHERE {same} AND d.val > 0)"
        is_due = {n for n, row in due.items() if (row.val or 0) > 0}
        changes = [
            Change(
                f"UPDATE t SET {text} WHERE {predicate.sql}",
                lambda n, row: new(row)._replace(op=op) if predicate(n, row) else row,
                predicate.sql,
                assigned,
            ),
            Change(
                f"DELETE FROM t WHERE {predicate.sql}",
                lambda n, row: None if predicate(n, row) else row,
                predicate.sql,
            ),
            Change(
                f"UPDATE t SET {text} WHERE NOT {exists}",
                lambda n, row: row if n in is_due else new(row)._replace(op=op),
            ),
            Change(f"DELETE FROM t WHERE {exists}", lambda n, row: None if n in is_due else row),
            Change(
                f"UPDATE t SET val = d.val, txt = d.txt, op = {op} FROM due AS d WHERE {same}",
                lambda n, row: (
                    row._replace(val=due[n].val, txt=due[n].txt, op=op) if n in due else row
                ),
            ),
            Change(
                f"DELETE FROM t USING due AS d WHERE {same}",
                lambda n, row: None if n in due else row,
            ),
        ]
        return self.rng.choice(changes)

    @contextmanager
    def _due(self) -> Any:
        """Within it, the session has a table of some keys with rows."""
        pairs = self._random_pairs(distinct=True)
        self._context.register_record_batches("due", [table_of(self.kind, pairs).to_batches()])
        try:
            yield dict(pairs)
        finally:
            self._context.deregister_table("due")

    def _run(self, change: Change) -> int:
        """Run the change, as a statement or by the writer; how many rows it changed."""
        if change.where is not None and self.rng.random() < 0.3:
            writer = self._writer()
            if change.set is None:
                return int(writer.delete_where(change.where).rows)
            return int(writer.update(change.set, where=change.where).rows)
        return int(mw.sql(self._context, change.sql).to_pylist()[0]["count"])

    def _note(self, changed: dict[int, Row | None], *, durable: bool) -> None:
        for n, row in changed.items():
            if row is None:
                self.oracle.delete([n], durable=durable)
            else:
                self.oracle.upsert([(n, row)], durable=durable)

    # Steps

    def _statement(self) -> None:
        with self._due() as due:
            change = self._change(due)
            self.log.append(f"{change.sql}; due {due}")
            changed = change.of(self.oracle.rows)
            count = self._run(change)
        assert count == len(changed), f"{count} rows changed, expected {len(changed)}"
        self._note(changed, durable=self._durable)

    def _conditional_upsert(self) -> None:
        """Rows that count up those that are there, where these are older."""
        pairs = self._random_pairs(distinct=True)
        self.log.append(f"upsert {pairs} when t.val <= s.val")
        given = table_of(self.kind, pairs)
        counted = {"val": "coalesce(t.val, 0) + s.val"}
        self._writer().upsert(given, when="t.val <= s.val", set=counted)
        for n, row in pairs:
            old = self.oracle.rows.get(n)
            if old is None:
                self.oracle.upsert([(n, row)], durable=self._durable)
            elif old.val is not None and row.val is not None and old.val <= row.val:
                new = row._replace(val=old.val + row.val)
                self.oracle.upsert([(n, new)], durable=self._durable)

    def _crash_in_statement(self) -> None:
        """The process dies at a random change of the store, inside a statement."""
        at, before = self.rng.randint(1, 4), self.rng.random() < 0.5
        with self._due() as due:
            change = self._change(due)
            place = "before" if before else "after"
            self.log.append(f"crash {place} change {at} of {change.sql}; due {due}")
            self._note(change.of(self.oracle.rows), durable=False)
            self._process.switch.kill_at(at, before=before)
            with suppress(MemWalError, ProcessKilledError):
                self._run(change)
        self._process.kill()
        self._after_crash()

    def _statement_beside_upserts(self) -> None:
        """No upsert is lost to a statement, and no statement computes from what was replaced."""
        pairs = self._random_pairs(distinct=True)
        new = [(n, random_row(self.rng, row.op, self._texts)) for n, row in pairs]
        self._write_pairs(pairs)  # regions are claimed
        self.oracle.upsert(pairs, durable=self._durable)
        with self._due() as due:
            change = self._change(due)
            self.log.append(f"upsert {pairs}; {change.sql} beside upsert {new}; due {due}")
            before = dict(self.oracle.rows)
            failed: list[BaseException] = []

            def upsert() -> None:
                try:
                    for pair in new:
                        self._write_pairs([pair])
                except BaseException as error:
                    failed.append(error)

            thread = Thread(target=upsert)
            thread.start()
            try:
                mw.sql(self._context, change.sql)
            finally:
                thread.join()
        assert not failed, failed
        changed = change.of(before)
        self._note(changed, durable=self._durable)  # where the statement came first
        found = self._found()
        for n, row in new:
            allowed = [row, change.row(n, row)]
            assert found.get(n) in allowed, f"key {n} is {found.get(n)}, allowed were {allowed}"
            self._note({n: row}, durable=self._durable)
            if found.get(n) != row:
                self._note({n: allowed[1]}, durable=self._durable)
        assert found == self.oracle.rows

    def _found(self) -> Rows:
        rows = self._process.table.scan().read_all()
        return as_dict(self.kind, rows, "scan after a statement")
