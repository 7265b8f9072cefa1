"""Writers that are open while others change the columns of the table, and fill them.

A writer that has claimed a region before the change goes on in it: nobody else has written there.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.bulk.rows import RowForm
from tests.each import each
from tests.model.opened import opened_over
from tests.model.waiting import eventually
from tests.soak import SOAK
from tests.write.hooked_store import Call, HookedStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("a", pa.int32()), ("b", pa.int64())])
Change = Callable[[mw.Table], Any]

# What others change, and the row that they write then.
CHANGES: dict[str, tuple[Change, dict[str, Any]]] = {
    "add": (lambda t: t.add_columns(pa.field("p", pa.float64())), {"p": 9.5}),
    "compute": (lambda t: t.add_columns({"p": "a * 2"}), {"p": 9}),
    "widen": (lambda t: t.set_type("a", pa.int64()), {"a": 2**40}),
    "drop and add": (
        lambda t: (t.drop_columns("b"), t.add_columns(pa.field("b", pa.int64()))),
        {"b": 7},
    ),
    "rename": (lambda t: t.rename_column("b", "c"), {"c": 7}),
    "swap": (
        lambda t: (
            t.rename_column("a", "x"),
            t.rename_column("b", "a"),
            t.rename_column("x", "b"),
        ),
        {"a": 5, "b": 6},
    ),
}
STATES: dict[str, Change] = {
    "in the log": lambda _: None,
    "flushed": lambda t: t.flush(),
    "merged": lambda t: (t.flush(), t.merge()),
    "collected": lambda t: (t.flush(), t.merge(), t.collect_garbage(older_than=timedelta(0))),
}
WRITES: dict[str, Callable[[Any], object]] = {
    "upsert": lambda w: w.upsert([{"id": 1, "a": 2, "b": 2}]),
    "partial": lambda w: w.upsert([{"id": 1, "a": 2}]),
    "atomic": lambda w: w.upsert(
        [{"id": 1, "a": 2, "b": 2}, {"id": 2, "a": 2, "b": 2}], atomic=True
    ),
    "when": lambda w: w.upsert([{"id": 1, "a": 2, "b": 2}], when="t.id = s.id"),
    "insert": lambda w: w.insert([{"id": 5, "a": 2, "b": 2}]),
    "insert again": lambda w: w.insert([{"id": 1, "a": 2, "b": 2}]),
    "delete": lambda w: w.delete([1]),
    "delete where": lambda w: w.delete_where("id = 1"),
    "update": lambda w: w.update({"a": "3"}),
    "apply": lambda w: w.apply([{"_op": "upsert", "id": 1, "a": 2, "b": 2}]),
}
STATEMENTS = (
    "INSERT INTO t VALUES (1, 2, 2)",
    "UPDATE t SET a = 3",
    "DELETE FROM t WHERE id = 1",
    "MERGE INTO t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET a = 3",
)


def _rows(uri: str) -> list[dict[str, Any]]:
    return sorted(mw.open_table(uri).to_arrow().to_pylist(), key=lambda row: int(row["id"]))


def _changed(table: mw.Table, change: str, state: str) -> list[dict[str, Any]]:
    """The rows after others have changed the columns and written to them."""
    call, row = CHANGES[change]
    call(table)
    with table.writer() as writer:
        writer.upsert([{"id": 1, **row}])
    STATES[state](table)
    rows = _rows(table.uri)
    assert row.items() <= rows[0].items()
    return rows


# Changes come at all requests in a soak, else at every second one.
_STRIDE = 1 if SOAK > 1 else 2
# All pairs in a soak.
_PAIRS = [(change, "merged") for change in CHANGES] + [("add", state) for state in STATES]


@each("change, state", list(itertools.product(CHANGES, STATES)) if SOAK > 1 else _PAIRS)
def test_no_write_erases_columns_of_others(tmp_path: Path, change: str, state: str) -> None:
    """Whether their rows are in logs, in generations or merged."""
    regions = None if state == "merged" else [mw.bucket("id", 4)]
    table = mw.create_table(str(tmp_path / "t"), SCHEMA, "id", regions=regions)
    with table.writer() as writer:
        writer.upsert([{"id": key, "a": 1, "b": 1} for key in (1, 2)])
    stale = mw.open_table(table.uri)  # of another program
    writers = {name: stale.writer() for name in WRITES}
    calls: dict[str, Callable[[], object]] = {
        name: partial(WRITES[name], writer) for name, writer in writers.items()
    }
    calls |= {text: partial(mw.sql, _session(stale), text) for text in STATEMENTS}
    calls["ctx.sql"] = partial(_plain, _session(stale), STATEMENTS[0])
    with mw.transaction(stale) as begun:
        begun.upsert(stale, [{"id": 1, "a": 2, "b": 2}])
        calls["commit"] = begun.commit
        rows = _changed(table, change, state)
        for name, call in calls.items():
            with pytest.raises(mw.ReopenError):
                call()
                pytest.fail(f"{name} was taken")
            assert _rows(table.uri) == rows, name
    for writer in writers.values():
        writer.close()
    assert mw.open_table(table.uri).check().ok


@each("change, known", [("add", False), ("add", True), ("widen", True)])
def test_a_column_added_between_any_two_requests_of_a_write_stays(
    tmp_path: Path, change: str, known: bool
) -> None:
    """It is filled and merged at once. Where the write is taken, it came before."""
    (name, value), done = next(iter(CHANGES[change][1].items())), False
    nth = 0
    while not done:
        uri, nth, count = str(tmp_path / str(nth)), nth + _STRIDE, itertools.count(1)
        table = mw.create_table(uri, SCHEMA, "id")
        if known:
            with table.writer() as writer:
                writer.upsert([{"id": 1, "a": 1, "b": 1}])

        def hook(operation: str, path: str, call: Call) -> Any:
            if armed and next(count) == nth:  # noqa: B023
                armed.clear()  # noqa: B023
                _changed(table, change, "merged")  # noqa: B023
            return call()

        armed: list[bool] = []
        with opened_over(uri, lambda store: HookedStore(store, hook)).writer() as stale:
            armed.append(True)
            with suppress(mw.ReopenError):
                stale.upsert([{"id": 1, "a": 2, "b": 2}])
            done = bool(armed)
            armed.clear()
        if not done:
            assert _rows(uri)[0][name] == value, nth
    assert nth > 5


@pytest.mark.parametrize("options", [{}, {"turns": False}, {"memtable_rows": 5}])
def test_a_writer_that_holds_its_regions_puts_no_nulls_over_computed_values(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    table = mw.create_table(str(tmp_path / "t"), SCHEMA, "id", regions=[mw.bucket("id", 4)])
    rows = pa.table({"id": range(20), "a": range(20), "b": range(20)}, SCHEMA)
    with table.writer(**options) as writer:
        writer.upsert(rows)
        table.add_columns({"p": "a * 2"})
        with pytest.raises(mw.ReopenError, match=r"was added|took over"):
            writer.upsert(rows)
    assert sorted(table.to_arrow()["p"].to_pylist()) == list(range(0, 40, 2))


@each(
    "change, options, regions",
    [
        ("compute", {}, None),
        ("compute", {"turns": False}, [mw.bucket("id", 4)]),
        ("compute", {"memtable_rows": 40}, [mw.bucket("id", 4)]),
        ("set_type", {}, [mw.bucket("id", 4)]),
    ],
)
def test_columns_change_beside_a_writing_thread_of_the_process(
    tmp_path: Path, change: str, options: dict[str, Any], regions: Any
) -> None:
    """Its call raises nothing, and the thread opens a new writer where it has to: what it writes
    from then on has the new column."""
    table = mw.create_table(str(tmp_path / "t"), SCHEMA, "id", regions=regions)
    rows, ended, errors = iter(range(10**6)), Event(), list[Exception]()
    acknowledged: list[int] = []
    alter, names = {
        "compute": (lambda: table.add_columns({"p": "a * 2"}), ["id", "a", "b", "p"]),
        "set_type": (lambda: table.set_type("b", pa.int64()), ["id", "a", "b"]),
    }[change]

    def write() -> None:
        while not ended.is_set():
            try:
                with table.writer(**options) as writer:
                    while not ended.is_set():
                        keys = list(itertools.islice(rows, 20))
                        writer.upsert(pa.table({"id": keys, "a": pa.array(keys, pa.int32())}))
                        acknowledged.extend(keys)
            except mw.ReopenError as error:
                errors.append(error)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        eventually(lambda: len(acknowledged) >= 100 or writing.done())
        before = list(acknowledged)
        try:
            alter()
            after = len(acknowledged)
            eventually(lambda: len(acknowledged) >= after + 100 or writing.done())
        finally:
            ended.set()
        writing.result()
    found = {row["id"]: row for row in table.to_arrow().to_pylist()}
    assert table.schema.names == names
    assert found.keys() >= set(acknowledged)
    if change == "compute":
        assert all(found[key]["p"] == 2 * key for key in before)
        assert errors, "a writer without the column went on"
    assert table.check().ok


@each(
    "write, known",
    list(itertools.product(["upsert", "publish"], [False, True]))
    if SOAK > 1
    else [("upsert", False), ("publish", True)],
)
def test_computed_values_stay_though_nobody_has_written_to_a_region(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool, write: str
) -> None:
    """They are computed between any two requests of a write, for rows of the base table only."""
    # Another process does not find this one's writers.
    for module in ("columns", "flushing"):
        finds = f"memwal_sql.table.{module}.open_table_writers"
        monkeypatch.setattr(finds, lambda identity: ())
    done, nth = False, 0
    while not done:
        uri, nth, count = str(tmp_path / str(nth)), nth + _STRIDE, itertools.count(1)
        lance.write_dataset(pa.table([[1, 2], [1, 1], [1, 1]], schema=SCHEMA), uri)
        table = mw.enable(uri, "id")
        if known:
            with table.writer() as writer:
                writer.upsert([{"id": 2, "a": 1, "b": 1}])

        def hook(operation: str, path: str, call: Call) -> Any:
            if armed and next(count) == nth:  # noqa: B023
                armed.clear()  # noqa: B023
                table.add_columns({"p": "a * 2"})  # noqa: B023
            return call()

        armed: list[bool] = []
        stale = opened_over(uri, lambda store: HookedStore(store, hook))
        with stale.writer() as writer:
            row, publisher = {"id": 1, "a": 2, "b": 2}, stale.publisher()
            staged = stale.stager("job", RowForm()).stage(
                pa.Table.from_pylist([row], SCHEMA).to_batches()
            )
            armed.append(True)
            with suppress(mw.ReopenError, mw.RetryError):
                writer.upsert([row]) if write == "upsert" else publisher.publish([staged])
            done = bool(armed)
            armed.clear()
        if not done:
            assert _rows(uri)[0]["p"] in (2, 4), nth
    assert nth > 5


def _session(table: mw.Table) -> datafusion.SessionContext:
    session = mw.SessionContext()
    mw.register(session, "t", table)
    return session


def _plain(session: datafusion.SessionContext, statement: str) -> None:
    with mw.memwal_errors():
        datafusion.SessionContext.sql(session, statement).collect()


class _History:
    """A table, and what its rows are by the acknowledged calls: values by key and column. A column
    is known by a number, and its name changes."""

    def __init__(self, uri: str, seed: int) -> None:
        self.random = Random(seed)
        self.numbers = itertools.count()
        self.names = {next(self.numbers): name for name in ("a", "b")}
        regions = self.random.choice([None, [mw.bucket("id", 3)]])
        fields = [(name, pa.int32()) for name in self.names.values()]
        self.table = mw.create_table(uri, pa.schema([("id", pa.int64()), *fields]), "id", regions)
        self.rows: dict[int, dict[int, int | None]] = {}
        self.writers: dict[int, tuple[mw.TableWriter, dict[int, str]]] = {}
        self.sessions: list[tuple[mw.SessionContext, dict[int, str]]] = []

    def step(self) -> None:
        """One call of some program."""
        calls = [self.write] * 8 + [self.store] * 3 + [self.change] * 2 + [self.register]
        self.random.choice(calls)()

    def write(self) -> None:
        place = self.random.randrange(3)
        if place not in self.writers:
            self.writers[place] = mw.open_table(self.table.uri).writer(), dict(self.names)
        writer, columns = self.writers[place]
        most = len(columns) if self.random.random() < 0.6 else 1
        chosen = self.random.sample(list(columns), most)
        whole = len(chosen) == len(columns)
        keys = self.random.sample(range(6), self.random.randint(1, 2))
        new = {key: {n: self.random.randrange(99) for n in chosen} for key in keys}
        rows = [{"id": key} | {columns[n]: v for n, v in row.items()} for key, row in new.items()]
        delete = self.random.random() < 0.1
        try:
            writer.delete(keys) if delete else writer.upsert(rows)
        except mw.ReopenError:
            self.writers.pop(place)[0].close()
            return
        for key, row in new.items():
            before = self.rows.pop(key, {})
            if delete:
                continue
            unknown = {n: before.get(n) for n in self.names if n not in columns}
            assert not any(value is not None for value in unknown.values()), f"erased {unknown}"
            assert whole or columns == self.names, "a row was read without its other columns"
            self.rows[key] = row if whole else before | row

    def store(self) -> None:
        table = mw.open_table(self.table.uri)
        table.flush()
        if self.random.random() < 0.7:
            table.merge()

    def change(self) -> None:
        table, number = mw.open_table(self.table.uri), next(self.numbers)
        some, name = self.random.choice(list(self.names)), f"c{number}"
        match self.random.randrange(5):
            case 0:
                table.add_columns(pa.field(name, pa.int32()))
                self.names[number] = name
            case 1:
                table.add_columns({name: f"{self.names[some]} + 1"})
                self.names[number] = name
                for row in self.rows.values():
                    value = row.get(some)
                    row[number] = None if value is None else value + 1
            case 2:
                table.set_type(self.names[some], pa.int64())
            case 3 if len(self.names) > 1:
                table.drop_columns(self.names.pop(some))
                for row in self.rows.values():
                    row.pop(some, None)
            case _:
                table.rename_column(self.names[some], name)
                self.names[some] = name

    def register(self) -> None:
        session = mw.SessionContext()
        mw.register(session, "t", mw.open_table(self.table.uri))
        self.sessions.append((session, dict(self.names)))

    def check(self) -> None:
        """The rows of a new reader, and of those that were made before."""
        assert self._found(self.table.scan().read_all(), self.names) == self._expected(self.names)
        for session, columns in self.sessions:
            if columns.items() <= self.names.items():
                rows = mw.sql(session, "SELECT * FROM t").to_arrow_table()
                assert rows.schema.names == ["id", *columns.values()]
                assert self._found(rows, columns) == self._expected(columns)
            else:
                with pytest.raises(mw.ReopenError, match=r"was (dropped|added|renamed)"):
                    mw.sql(session, "SELECT * FROM t").to_arrow_table()

    def _expected(self, columns: dict[int, str]) -> dict[int, dict[int, int | None]]:
        return {key: {n: row.get(n) for n in columns} for key, row in self.rows.items()}

    @staticmethod
    def _found(rows: pa.Table, columns: dict[int, str]) -> dict[int, dict[int, int | None]]:
        found = rows.to_pylist()
        return {row["id"]: {n: row[name] for n, name in columns.items()} for row in found}


@each("seed", range(2 * SOAK))
def test_no_history_of_writers_readers_and_columns_loses_a_value(tmp_path: Path, seed: int) -> None:
    history = _History(str(tmp_path / "t"), seed)
    for _ in range(20):
        history.step()
        history.step()
        history.check()
    assert mw.open_table(history.table.uri).check().ok
    for writer, _ in history.writers.values():
        writer.close()
