"""Whatever happens between two steps of a strong read, it shows the table as it was at one time
since the read began (protocol rules 14 and 15).

A reader in another process learns all that it knows from requests, so what happens after one of
them happens before the next. `MEMWAL_SOAK=10` tries both all the same, all requests (else each
seventh one, or eleventh of a reader that knows nothing), and all orders of answers that were asked
for side by side (else one a case). `MEMWAL_SEED=...` chooses others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import permutations, product
from pathlib import Path
from typing import Any

import pytest

import memwal_sql as mw
from memwal_sql.maintain.gc.rules import KEPT_MANIFESTS
from memwal_sql.storage.objects import concurrent
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.region.versions import RegionManifests
from tests.maintain.life import collect, create, manifest, merge_all
from tests.model.merging import manifests
from tests.model.opened import Remote, opened_over
from tests.model.process import as_another_process
from tests.soak import IS_SOAK
from tests.write.hooked_store import Call, HookedStore, passing

State = dict[int, int]
KEYS = range(4)
SEED = int(os.environ.get("MEMWAL_SEED", "1"))
FIRST_NEW = 100
MOST_GENERATIONS = 4
MOST_WRITES = 400


class Life:
    """A table of one region with a writer, and its rows after each write that returned. `now` is
    the clock of readers, which goes on while a collector waits."""

    def __init__(self, folder: Path, *, remote: bool = False) -> None:
        self.now = 0.0
        self.remote = remote
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
        self.collect()

    def come_far(self) -> None:
        """Flush, and commit so many manifests that a collection leaves neither the newest one of
        before nor the one after it."""
        self.write()
        self.writer.flush()
        latest = manifest(self.table)
        commits = RegionManifests(open_store(self.table.uri), latest.region_id)
        for _ in range(KEPT_MANIFESTS):
            latest = commits.commit(latest)

    def tidy(self) -> None:
        """Keep the table small: reads of many generations take long and are not the subject."""
        latest = manifests(self.table.uri).values()
        if any(len(region.flushed_generations) > MOST_GENERATIONS for region in latest):
            merge_all(self.table)
            self.collect()

    def merge(self) -> None:
        """A list of generations from before is wrong over the base from after."""
        self.write()
        self.writer.flush()
        merge_all(self.table)

    def collect_what_is_merged(self) -> None:
        """What was in generations is in the base table alone."""
        self.merge()
        self.collect()

    def flush_after_collecting(self) -> None:
        """What is listed begins with a gap, over the base from before."""
        self.collect_what_is_merged()
        self.write()
        self.writer.flush()

    def collect(self) -> None:
        """What nobody needs."""
        store = open_store(self.table.uri)
        collect(
            self.table,
            after=1,
            store=Remote(store) if self.remote else store,
            sleep=self._wait,
        )

    def _wait(self, seconds: float) -> None:
        self.now += seconds


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
    found = table.get([*KEYS, *range(FIRST_NEW, FIRST_NEW + MOST_WRITES)])
    assert len(found) < len(KEYS) + MOST_WRITES
    return dict(zip(found["id"].to_pylist(), found["val"].to_pylist(), strict=True))


class Follower:
    """The rows that the change feed has led to, or a scan where changes were collected."""

    def __init__(self) -> None:
        self._rows: State = {}
        self._place: Any = None

    def __call__(self, table: mw.Table) -> State:
        end = table.change_offsets()
        try:
            changes = table.changes(after=self._place, until=end).read_all()
        except mw.ChangesCollectedError:
            self._rows = _scan(table)
        else:
            for row in changes.to_pylist():
                self._rows[row["id"]] = row["val"]
        self._place = end
        return dict(self._rows)


CHANGES = [Life.flush_twice, Life.collect_the_wal, Life.collect_what_is_merged]


@pytest.mark.parametrize(
    ("reader_of", "read", "warm"),
    [
        *product([nullcontext, as_another_process], [_scan, _get], [True]),
        (as_another_process, _scan, False),
        (as_another_process, Follower, True),
    ],
)
@pytest.mark.parametrize("change", [*CHANGES, Life.merge, Life.flush_after_collecting])
def test_a_strong_read_is_of_one_state_since_it_began(
    fast_folder: Path,
    change: Callable[[Life], None],
    reader_of: Callable[[], AbstractContextManager[None]],
    read: Callable[[mw.Table], State] | type[Follower],
    warm: bool,
) -> None:
    """The writer is one of this process, whose MemTables are read, or of another, read by its WAL.
    Nothing but the reader asks the store that is watched. A follower of changes that is behind by
    a collection goes on with a scan."""
    read = Follower() if isinstance(read, type) else read
    life = Life(fast_folder)
    table = opened_over(life.table.uri, HookedStore)
    if warm:
        stride = 1 if IS_SOAK else 7
        _read_while(change, life, _read_before(table, life, read), reader_of, read, stride)
    else:
        cold = _opened_cold(life, HookedStore)
        _read_while(change, life, cold, reader_of, read, stride=1 if IS_SOAK else 11)


@pytest.mark.parametrize(
    ("reader_of", "change", "warm", "turned"),
    [
        (*case, turned)
        for number, case in enumerate(
            [
                *product([nullcontext, as_another_process], CHANGES, [True]),
                (as_another_process, Life.collect, True),
                *product([as_another_process], CHANGES, [False]),
            ]
        )
        for turned in (range(6) if IS_SOAK else [(SEED + number) % 6])
    ],
)
def test_whatever_the_order_of_answers_that_were_asked_for_side_by_side(
    fast_folder: Path,
    change: Callable[[Life], None],
    reader_of: Callable[[], AbstractContextManager[None]],
    warm: bool,
    turned: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Protocol rule 15: of "no manifest n + 1", "no entry at the next position" and "manifest n is
    there" each may be true at another time. Here one is put after the other, in each order, and
    what the table comes to meanwhile is collected."""

    def in_turn(call: Callable[[Any], Any], items: Iterable[Any], threads: int) -> list[Any]:
        asked = list(items)
        places = list(permutations(range(len(asked)))) if len(asked) < 4 else [()]
        order = places[turned % len(places)] or sorted(range(len(asked)), reverse=turned % 2 > 0)
        found = {place: call(asked[place]) for place in order}
        return [found[place] for place in range(len(asked))]

    monkeypatch.setattr(concurrent, "map_in_threads", in_turn)
    life = Life(fast_folder, remote=True)

    def by_requests(store: Any) -> HookedStore:
        return HookedStore(Remote(store))

    read = (_scan, _get)[turned % 2]
    if warm:
        table = opened_over(life.table.uri, by_requests)
        object.__setattr__(table.context, "clock", lambda: life.now)
        _read_while(change, life, _read_before(table, life, read), reader_of, read)
    else:
        cold = _opened_cold(life, by_requests)
        _read_while(change, life, cold, reader_of, read, stride=1 if IS_SOAK else 7)


