"""Histories in which statements and conditional writes change rows, beside everything else."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any

import memwal_sql as mw
from memwal_sql.errors import MemWalError
from tests.histories.changes import Change, changes
from tests.histories.history import History, Step
from tests.model.oracle import Row, Rows, table_of
from tests.model.process import ProcessKilledError
from tests.model.queries import as_dict, random_row


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

    def _change(self, due: Rows) -> Change:
        self._op += 1
        return self.rng.choice(changes(self.rng, self.kind, self.keys, self._op, due))

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
