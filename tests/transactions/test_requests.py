"""How many requests transactions take, and that plain writes take no more than before them.

Collections are counted in `tests/maintain/gc/test_records`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any
from unittest.mock import patch

import pytest

import memwal_sql as mw
from memwal_sql import create, drop
from memwal_sql.errors import ConflictError, FencedError, MemWalError
from memwal_sql.write.region_writer import RegionWriter
from tests.each import each
from tests.model.opened import Remote, opened_over
from tests.model.process import Process, as_another_process, forget_writers
from tests.transactions.tables import SCHEMA, after_look, created, rows
from tests.write.hooked_store import Call, HookedStore

N = 4
"""The regions of each table."""
LONGEST_SECONDS = 20

REQUESTS_OF_A_DROP = 7
"""By region: its manifest and its log are looked at, its last entry is read, and a fence is put."""

Requests = Counter[str]
_KINDS = {
    "put_if_absent": "PUT",
    "put": "PUT",
    "get": "GET",
    "get_tail": "GET",
    "get_range": "GET",
    "exists": "HEAD",
    "list": "LIST",
    "list_folders": "LIST",
}


class Client:
    """Two tables on an object store, by handles of one process; `seen` are their requests."""

    def __init__(self, folder: Path, *, turns: bool = True) -> None:
        self.seen: list[str] = []
        self.together: tuple[str, Barrier] | None = None
        self.tables = [self.opened(folder / name) for name in ("accounts", "journal")]
        self.table, self.other = self.tables
        self.writers = [table.writer(turns=turns) for table in self.tables]
        self.writer = self.writers[0]

    def opened(self, folder: Path) -> mw.Table:
        """The table of a folder, which is made where it is not there."""
        if not folder.exists():
            forget_writers(created(str(folder), f"bucket(id, {N})"))
        return opened_over(str(folder), lambda store: HookedStore(Remote(store), self.note))

    def claim(self) -> None:
        """Claim all regions, and ask what is asked once."""
        for table, writer in zip(self.tables, self.writers, strict=True):
            writer.upsert(rows(0))
            table.scan().read_all()

    def note(self, operation: str, path: str, call: Call) -> Any:
        if (kind := _KINDS.get(operation)) is not None:
            request = f"{kind} {_place(path)}"
            self.seen.append(request)
            if self.together is not None and self.together[0] == request:
                self.together[1].wait(LONGEST_SECONDS)
        return call()

    def requests(self, call: Callable[[], object], together: str = "", count: int = 0) -> Requests:
        """The requests of a call; those of one sort must be under way at once, if it is given: none
        of so many is answered before all have come."""
        self.seen.clear()
        self.together = (together, Barrier(count)) if together else None
        try:
            call()
        finally:
            self.together = None
        return Counter(self.seen)


def _place(path: str) -> str:
    for part in ("wal", "manifest", "transactions", "table", "collected"):
        if f"/{part}" in path:
            return part
    return {"_versions": "base", "_mem_wal": "regions"}[path.split("/", maxsplit=1)[0]]


@pytest.fixture
def client(fast_folder: Path) -> Client:
    client = Client(fast_folder)
    client.claim()
    return client


# A statement and a commit ask whether the columns of each table that they write are still the same.
LOOK = Counter({"HEAD base": 1, "GET base": 1})
RECORD = Counter({"PUT transactions": 1})


def intents(count: int) -> Requests:
    return Counter({"PUT wal": count})


def times(count: int, requests: Requests) -> Requests:
    return Counter({name: count * number for name, number in requests.items()})


Stage = Callable[[Client, mw.Transaction], object]


def committing(stage: Stage, **options: Any) -> Callable[[Client], Callable[[], object]]:
    """A transaction of both tables that has staged its rows: only the commit is counted."""

    def prepare(client: Client) -> Callable[[], object]:
        transaction = mw.transaction(*client.tables, **options)
        stage(client, transaction)
        return transaction.commit

    return prepare


def conflicting(client: Client) -> Callable[[], object]:
    commit = committing(lambda c, tx: tx.upsert(c.table, rows(2)))(client)
    client.writer.upsert(rows(1, [0]))

    def call() -> None:
        with pytest.raises(ConflictError):
            commit()

    return call


def both(client: Client, tx: mw.Transaction) -> None:
    for table in client.tables:
        tx.upsert(table, rows(2))


def writes_one_and_reads_n(client: Client, tx: mw.Transaction) -> None:
    tx.upsert(client.table, rows(2, [0]))
    tx.scan(client.other).read_all()


# By name: what is called, its requests, and those that are under way at once.
WRITES: dict[str, tuple[Callable[[Client], Callable[[], object]], Requests, tuple[str, int]]] = {
    "upsert of 1 region": (lambda c: lambda: c.writer.upsert(rows(1, [0])), intents(1), ("", 0)),
    "upsert of n regions": (lambda c: lambda: c.writer.upsert(rows(1)), intents(N), ("PUT wal", N)),
    "statement of 1 region": (
        lambda c: lambda: c.writer.upsert(rows(1, [0]), set={"v": "t.v + s.v"}),
        Counter({"HEAD base": 2, "HEAD manifest": 2}) + intents(1),  # it reads first
        ("", 0),
    ),
    "statement of n regions": (
        lambda c: lambda: c.writer.update({"v": "v + 1"}),
        Counter({"HEAD base": 2, "LIST regions": 1, "HEAD manifest": 2 * N}) + intents(N) + RECORD,
        ("PUT wal", N),
    ),
    "upsert of n regions, atomic": (
        lambda c: lambda: c.writer.upsert(rows(1), atomic=True),
        intents(N) + RECORD,
        ("PUT wal", N),
    ),
    "transaction over n regions of two tables": (
        committing(both),
        times(2, LOOK) + intents(2 * N) + RECORD,
        ("PUT wal", 2 * N),
    ),
    "its looks at the tables": (
        committing(both),
        times(2, LOOK) + intents(2 * N) + RECORD,
        ("HEAD base", 2),
    ),
    "1 region and an actor": (
        committing(lambda c, tx: tx.upsert(c.table, rows(2, [0])), actor="ana"),
        LOOK + intents(1) + RECORD,
        ("", 0),
    ),
    "serializable, n more regions read": (
        committing(writes_one_and_reads_n, isolation="serializable"),
        # The regions of the other table are listed before and after the claims, lest it has got
        # new ones.
        times(2, LOOK) + Counter({"HEAD base": 2, "LIST regions": 2}) + intents(1 + N) + RECORD,
        ("PUT wal", 1 + N),
    ),
    "conflict": (conflicting, LOOK, ("", 0)),
}


def test_requests_of_writes(client: Client) -> None:
    for name, (prepare, expected, together) in WRITES.items():
        assert client.requests(prepare(client), *together) == expected, name


@each("unused", [0, 38])
def test_requests_of_a_transaction_in_sql(client: Client, fast_folder: Path, unused: int) -> None:
    """Each table joins at its first use, when those used before are looked at again. Others that
    the session has registered cost nothing."""
    one = Counter({"HEAD base": 2, "LIST regions": 1, "HEAD manifest": 2 * N})
    session = mw.SessionContext()
    for name, table in zip(("accounts", "journal"), client.tables, strict=True):
        mw.register(session, name, table)
    for number in range(unused):
        mw.create_table(str(fast_folder / str(number)), SCHEMA, "id")
        mw.register(session, f"unused_{number}", client.opened(fast_folder / str(number)))

    def first() -> None:
        mw.sql(session, "SELECT count(*) FROM accounts").collect()

    def second() -> None:
        mw.sql(session, "SELECT count(*) FROM journal, accounts").collect()

    first(), second()
    looked = client.requests(lambda: mw.transaction(*client.tables).rollback())
    assert looked == times(2, one)
    assert not client.requests(lambda: mw.sql(session, "BEGIN"))
    assert client.requests(first) == one
    assert client.requests(second) == times(2, one)
    assert not client.requests(second)
    assert not client.requests(lambda: mw.sql(session, "COMMIT"))

    def change() -> None:
        for text in ("BEGIN", "UPDATE accounts SET v = 1 WHERE id = 1", "COMMIT"):
            mw.sql(session, text)

    assert client.requests(change) == one + LOOK + intents(1) + RECORD


def test_requests_of_a_begin(client: Client) -> None:
    """Tables and regions are looked at together."""
    for name, count in (("HEAD base", 4), ("HEAD manifest", 2 * 2 * N), ("LIST regions", 2)):
        begun = list[mw.Transaction]()
        requests = client.requests(
            lambda: begun.append(mw.transaction(*client.tables)),  # noqa: B023
            name,
            count,
        )
        begun[0].rollback()
        assert requests[name] == count


def test_threads_look_at_the_columns_of_a_table_at_once(client: Client) -> None:
    def commit(key: int) -> None:
        with mw.transaction(client.table) as tx:
            tx.upsert(client.table, rows(2, [key]))

    def call() -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(commit, (0, 1)))

    assert client.requests(call, "GET base", 2)["GET base"] == 2


def test_a_begin_waits_for_all_regions_at_once(client: Client) -> None:
    steps = list[str]()

    def noted(name: str) -> Any:
        step = getattr(RegionWriter, name)

        def call(writer: RegionWriter, *given: Any) -> Any:
            steps.append(name)
            return step(writer, *given)

        return patch.object(RegionWriter, name, call)

    with noted("begin_cut"), noted("reach"):
        mw.transaction(*client.tables).rollback()
    assert steps == ["begin_cut"] * 2 * N + ["reach"] * 2 * N


def test_requests_of_an_abort_in_the_middle(fast_folder: Path) -> None:
    """Others have taken a region over: the intents of the other ones have landed. A record says so
    to readers, who would ask again otherwise."""
    client = Client(fast_folder, turns=False)
    client.claim()
    forget_writers(client.table.uri)
    with mw.open_table(client.table.uri).writer(turns=False) as other:
        other.upsert(rows(1, [0]))

    def call() -> None:
        with pytest.raises(FencedError):
            client.writer.upsert(rows(1), atomic=True)

    fence = Counter({"GET wal": 1})
    assert client.requests(call, "PUT wal", N) == intents(N) + fence + RECORD


def test_requests_of_strong_reads(client: Client, fast_folder: Path) -> None:
    """In the writer's process, and elsewhere while nothing is new, they are those of plain rows;
    elsewhere each new transaction is asked for once, whichever regions it has written."""
    reader = Client(fast_folder)

    def own() -> None:
        client.table.scan().read_all()

    def elsewhere() -> None:
        with as_another_process():
            assert set(reader.table.to_arrow()["v"].to_pylist()) == {value}

    value = 0
    elsewhere(), elsewhere(), own()
    counts: dict[bool, list[Requests]] = {}
    for atomic in (False, True):
        counts[atomic] = []
        for new in (1, 3):
            for value in range(new):
                client.writer.upsert(rows(value), atomic=atomic)
            client.requests(own)
            together = ("GET transactions", new) if atomic else ("", 0)
            counts[atomic] += [
                client.requests(own),
                reader.requests(elsewhere, *together) - Counter({"GET transactions": new}),
                reader.requests(elsewhere),
            ]
            assert reader.seen.count("GET transactions") == 0
    assert counts[True] == counts[False]


@pytest.mark.parametrize("flushes", [False, True])
def test_requests_of_a_read_that_is_overtaken(fast_folder: Path, flushes: bool) -> None:
    """A transaction comes between the first region and the others. The tails of these are cut, at
    the price of its record; where they were flushed, all regions are looked at again, twice."""
    requests: dict[bool, Requests] = {}
    looks: dict[bool, int] = {}
    for atomic in (False, True):
        client = Client(fast_folder / str(atomic))
        client.claim()
        reader = Client(fast_folder / str(atomic))
        table = opened_over(client.table.uri, partial(HookedStore, hook=reader.note))

        def write(client: Client = client, atomic: bool = atomic) -> None:
            client.writer.upsert(rows(1), atomic=atomic)
            if flushes:
                client.writer.flush()

        with as_another_process():
            for _ in range(3):
                table.to_arrow()
            with after_look(1, write) as looked_at:
                requests[atomic] = reader.requests(table.to_arrow)
        looks[atomic] = len(looked_at) // N
    if flushes:
        assert looks == {False: 1, True: 3}
    else:
        assert looks == {False: 1, True: 1}
        assert requests[True] - requests[False] == Counter({"GET transactions": 1})


def test_requests_of_a_claim(fast_folder: Path) -> None:
    """One for each transaction above the manifest. Where nobody has decided over the last one,
    what is behind it is read before and behind the fence, entry and record are read again, and the
    verdict is put."""
    client = Client(fast_folder)
    uri = client.table.uri

    def claim() -> Requests:
        forget_writers(uri)
        claimant = Client(fast_folder, turns=False)
        return claimant.requests(lambda: claimant.writer.upsert(rows(1, [0])))

    def write(count: int, *, atomic: bool) -> None:
        forget_writers(uri)
        with mw.open_table(uri).writer(turns=False) as writer:
            writer.upsert(rows(0))
            writer.flush()
            for _ in range(count):
                writer.upsert(rows(1), atomic=atomic)

    def leave_undecided() -> None:
        forget_writers(uri)
        process = Process(uri)
        writer = process.table.writer(turns=False)
        writer.upsert(rows(0))
        writer.flush()
        process.switch.kill_at(N + 1, before=True)
        with suppress(MemWalError, OSError):
            writer.upsert(rows(1), atomic=True)
        process.kill()

    plain = []
    for count in (1, 3):
        write(count, atomic=False)
        plain.append(claim())
        write(count, atomic=True)
        assert claim() - plain[-1] == Counter({"GET transactions": count})
    leave_undecided()
    again = Counter({"GET wal": 4, "GET transactions": 2})
    assert claim() - plain[0] == again + RECORD
    assert "transactions" not in str(plain)


def test_requests_of_history(client: Client) -> None:
    for _ in range(3):
        client.writer.upsert(rows(1), atomic=True)
    requests = client.requests(lambda: mw.history(client.table), "GET transactions", 3)
    assert requests == Counter({"LIST transactions": 1, "GET transactions": 3})


def test_a_drop_replays_no_log(tmp_path: Path) -> None:
    """However many entries there are: only intents may stand behind one that is undecided."""
    counts, open_store = list[int](), drop.open_store
    for regions in (1, 8):
        uri, calls = created(str(tmp_path / f"{regions}"), f"bucket(id, {regions})"), list[str]()
        with mw.open_table(uri).writer() as writer:
            for value in range(5):
                writer.upsert(rows(value))
        forget_writers(uri)

        def note(operation: str, _: str, call: Call, calls: list[str] = calls) -> Any:
            calls.append(operation)
            return call()

        with (
            patch.object(drop, "open_store", lambda *a: HookedStore(open_store(*a), note)),
            patch.object(create, "open_store", lambda *a: HookedStore(open_store(*a), note)),
        ):
            mw.drop_table(uri)
        counts.append(len(calls))
    assert counts[1] - counts[0] <= 7 * REQUESTS_OF_A_DROP, counts
