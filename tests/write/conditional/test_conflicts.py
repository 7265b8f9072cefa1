"""Statements and other writes of the same keys: the first committer wins, no update is lost."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.state.context import TableContext
from memwal_sql.write import commit
from memwal_sql.write import statement as statements
from memwal_sql.write.region_writer import RegionWriter
from tests.model.interrupts import Interrupt, interrupted
from tests.model.racing import race
from tests.soak import IS_SOAK
from tests.write.conditional.committing import after_commits

pytestmark = pytest.mark.slow

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), False), pa.field("n", pa.int64()), pa.field("m", pa.int64())]
)
ADD = {"n": "t.n + s.n"}
KEYS = list(range(8))


class Between:
    """A handle that lets somebody else write after each read of a statement's."""

    def __init__(self, table: mw.Table, then: Callable[[int], None]) -> None:
        self._table = table
        self._then = then
        self.reads: list[int] = []

    def get(self, keys: pa.Table) -> pa.Table:
        return self._read(self._table.get(keys))

    def to_arrow(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
    ) -> pa.Table:
        return self._read(self._table.to_arrow(columns, filter))

    def _read(self, rows: pa.Table) -> pa.Table:
        self.reads.append(rows.num_rows)
        self._then(len(self.reads))
        return rows


@pytest.fixture
def table(uri: str) -> mw.Table:
    table = mw.create_table(uri, SCHEMA, primary_key="id", regions="bucket(id, 3)")
    with table.writer() as writer:
        writer.upsert({"id": KEYS, "n": KEYS, "m": [0] * len(KEYS)})
    return table


@pytest.fixture(params=[True, False], ids=["durable", "buffered"])
def writer(table: mw.Table, request: pytest.FixtureRequest) -> Iterator[mw.TableWriter]:
    with table.writer(durable=request.param) as writer:
        yield writer


def live(table: mw.Table) -> dict[int, tuple[int | None, int | None]]:
    rows = table.to_arrow().to_pylist()
    return {row["id"]: (row["n"], row["m"]) for row in rows}


def between(
    monkeypatch: pytest.MonkeyPatch,
    table: mw.Table,
    writer: mw.TableWriter,
    then: Callable[[int], Any],
) -> Between:
    """The writer's statements read by it from now on."""
    rows = Between(table, then)
    monkeypatch.setattr(writer._resolver, "_rows", rows)
    return rows


STATEMENTS: dict[str, tuple[Callable[[mw.TableWriter], Any], Callable[[int, int], Any]]] = {
    "set": (
        lambda w: w.upsert([{"id": key, "n": 100} for key in KEYS], set=ADD),
        lambda n, m: (n + 100, m),
    ),
    "columns kept": (
        lambda w: w.upsert([{"id": key, "m": 1} for key in KEYS]),
        lambda n, m: (n, 1),
    ),
    "condition": (
        lambda w: w.upsert([{"id": key, "n": 5, "m": 5} for key in KEYS], when="t.n < s.n"),
        lambda n, m: (5, 5) if n < 5 else (n, m),
    ),
    "delete": (lambda w: w.delete(KEYS, when="t.n < 5"), lambda n, m: None if n < 5 else (n, m)),
    "delete where": (
        lambda w: w.delete_where("n < 5"),
        lambda n, m: None if n < 5 else (n, m),
    ),
    "update": (
        lambda w: w.update({"m": "n * 2"}, where="n < 5"),
        lambda n, m: (n, n * 2) if n < 5 else (n, m),
    ),
}


@pytest.mark.parametrize("kind", STATEMENTS)
@pytest.mark.parametrize("flush", [False, True])
def test_what_others_wrote_after_a_statement_read_is_read_again(
    table: mw.Table,
    writer: mw.TableWriter,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    flush: bool,
) -> None:
    """Keys 3 and 6 change between, in the statement's first and second reading; 1 is deleted."""
    statement, outcome = STATEMENTS[kind]

    def then(reads: int) -> None:
        if reads == 1:
            writer.upsert({"id": [3, 6], "n": [30, -6], "m": [0, 0]})
            writer.delete([1])
        if reads == 2:
            writer.upsert({"id": [6], "n": [60], "m": [0]})
        if flush and reads < 3:
            writer.flush()

    rows = between(monkeypatch, table, writer, then)
    statement(writer)
    n = {key: key for key in KEYS if key != 1} | {3: 30, 6: 60}
    after = {key: outcome(value, 0) for key, value in n.items()}
    # A row that began to meet the condition meanwhile is not the statement's any more.
    expected = {key: value for key, value in after.items() if value is not None}
    if kind in ("set", "columns kept", "condition"):  # the deleted key is inserted
        expected[1] = {"set": (100, None), "columns kept": (None, 1), "condition": (5, 5)}[kind]
    assert live(table) == expected
    assert 2 <= len(rows.reads) <= 3
    assert rows.reads[0] >= rows.reads[1] >= rows.reads[-1]  # of conflicts alone


