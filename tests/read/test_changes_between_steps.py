"""Whatever happens between two steps of a strong read, it shows the table as it was at one time
since the read began (protocol rules 14 and 15)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import memwal_sql as mw
from tests.maintain.life import collect, create, merge_all
from tests.model.opened import opened_over
from tests.model.process import as_another_process
from tests.write.hooked_store import Call, HookedStore, passing

State = dict[int, int]
KEYS = range(4)
FIRST_NEW = 100


class Life:
    """A table of one region with a writer, and its rows after each write that returned."""

    def __init__(self, folder: Path) -> None:
        self.table = create(folder)
        self.writer = self.table.writer()
        self.states: list[State] = [{}]

    def write(self) -> None:
        """Replace some rows and insert one."""
        number = len(self.states)
        written = dict.fromkeys([*KEYS, FIRST_NEW + number], number)
        self.writer.upsert({"id": list(written), "val": list(written.values())})
        self.states.append(self.states[-1] | written)

    def flush_twice(self) -> None:
        """What was the active MemTable is two generations back."""
        self.writer.flush()
        self.write()
        self.writer.flush()

    def collect_the_wal(self) -> None:
        """What was in the WAL alone is in a generation alone. The last entry of all stays."""
        self.write()
        self.write()
        self.writer.flush()
        collect(self.table, after=1)

    def collect_what_is_merged(self) -> None:
        """What was in generations is in the base table alone."""
        self.write()
        self.writer.flush()
        merge_all(self.table)
        collect(self.table, after=1)


class Between:
    """Does something before or after one request to a store, by its number from 1."""

    def __init__(self, number: int, when: str, do: Callable[[], None]) -> None:
        self._number, self._when, self._do = number, when, do
        self._asked = 0

    @property
    def done(self) -> bool:
        return self._asked >= self._number

    def __call__(self, operation: str, path: str, call: Call) -> Any:
        self._asked += 1
        due = self._asked == self._number
        if due and self._when == "before":
            self._do()
        found = call()
        if due and self._when == "after":
            self._do()
        return found


def _scan(table: mw.Table) -> State:
    found = table.scan().read_all()
    assert len(set(found["id"].to_pylist())) == found.num_rows, "a key was returned twice"
    return dict(zip(found["id"].to_pylist(), found["val"].to_pylist(), strict=True))


def _get(table: mw.Table) -> State:
    found = table.get([*KEYS, *range(FIRST_NEW, FIRST_NEW + 200)])
    return dict(zip(found["id"].to_pylist(), found["val"].to_pylist(), strict=True))


@pytest.mark.parametrize("read", [_scan, _get])
@pytest.mark.parametrize("reader_of", [nullcontext, as_another_process])
@pytest.mark.parametrize(
    "change", [Life.flush_twice, Life.collect_the_wal, Life.collect_what_is_merged]
)
def test_a_strong_read_is_of_one_state_since_it_began(
    tmp_path: Path,
    change: Callable[[Life], None],
    reader_of: Callable[[], AbstractContextManager[None]],
    read: Callable[[mw.Table], State],
) -> None:
    """The writer is one of this process, whose MemTables are read, or of another, read by its WAL.
    Nothing but the reader asks the store that is watched."""
    life = Life(tmp_path)
    table = opened_over(life.table.uri, HookedStore)
    store = table._context.store
    for number, when in product(range(1, 100), ("before", "after")):
        life.write()
        begun = len(life.states) - 1
        change_once = Between(number, when, partial(change, life))
        with reader_of():
            assert read(table) == life.states[-1]
            store.hook = change_once
            found = read(table)
            store.hook = passing
            where = f"{when} request {number}"
            assert found in life.states[begun:], f"changes {where}: not what was since"
            assert read(table) == life.states[-1], f"changes {where}: read later"
        if not change_once.done:
            break
    assert 3 < number < 99
    life.writer.close()
