"""Ctrl-C, or any other exception that comes from outside, at every step of a write or a lookup."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import memwal_sql as mw
from exec_nodes.base import threads
from exec_nodes.keys.hash_index import KeyIndex
from memwal_sql.state.memtable import MemTable
from memwal_sql.state.replay import Replay, ReplayedMemTable
from memwal_sql.write import flusher, generations, group_commit
from memwal_sql.write.flusher import RegionFlusher
from memwal_sql.write.options import PARALLEL_REGIONS
from memwal_sql.write.wal_writer import WalWriter
from tests.model.interrupts import Interrupt, at_line
from tests.model.process import as_another_process
from tests.model.waiting import reached
from tests.soak import IS_SOAK

SCHEMA = pa.schema([pa.field("id", pa.int64(), False), pa.field("v", pa.int64())])


def rows(start: int, version: int) -> pa.Table:
    ids = [*range(start, start + 4), start]  # a key twice: its last row counts
    return pa.table({"id": ids, "v": [version] * 4 + [version + 1]}, schema=SCHEMA)


def interrupt() -> None:
    raise Interrupt


def steps(module: Any, make: Callable[[], Callable[[], object]]) -> Iterator[Callable[[], bool]]:
    """For each line that the work passes, or every second one, something that does the work and is
    interrupted there."""
    step = 0
    finished = False
    while not finished:
        step += 1 if IS_SOAK else 2
        work = make()

        def run(work: Callable[[], object] = work, step: int = step) -> bool:
            nonlocal finished
            try:
                with at_line(module, step, interrupt):
                    work()
            except Interrupt:
                return True
            finished = True
            return False

        yield run
    assert step > 5


@pytest.mark.slow
@pytest.mark.parametrize("durable", [True, False])
def test_a_write_that_is_interrupted_anywhere_loses_nothing_and_blocks_nobody(
    tmp_path: Path, durable: bool
) -> None:
    mw.create_table(tmp_path / "t", SCHEMA, "id")
    table = mw.open_table(tmp_path / "t")
    writers: list[mw.TableWriter] = []

    def make() -> Callable[[], object]:
        writers.append(table.writer(durable=durable))
        writers[-1].upsert(rows(0, len(writers) * 10))
        return lambda: writers[-1].upsert(rows(2, len(writers) * 10 + 5))

    for run in steps(group_commit, make):
        was_interrupted = run()
        writer, version = writers[-1], len(writers) * 10
        try:
            writer.upsert(rows(100, version))
            written = True
        except mw.ReopenError:
            written = False
        try:
            writer.close()
        except mw.ReopenError:
            assert not durable
            continue  # what was buffered is lost, and it is said
        found = {row["id"]: row["v"] for row in table.scan().read_all().to_pylist()}
        assert found[0] == version + 1
        assert found[1] == version
        second = {key: found[key] for key in (2, 3, 4, 5) if key in found}
        whole = {2: version + 6, 3: version + 5, 4: version + 5, 5: version + 5}
        assert second == whole or (was_interrupted and second[2] == second[3] == version)
        assert not written or found[100] == version + 1
        assert table.get([100])["id"].to_pylist() == ([100] if 100 in found else [])


@pytest.mark.parametrize("module", [generations, flusher], ids=["generations", "flusher"])
def test_a_flush_that_is_interrupted_anywhere_is_made_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any
) -> None:
    """And what is flushed by then grows no more."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    writers: list[mw.TableWriter] = []
    submitted: list[tuple[MemTable, int]] = []
    submit = RegionFlusher.submit

    def noted(self: RegionFlusher, sealed: ReplayedMemTable) -> None:
        submitted.append((sealed.memtable, sealed.memtable.rows))
        submit(self, sealed)

    monkeypatch.setattr(RegionFlusher, "submit", noted)

    def make() -> Callable[[], object]:
        for before in writers:
            before.close()
        writers.append(table.writer())
        writers[-1].upsert(rows(0, len(writers)))
        return writers[-1].flush

    for run in steps(module, make):
        run()
        version = len(writers)
        for start in (100, 200):
            writers[-1].upsert(rows(start, version))
        writers[-1].flush()
        assert all(memtable.rows == count for memtable, count in submitted)
        found = {row["id"]: row["v"] for row in _flushed(table)}
        assert [found[key] for key in (0, 3, 100, 200)] == [version + one for one in (1, 0, 1, 1)]
    writers[-1].close()
    assert table.check().ok


@pytest.mark.parametrize("step", [(KeyIndex, "append"), (MemTable, "append"), (Replay, "add")])
def test_a_lookup_in_the_log_that_is_interrupted_leaves_the_next_ones_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[type, str]
) -> None:
    """After the keys are indexed, which takes a while where there are many, and before the entry is
    known to have been read."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id")
    owner, name = step
    call, left = getattr(owner, name), [1]

    def interrupted_once(self: Any, *args: Any, **kwargs: Any) -> None:
        call(self, *args, **kwargs)
        left[0] -= 1
        if left[0] == 0:
            raise Interrupt

    with table.writer() as writer, as_another_process():
        reader = mw.open_table(tmp_path / "t")

        def values() -> list[int]:
            found: list[int] = reader.get([0, 3, 100])["v"].to_pylist()
            return found

        writer.upsert(rows(0, 10))
        assert values() == [11, 10]
        writer.upsert(rows(0, 20))
        with monkeypatch.context() as patched, pytest.raises(Interrupt):
            patched.setattr(owner, name, interrupted_once)
            values()
        for version in (30, 40):
            writer.upsert(rows(100, version))
            assert values() == [21, 20, version + 1]


def _flushed(table: mw.Table) -> list[dict[str, int]]:
    found: list[dict[str, int]] = table.scan(consistency="manifest").read_all().to_pylist()
    return found


@pytest.mark.slow
def test_nothing_of_an_interrupted_write_to_many_regions_lands_after_a_later_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C comes while as many regions are written as can be at once, and others wait."""
    table = mw.create_table(tmp_path / "t", SCHEMA, "id", regions=[mw.bucket("id", 64)])
    ids = list(range(600))
    append = WalWriter.append
    begun: list[object] = []
    main = threading.main_thread()
    go_on = threading.Event()

    def interrupting(self: WalWriter, *args: Any, **kwargs: Any) -> int:
        begun.append(self)
        if len(begun) == PARALLEL_REGIONS:
            signal.pthread_kill(main.ident or 0, signal.SIGINT)  # interrupt_main wakes nobody
        reached(go_on)
        return append(self, *args, **kwargs)

    def waiting(_: float) -> None:
        go_on.set()

    with table.writer() as writer:
        writer.upsert({"id": ids, "v": [0] * len(ids)})
        with monkeypatch.context() as interruption:
            interruption.setattr(WalWriter, "append", interrupting)
            interruption.setattr(threads, "sleep", waiting)
            try:
                with pytest.raises(KeyboardInterrupt):
                    writer.upsert({"id": ids, "v": [1] * len(ids)})
            finally:
                go_on.set()
        assert len(begun) == PARALLEL_REGIONS
        for one in ids[:80]:
            writer.upsert({"id": [one], "v": [2]})
    found = {row["id"]: row["v"] for row in mw.open_table(table.uri).scan().read_all().to_pylist()}
    assert {found[one] for one in ids[:80]} == {2}
    assert {found[one] for one in ids[80:]} == {0, 1}
