"""Which writer INSERT statements go through, and what they do when it can't go on."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import datafusion
import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import FencedError, ReopenError
from memwal_sql.state import open_writers as live
from memwal_sql.storage.objects.create_once import ATTEMPTS
from memwal_sql.write.result import WriteResult
from memwal_sql.write.table_writer import TableWriter
from tests.model.opened import opened_over
from tests.model.process import as_another_process
from tests.model.writing import session_of, upsert_rows
from tests.write.hooked_store import HookedStore, Outage

SCHEMA = pa.schema({"id": pa.int64(), "a": pa.string(), "c": pa.string()})


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return mw.create_table(tmp_path / "t", SCHEMA, "id")


def _session(table: Any) -> datafusion.SessionContext:
    return session_of("t", table)


def _run(session: datafusion.SessionContext, statement: str) -> list[dict[str, Any]]:
    with mw.memwal_errors():
        found: list[dict[str, Any]] = session.sql(statement).to_pylist()
    return found


def _rename(uri: str, *names: tuple[str, str]) -> None:
    for old, new in names:
        lance.dataset(uri).alter_columns({"path": old, "name": new})


def _swap(uri: str) -> None:
    _rename(uri, ("a", "x"), ("c", "a"), ("x", "c"))


def _drop_and_add(uri: str) -> None:
    lance.dataset(uri).drop_columns(["c"])
    lance.dataset(uri).add_columns(pa.field("c", pa.string()))


@pytest.mark.parametrize("change", [_swap, _drop_and_add])
@pytest.mark.parametrize("same_handle", [True, False])
def test_values_go_to_the_columns_that_have_the_names_now(
    table: Any, change: Callable[[str], None], same_handle: bool
) -> None:
    _run(_session(table), "INSERT INTO t VALUES (1, 'A', 'C')")
    table.merge()  # a column that is in no file would give its id to the next one
    change(table.uri)
    other = table if same_handle else mw.open_table(table.uri)
    session = _session(other)
    before = _run(session, "SELECT a, c FROM t WHERE id = 1")
    _run(session, "INSERT INTO t (id, a, c) VALUES (2, 'to a', 'to c')")
    expected = [{"a": "to a", "c": "to c"}]
    assert _run(session, "SELECT a, c FROM t WHERE id = 2") == expected
    assert _run(session, "SELECT a, c FROM t WHERE id = 1") == before
    assert _run(_session(mw.open_table(table.uri)), "SELECT a, c FROM t WHERE id = 2") == expected


@pytest.mark.parametrize("change", [_swap, _drop_and_add])
def test_a_program_s_writer_with_other_columns_is_an_error_that_names_the_way_out(
    table: Any, change: Callable[[str], None]
) -> None:
    with table.writer() as writer:
        writer.upsert({"id": [1], "a": ["A"], "c": ["C"]})
        writer.flush()
        table.merge()
        change(table.uri)
        session = _session(table)
        insert = "INSERT INTO t (id, a, c) VALUES (2, 'to a', 'to c')"
        with pytest.raises(ReopenError, match="close it, and open a new one"):
            _run(session, insert)
        writer.upsert({"id": [3], "a": ["A"], "c": ["C"]})  # it is as good as before
    _run(session, insert)
    assert _run(session, "SELECT a, c FROM t WHERE id = 2") == [{"a": "to a", "c": "to c"}]


def test_a_table_can_be_queried_right_after_it_was_registered(table: Any) -> None:
    session = _session(table)
    lance.dataset(table.uri).add_columns(pa.field("n", pa.int32()))
    assert _run(session, "SELECT * FROM t") == []
    _rename(table.uri, ("a", "z"))
    with pytest.raises(ReopenError, match="register it again"):
        _run(session, "SELECT * FROM t")
    mw.register(session, "t", table)
    assert _run(session, "SELECT z, n FROM t") == []


def test_threads_can_insert_while_columns_change(table: Any) -> None:
    def insert(thread: int) -> None:
        for number in range(10):
            if thread == 0 and number % 3 == 0:
                lance.dataset(table.uri).add_columns(pa.field(f"n{number}", pa.int32()))
            statement = f"INSERT INTO t (id) VALUES ({100 * thread + number})"
            while True:
                try:
                    session = session_of("t", table, missing="null")
                    _run(session, statement)
                    break
                except ReopenError as error:
                    assert "register it again" in str(error)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(insert, range(4)))
    assert table.scan(["id"]).read_all().num_rows == 40


def test_columns_that_change_before_an_insert_claims_are_told_in_its_words(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, insert_into = _session(table), TableWriter.insert_into

    def late(writer: TableWriter, *arguments: Any) -> WriteResult:
        lance.dataset(table.uri).add_columns(pa.field("n", pa.int32()))
        return insert_into(writer, *arguments)

    monkeypatch.setattr(TableWriter, "insert_into", late)
    with pytest.raises(ReopenError, match="register it again"):
        _run(session, "INSERT INTO t VALUES (1, 'A', 'C')")
    assert table.count_rows() == 0


def test_a_program_s_writer_that_was_fenced_is_not_replaced_silently(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = _session(table)
    with table.writer(turns=False) as writer:
        _run(session, "INSERT INTO t VALUES (1, NULL, NULL)")
        # By another process: this one is told of its own at once.
        monkeypatch.setattr(live, "register", lambda *_: None)
        with mw.open_table(table.uri).writer() as thief:
            thief.upsert({"id": [2]}, missing="null")
        with pytest.raises(FencedError):
            _run(session, "INSERT INTO t VALUES (3, NULL, NULL)")
        del writer


def test_insert_uses_the_writer_that_was_opened_last(table: Any) -> None:
    """An earlier one, fenced without having noticed, made the statement fail."""
    session = _session(table)
    _run(session, "INSERT INTO t VALUES (1, 'A', NULL)")  # opens a writer of the table's own
    with table.writer() as writer:
        writer.upsert({"id": [2], "a": ["B"], "c": [None]})  # which this fences
        _run(session, "INSERT INTO t VALUES (3, 'C', NULL)")
        writer.upsert({"id": [4], "a": ["D"], "c": [None]})
        assert table.get([1, 2, 3, 4])["a"].to_pylist() == ["A", "B", "C", "D"]


@pytest.mark.parametrize("step", ["upsert", "sync"])
def test_an_insert_goes_on_when_the_program_closes_its_writer_meanwhile(
    table: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    session = _session(table)
    writer = table.writer(durable=False)
    work = getattr(mw.TableWriter, step)

    def closed_before(self: Any, *rows: Any) -> Any:
        if self is writer:
            writer.close()
        return work(self, *rows)

    monkeypatch.setattr(mw.TableWriter, step, closed_before)
    _run(session, "INSERT INTO t VALUES (1, NULL, NULL)")
    assert table.get([1]).num_rows == 1


def test_a_comment_on_a_column_changes_no_writer(table: Any) -> None:
    with table.writer() as writer:
        writer.upsert({"id": [1]}, missing="null")
        lance.dataset(table.uri).update_field_metadata({"id": {"comment": "who it is"}})
        session = _session(mw.open_table(table.uri))
        _run(session, "INSERT INTO t VALUES (2, NULL, NULL)")
        assert writer.usable
        assert mw.open_table(table.uri).get([1, 2]).num_rows == 2


@pytest.mark.parametrize("lands", [True, False])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_an_insert_whose_outcome_is_unknown_is_not_made_again(
    table: Any, nth: int, lands: bool, no_pauses: None
) -> None:
    """Claiming, fencing or appending: what somebody else writes next is the newest row."""
    store: list[HookedStore] = []

    def hooked(inner: Any) -> HookedStore:
        store.append(HookedStore(inner))
        return store[-1]

    upsert_rows(mw.open_table(table.uri), {"id": [1], "a": ["before"], "c": ["C"]})
    session = _session(opened_over(table.uri, hooked))

    def meanwhile() -> None:
        upsert_rows(mw.open_table(table.uri), {"id": [1], "a": ["newer"], "c": ["C"]})

    # Each of the attempts is followed by a look.
    outage = Outage(nth, lands=lands, lasts=2 * ATTEMPTS, meanwhile=meanwhile)
    store[0].hook = outage
    with pytest.raises(mw.MemWalError, match=r"unknown|could not find out"):
        _run(session, "INSERT INTO t VALUES (1, 'of the INSERT', 'C'), (2, 'x', 'C')")
    assert outage.over
    landed = lands and nth == 3
    found = {row["id"]: row["a"] for row in table.scan().read_all().to_pylist()}
    assert found == {1: "newer"} | ({2: "x"} if landed else {})
    entries = [row for row in table.wal().to_pylist() if row["num_rows"] == 2]
    assert len(entries) == landed


@pytest.mark.parametrize("statement", ["VALUES (1, 'A', 'C')", "SELECT 1, 'A', 'C'"])
@pytest.mark.parametrize("durable", [True, False, None])
def test_an_insert_is_durable_when_it_returns_whatever_writer_it_is_made_by(
    table: Any, durable: bool | None, statement: str
) -> None:
    """By a program's writer, or, None, by INSERT's own. A buffered writer has written nothing."""
    session = _session(table)
    with ExitStack() as stack:
        if durable is not None:
            options = {"durable": durable, "wal_flush_interval_s": 100.0}
            writer = stack.enter_context(table.writer(**options))
            writer.upsert({"id": [0], "a": ["before"], "c": [None]})
        _run(session, f"INSERT INTO t {statement}")
        with as_another_process():
            found = mw.open_table(table.uri).get([0, 1])["a"].to_pylist()
    assert found == ([] if durable is None else ["before"]) + ["A"]


def test_the_thresholds_of_statements_are_set_for_the_process(tmp_path: Path) -> None:
    table = mw.create_table(tmp_path / "thresholds", SCHEMA, "id")
    with pytest.raises(mw.InvalidCallError, match="writers=7 must be"):
        mw.configure(writers=7)  # type: ignore[arg-type]
    mw.configure(writers=mw.WriterOptions(memtable_entries=2, memtable_age_s=5.0))
    try:
        session = session_of("t", table)
        names = ", ".join("NULL" if field.name != "id" else "{}" for field in SCHEMA)
        for key in range(4):
            session.sql(f"INSERT INTO t VALUES ({names.format(key)})").collect()
        writer = live.live_table_writer(table.context.identity)
        assert writer is not None
        writer.flush_usable()
        assert table.regions()["current_generation"].to_pylist() == [3]
    finally:
        mw.configure(writers=mw.WriterOptions())
        table.close()