@pytest.mark.parametrize("is_one", [True, False], ids=["transaction", "by region"])
def test_rows_of_all_regions_are_enqueued_though_one_is_taken_over_between_them(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch, is_one: bool
) -> None:
    """Or of none: an error that does not say so would let a statement be computed again over its
    own rows."""
    monkeypatch.setattr(TableContext, "takes_transactions", is_one)
    writer = table.writer()
    writer.upsert([{"id": key, "n": key, "m": 0} for key in KEYS])
    name = "enqueue_intent" if is_one else "enqueue"
    enqueue, enqueued = getattr(RegionWriter, name), []

    def then_taken(self: RegionWriter, *given: Any, **named: Any) -> Any:
        writes = enqueue(self, *given, **named)
        enqueued.append(self)
        for other in writer.region_writers:
            if len(enqueued) == 1 and other is not self:
                started = threading.Thread(target=other.taken_over, args=(99,))
                started.start()
                started.join()  # it does not wait for this statement
        return writes

    with monkeypatch.context() as patched:
        patched.setattr(RegionWriter, name, then_taken)
        with contextlib.suppress(mw.PartlyWrittenError):
            writer.upsert([{"id": key, "n": 100} for key in KEYS], set=ADD)
    assert len(list(writer.region_writers)) > 1
    written = {key: n - key for key, (n, _) in live(mw.open_table(table.uri)).items()}
    assert set(written.values()) <= ({100} if is_one else {0, 100}), written
    with contextlib.suppress(mw.FencedError):
        writer.close()


def test_threads_that_count_lose_no_count(table: mw.Table, writer: mw.TableWriter) -> None:
    """Beside one that replaces whole rows of other keys, and one that flushes."""

    def count(key: int) -> None:
        for _ in range(10):
            writer.upsert([{"id": 0, "n": 1}, {"id": key, "n": 1}, {"id": 7, "n": 1}], set=ADD)

    def replace() -> None:
        for at in range(10):
            writer.upsert({"id": [5, 6], "n": [at, at], "m": [at, at]})
            writer.flush()

    race(*(partial(count, key) for key in (1, 2, 3, 4)), replace)
    counted = {key: (key + 10, 0) for key in (1, 2, 3, 4)}
    assert live(table) == counted | {0: (40, 0), 7: (47, 0), 5: (9, 9), 6: (9, 9)}


def test_of_those_that_insert_a_key_one_wins(table: mw.Table, writer: mw.TableWriter) -> None:
    def insert(number: int) -> int | None:
        try:
            writer.insert([{"id": 100, "n": number, "m": 0}, {"id": 200 + number, "n": 0, "m": 0}])
        except mw.KeysExistError as error:
            assert error.keys == {100}
            return None
        return number

    (winner,) = [one for one in race(*(partial(insert, n) for n in range(6))) if one is not None]
    found = live(table)
    assert found[100] == (winner, 0)
    assert [key for key in found if key >= 200] == [200 + winner]


@pytest.mark.parametrize("deleted", [False, True])
@pytest.mark.parametrize("flush", [False, True])
def test_an_insert_is_serializable(
    table: mw.Table,
    writer: mw.TableWriter,
    monkeypatch: pytest.MonkeyPatch,
    deleted: bool,
    flush: bool,
) -> None:
    """What it reads are the keys that it writes: one that somebody else inserts meanwhile, in one
    of its regions, is there for it, or is not if it was deleted again."""

    def then(reads: int) -> None:
        if reads == 1:
            writer.upsert([{"id": 103, "n": -1, "m": -1}])
            if deleted:
                writer.delete([103])
            if flush:
                writer.flush()

    before = live(table)
    new = {key: (key, 0) for key in range(100, 108)}
    between(monkeypatch, table, writer, then)
    rows = [{"id": key, "n": n, "m": m} for key, (n, m) in new.items()]
    if deleted:
        assert writer.insert(rows).rows == len(new)
        assert live(table) == before | new
    else:
        with pytest.raises(mw.KeysExistError) as raised:
            writer.insert(rows)
        assert raised.value.keys == {103}
        assert live(table) == before | {103: (-1, -1)}


def test_columns_written_by_different_threads_are_all_kept(
    table: mw.Table, writer: mw.TableWriter
) -> None:
    def write(column: str) -> None:
        for value in range(15):
            writer.upsert([{"id": key, column: value} for key in KEYS])

    race(partial(write, "n"), partial(write, "m"))
    assert live(table) == dict.fromkeys(KEYS, (14, 14))


