"""Histories in which statements and conditional writes change rows, beside everything else."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress

import memwal_sql as mw
from memwal_sql.errors import MemWalError, ReopenError, RetryError
from tests.histories.changes import Change, changes
from tests.histories.history import Pairs, Step
from tests.histories.inserts import inserts, merges, overwrites, streams
from tests.histories.keys import KeyHistory, beside
from tests.model.kinds import KINDS_BY_NAME, KeyKind, RegionKind
from tests.model.oracle import Rows, table_of
from tests.model.process import ProcessKilledError
from tests.model.queries import as_dict, random_row


def upsert_each(uri: str, kind: str, new: Pairs, *, flushes: bool) -> list[int]:
    """Upsert rows one by one, as a process of its own does; the keys of those acknowledged."""
    acknowledged = []
    with mw.open_table(uri) as table:
        writer = table.writer(flush_attempts=1)
        with suppress(RetryError, ReopenError):
            for n, row in new:
                writer.upsert(table_of(KINDS_BY_NAME[kind], [(n, row)]))
                acknowledged.append(n)
                if flushes:
                    writer.flush()
        with suppress(RetryError, ReopenError):
            writer.close()
    return acknowledged


class StatementHistory(KeyHistory):
    """A history whose writes are mostly statements; no regions by hand, as they can't name one."""

    def __init__(
        self, seed: str, kind: KeyKind, regions: RegionKind, uri: str, other: Executor
    ) -> None:
        """`other` is a process that writes too."""
        super().__init__(seed, kind, regions, uri)
        self._other = other

    def _steps(self) -> list[Step]:
        return [
            *super()._steps(),
            (16, self._statement),
            (4, self._conditional_upsert),
            (6, self._crash_in_statement),
            (6, self._statement_beside_upserts),
            (2, self._statement_beside_another_process),
        ]

    def _open_process(self, *, durable: bool | None = None) -> None:
        super()._open_process(durable=durable)
        isolation = self.rng.choice(("snapshot", "serializable"))
        mw.sql(self._context, f"SET memwal.isolation = '{isolation}'")
        self.log.append(f"its statements: {isolation}")

    # What is changed

    def _change(self, given: Pairs) -> Change:
        self._op += 1
        rng, kind, keys, op, due = self.rng, self.kind, self.keys, self._op, dict(given)
        some = rng.choices(
            (
                lambda: changes(rng, kind, keys, op, due),
                lambda: inserts(kind, op, given),
                lambda: merges(rng, kind, keys, op, due),
                lambda: streams(rng, kind, given),
                lambda: overwrites(rng, kind, keys, op, given),
            ),
            (4, 4, 4, 2, 1),
        )
        number, change = rng.choice(list(enumerate(some[0]())))
        if not change.sql:  # it may leave tombstones of keys that have no row
            self.oracle.touched |= {n for n, _ in given}
        self.log.append(f"{change.sql or f'call {number} of the writer'}; given {given}")
        return change

    @contextmanager
    def _given(self) -> Iterator[Pairs]:
        """Within it, the session has a table of rows, and one of the last row of each key."""
        pairs = self._random_pairs()
        given = table_of(self.kind, pairs)
        due = table_of(self.kind, dict(pairs).items())
        for name, rows in (("given", given), ("due", due)):
            self._context.register_record_batches(name, [rows.to_batches()])
        try:
            yield pairs
        finally:
            for name in ("given", "due"):
                self._context.deregister_table(name)

    def _counted(self, change: Change, *, call: bool = False) -> int:
        """Make the change, by a `call` of the writer if there is no statement that does; how many
        rows it says that it changed."""
        if change.call is not None and (call or not change.sql):
            return int(change.call(self._writer()).rows)
        return int(mw.sql(self._context, change.sql).to_pylist()[0]["count"])

    def _check_returned(self, change: Change, before: Rows) -> None:
        """Run the statement, and compare the rows that it returns."""
        merges = change.sql.startswith("MERGE")
        columns = "merge_action, *" if merges else "*"
        found = mw.sql(self._context, f"{change.sql} RETURNING {columns}").to_arrow_table()
        returned, expected = as_dict(self.kind, found, "RETURNING"), change.returned(before)
        assert returned == expected, f"returned {returned}, expected {expected}"
        if merges:
            kinds = found["merge_action"].to_pylist()
            actions = dict(zip(self.kind.numbers(found), kinds, strict=True))
            assert actions == change.actions(before), f"{actions}"

    def _after_overwrite(self) -> None:
        """The writers are fenced."""
        writers, self._writers, self._claimed = self._writers, {}, set()
        for writer in writers.values():
            with suppress(MemWalError):
                writer.close()
        self._look_at_base()
        if self.oracle.recorded is None:
            self.oracle.record()

    # Steps

    def _statement(self) -> None:
        before = dict(self.oracle.rows)
        with self._given() as given:
            change = self._change(given)
            way = self.rng.random()
            call = change.call is not None and (way > 0.8 or not change.sql)
            if way < 0.5 and change.sql and change.returns:
                self._check_returned(change, before)
            else:
                counted = change.counted(before)
                assert self._counted(change, call=call) == counted, f"expected {counted} rows"
        self._note(change.of(before), durable=self._durable or not call)
        if change.replaces_all:
            self._after_overwrite()

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
        at, before_it = self.rng.randint(1, 6), self.rng.random() < 0.5
        self._sync()
        before = dict(self.oracle.rows)
        with self._given() as given:
            self.log.append(f"crash {'before' if before_it else 'after'} change {at} of the next")
            change = self._change(given)
            changed, done = change.of(before), False
            self._process.switch.kill_at(at, before=before_it)
            with suppress(MemWalError, ProcessKilledError):
                self._counted(change)
                done = bool(change.sql) or self._durable
        self._note(changed, durable=done)
        self._process.kill()
        self._after_crash()
        if change.replaces_all:
            assert self.oracle.rows in (before, change.returned(before)), "one part is replaced"
            self._after_overwrite()

    def _statement_beside_upserts(self) -> None:
        """No upsert is lost to a statement, and no statement computes from what was replaced."""
        pairs, new = self._old_and_new()
        job = self.rng.choice(("", "flush", "merge"))
        self._write_pairs(pairs)  # regions are claimed
        self.oracle.upsert(pairs, durable=self._durable)
        with self._given() as given:
            self.log.append(f"upsert {pairs}; upsert {new} and {job or 'no job'} beside the next")
            change = self._change(given)
            while change.replaces_all:  # it would fence the upserts
                change = self._change(given)
            before = dict(self.oracle.rows)

            def upsert() -> None:
                for pair in new:
                    self._write_pairs([pair])
                if job == "flush":
                    self._writer().flush()
                elif job == "merge":
                    self._process.table.merge()

            with beside(upsert):
                self._counted(change)
        self._settle(
            change, before, dict(new), {n for n, _ in new}, done=True, durable=self._durable
        )
        if job == "merge":
            self._look_at_base()
            self.oracle.record()

    def _statement_beside_another_process(self) -> None:
        """It takes the regions over meanwhile: what it acknowledged is there, or what a statement
        made of it, and so is all of a statement that was done."""
        pairs, new = self._old_and_new()
        flushes = self.rng.random() < 0.5
        self._write_pairs(pairs)
        self.oracle.upsert(pairs, durable=self._durable)
        self._sync()
        with self._given() as given:
            self.log.append(f"upsert {pairs}; another process upserts {new} beside the next")
            change = self._change(given)
            before = dict(self.oracle.rows)
            other = self._other.submit(upsert_each, self.uri, self.kind.name, new, flushes=flushes)
            done = False
            with suppress(RetryError, ReopenError):
                self._counted(change)
                self._sync()
                done = True
            acknowledged = set(other.result())
        self.log.append(f"done: {done}, acknowledged: {sorted(acknowledged)}")
        for closing in (*self._writers.values(), self._process.table):
            with suppress(MemWalError):
                closing.close()
        self._open_process()
        self._settle(change, before, dict(new), acknowledged, done=done, durable=True)
        if change.replaces_all:
            self._after_overwrite()

    def _old_and_new(self) -> tuple[Pairs, Pairs]:
        """Rows, and others of the same keys."""
        pairs = self._random_pairs(distinct=True)
        return pairs, [(n, random_row(self.rng, row.op, self._texts)) for n, row in pairs]

    def _settle(
        self,
        change: Change,
        before: Rows,
        new: Rows,
        acknowledged: set[int],
        *,
        done: bool,
        durable: bool,
    ) -> None:
        """Check what is left of a statement beside upserts of the rows `new`, of which those
        acknowledged are there, and note it; `durable` says whether these are."""
        rows = self._process.table.scan().read_all()
        found = as_dict(self.kind, rows, "scan after a statement")
        for n in {*before, *new, *change.inserted, *found}:
            old = before.get(n)
            allowed = []
            if n not in acknowledged:
                allowed = [change.after(n, old)] if done else [old, change.after(n, old)]
            if n in new:
                allowed += [new[n], change.after(n, new[n])]
            assert found.get(n) in allowed, f"key {n} is {found.get(n)}, allowed were {allowed}"
            if n in new or allowed != [old]:  # readers of flushed rows may have seen each
                for row in (change.after(n, old), *allowed, found.get(n)):
                    own = n not in new and bool(change.sql)
                    self._note({n: row}, durable=durable or own)