def _opened_cold(life: Life, wrap: Callable[[Any], HookedStore]) -> Callable[[], mw.Table]:
    def opened() -> mw.Table:
        """A handle that knows nothing yet of a base table, a generation and an entry."""
        life.merge()
        life.write()
        life.writer.flush()
        table = opened_over(life.table.uri, wrap)
        object.__setattr__(table.context, "clock", lambda: life.now)
        return table

    return opened


def _read_before(
    table: mw.Table, life: Life, read: Callable[[mw.Table], State]
) -> Callable[[], mw.Table]:
    def read_it() -> mw.Table:
        assert read(table) == life.states[-1]
        return table

    return read_it


def _read_while(
    change: Callable[[Life], None],
    life: Life,
    opened: Callable[[], mw.Table],
    reader_of: Callable[[], AbstractContextManager[None]],
    read: Callable[[mw.Table], State],
    stride: int = 1,
) -> None:
    """Read once for each request of a read, or each `stride`-th one, with the change before and
    after that request. What was written before the read began was not read."""
    both = IS_SOAK or reader_of is nullcontext
    for number, when in product(
        range(1 + SEED % stride, 100, stride), ("before", "after") if both else ("before",)
    ):
        change_once = Between(number, when, partial(change, life))
        with reader_of():
            life.tidy()
            table = opened()
            life.write()
            if change is Life.collect:
                life.come_far()
            begun = len(life.states) - 1
            store = table.context.store
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