def test_a_row_that_is_computed_again_is_counted_once(
    table: mw.Table, writer: mw.TableWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def then(reads: int) -> None:
        if reads == 1:
            writer.upsert([{"id": 3, "n": 3, "m": 9}])

    between(monkeypatch, table, writer, then)
    given = [{"id": 3, "n": 4, "m": 1}, {"id": 3, "n": 1, "m": 1}, {"id": 5, "n": 1, "m": 1}]
    done = writer.upsert(given, when="t.n < s.n")
    assert (done.rows, done.skipped) == (1, 2)
    assert live(table)[3] == (4, 1)


def test_a_key_that_others_write_each_time_is_a_conflict_and_nothing_is_written(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error has the keys as they were given."""
    fields = [pa.field("day", pa.date32(), False), pa.field("d", pa.decimal128(9, 2), False)]
    schema = pa.schema([*fields, pa.field("n", pa.int64())])
    table = mw.create_table(uri, schema, primary_key=["day", "d"])
    key, other = ({"day": date(2024, 1, 2), "d": Decimal(d)} for d in ("1.50", "2.50"))
    with table.writer() as writer:
        writer.upsert([{**key, "n": 1}, {**other, "n": 1}])
        between(monkeypatch, table, writer, lambda reads: writer.upsert([{**key, "n": -1}]))
        with pytest.raises(mw.ConflictError, match="Decimal") as raised:
            writer.upsert([{**key, "n": 100}, {**other, "n": 100}], set=ADD)
        assert raised.value.keys == {tuple(key.values())}
        assert table.to_arrow().sort_by("d").to_pylist() == [{**key, "n": -1}, {**other, "n": 1}]
    with table.writer() as writer, pytest.raises(mw.KeysExistError) as exist:
        writer.insert([{**key, "n": 1}])
    assert exist.value.keys == {tuple(key.values())}


@pytest.mark.parametrize("isolation", ["snapshot", "serializable"])
def test_a_statement_ends_though_its_keys_are_written_all_the_time(
    table: mw.Table,
    writer: mw.TableWriter,
    monkeypatch: pytest.MonkeyPatch,
    isolation: Any,
) -> None:
    """By others, whose writes wait while it reads for the second time."""
    others: list[threading.Thread] = []

    def then(reads: int) -> None:
        row = {"id": 3, "n": -reads, "m": 0}
        others.append(threading.Thread(target=writer.upsert, args=([row],)))
        others[-1].start()
        others[-1].join(0.5)

    writer.claim_all()
    rows = between(monkeypatch, table, writer, then)
    assert writer.update({"n": "n + 100"}, isolation=isolation).rows == len(KEYS)
    for other in others:
        other.join()
    assert rows.reads == [len(KEYS), len(KEYS) if isolation == "serializable" else 1]
    assert live(table) == {key: (key + 100, 0) for key in KEYS} | {3: (-2, 0)}


def test_a_region_that_somebody_else_has_is_no_matter_for_rows_of_others(table: mw.Table) -> None:
    with table.writer(turns=False) as writer:
        writer.upsert({"id": KEYS, "n": KEYS, "m": [0] * len(KEYS)})
        with mw.open_table(table.uri).writer() as other:
            other.upsert([{"id": 0, "n": 0, "m": 0}])
            of_other = {key for key in KEYS if key in _region_of_0(table)}
            mine = min(set(KEYS) - of_other)
            assert writer.update({"m": "7"}, where=f"id = {mine}").rows == 1
            with pytest.raises(mw.FencedError):
                writer.update({"m": "7"}, where="id = 0")
    assert live(table)[mine] == (mine, 7)
    assert live(table)[0] == (0, 0)


def _region_of_0(table: mw.Table) -> set[int]:
    feed = table.changes().read_all().to_pylist()
    (region,) = {row["_region"] for row in feed if row["id"] == 0}
    return {row["id"] for row in feed if row["_region"] == region}


def test_what_is_enqueued_is_written_and_told_though_the_writer_is_closed(
    table: mw.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = table.writer()
    closing = threading.Thread(target=writer.close)
    after_commits(monkeypatch, closing.start)
    assert writer.upsert([{"id": key, "n": 100} for key in KEYS], set=ADD).rows == len(KEYS)
    closing.join()
    assert live(table) == {key: (key + 100, 0) for key in KEYS}


def test_a_statement_that_is_interrupted_anywhere_holds_nothing(table: mw.Table) -> None:
    """Ctrl-C at some places of it, in a soak at each: other writes and close go on, and no key is
    remembered."""
    with table.writer() as writer:
        for place in count(1, 1 if IS_SOAK else 19):
            writer.upsert([{"id": key, "n": 0, "m": 0} for key in KEYS])
            with contextlib.suppress(Interrupt), interrupted((statements, commit), place):
                writer.upsert([{"id": key, "n": 1} for key in KEYS], set=ADD)
                break
            gc.collect()
            for region in writer.region_writers:
                assert not region.recent._cuts
            done = race(lambda: writer.upsert([{"id": key, "n": 5, "m": 5} for key in KEYS]))
            assert done[0].rows == len(KEYS)
    assert place > 50
