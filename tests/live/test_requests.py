"""Live rows ask an object store for what the files need: as many requests, in as many rounds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier, Lock
from typing import Any

import datafusion
import pytest

import memwal_sql as mw
from exec_nodes.base.tasks import background_by
from memwal_sql.read.live.settings import Live
from tests.maintain.life import merge_all, rows
from tests.maintain.remote import BASE, LONGEST_SECONDS, REGIONS, hooked, written
from tests.model.process import as_another_process
from tests.write.hooked_store import Call, passing

Query = Callable[[mw.Table, datafusion.SessionContext], object]


class InRounds:
    """A hook that answers none of so many requests before all of them have come, then none of the
    next, and so on."""

    def __init__(self, *rounds: int) -> None:
        self._rounds = [barrier for size in rounds for barrier in [Barrier(size)] * size]
        self._lock = Lock()
        self.asked: list[str] = []

    def __call__(self, operation: str, path: str, call: Call) -> Any:
        with self._lock:
            number = len(self.asked)
            self.asked.append(f"{operation} {path}")
        assert number < len(self._rounds), self.asked
        self._rounds[number].wait(LONGEST_SECONDS)
        return call()

    @property
    def are_over(self) -> bool:
        return len(self.asked) == len(self._rounds)


def sql(query: str) -> Query:
    return lambda _, ctx: ctx.sql(query).to_pylist()


def answers(query: Query, regions: int, table: mw.Table, *, is_elsewhere: bool) -> list[object]:
    """Those of a reader of so many regions before and after each of some writes, of another process
    or its own, while live rows are made and afterwards, if they are on. Of each region it asks if
    there are a newer manifest, its own, and an entry: its own writer knows that."""
    begun: list[Callable[[], object]] = []
    reader = hooked(table)
    ctx = datafusion.SessionContext()
    mw.register(ctx, "t", reader)

    def asked(*rounds: int) -> object:
        reader.context.store.hook = hook = InRounds(*rounds)
        answer = query(reader, ctx)
        reader.context.store.hook = passing
        assert hook.are_over, hook.asked
        return answer

    whole = BASE + (regions == REGIONS)  # are there other regions
    with background_by(begun.append), (table if is_elsewhere else reader).writer() as writer:
        found = [query(reader, ctx)]
        writer.upsert(rows(0, 99, 4))
        found.append(query(reader, ctx))
        for number in range(3):
            writer.upsert(rows(0, 99, 5 + number))
            if is_elsewhere:  # the entry, and whether there is one above it
                found.append(asked(whole + 3 * regions, 2 * regions))
            found += [asked(whole + (2 + is_elsewhere) * regions) for _ in range(2)]
            while begun:
                begun.pop()()
    return found


@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.parametrize(
    ("query", "regions"),
    [
        (sql("SELECT count(*), sum(val) FROM t"), REGIONS),
        (sql("SELECT * FROM t WHERE id BETWEEN 5 AND 90 ORDER BY id"), REGIONS),
        (sql("SELECT val FROM t WHERE id = 7"), 1),
        (lambda table, _: table.get(7).to_pylist(), 1),
    ],
)
def test_queries_of_live_rows_ask_a_store_as_those_of_files_do(
    tmp_path: Path, query: Query, regions: int, is_elsewhere: bool
) -> None:
    found = []
    for is_live in (False, True):
        table = written(tmp_path / str(is_live))
        with ExitStack() as stack:
            stack.enter_context(Live.set(enabled=is_live, least_rows=0, reads=0))
            if is_elsewhere:
                stack.enter_context(as_another_process())
            found.append(answers(query, regions, table, is_elsewhere=is_elsewhere))
    assert found[0] == found[1]


def test_base_versions_since_are_read_at_once(tmp_path: Path) -> None:
    table = written(tmp_path)
    tracker = hooked(table).tracker
    before = tracker.loaded
    merge_all(table)
    after = tracker.reload()
    store: Any = tracker._context.store
    assert after.version > before.version + 1
    for etag, preserved in ((before.etag, True), (after.etag, False)):
        store.hook = hook = InRounds(after.version - before.version)
        assert tracker.preserves_rows(before.version, etag, after) is preserved
        assert hook.are_over
