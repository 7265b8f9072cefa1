"""Several writers at once, and a writer that sleeps while its successor works (protocol rules 3
to 8 and 11)."""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import memwal_sql as mw
from memwal_sql.errors import MemWalError
from tests.crash.racer import write_for_a_while
from tests.crash.script import SCHEMA, State, Write, base_rows, base_state, read
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.merging import manifests
from tests.model.opened import opened_over
from tests.model.process import as_another_process
from tests.soak import IS_SOAK, usual


@pytest.mark.parametrize("racers", usual([4, 2, 8], 1))
def test_what_racing_writers_were_told_is_written_is_there(
    context: Any, tmp_path: Path, racers: int
) -> None:
    """They create the same regions, claim them from each other, and flush."""
    uri = str(tmp_path / "table")
    key = ["id", "op"]
    mw.create_table(uri, SCHEMA, primary_key=key, regions=[mw.expression("col0 % 2", "id")])
    links, processes = [], []
    start = context.Event()
    seconds = 1.5 if IS_SOAK else 0.7
    for number in range(racers):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=write_for_a_while, args=(uri, number, seconds, start, theirs)
        )
        process.start()
        theirs.close()
        links.append(ours)
        processes.append(process)
    start.set()
    acknowledged: set[tuple[int, int]] = set()
    unknown: set[tuple[int, int]] = set()
    for link, process in zip(links, processes, strict=True):
        told, failed = link.recv()
        acknowledged.update(told)
        unknown.update(failed)
        process.join()
        assert process.exitcode == 0
    rows = mw.open_table(uri).scan().read_all()
    found = list(zip(rows["id"].to_pylist(), rows["op"].to_pylist(), strict=True))
    assert len(found) == len(set(found)), "a row is there twice"
    assert acknowledged <= set(found) <= acknowledged | unknown
    assert acknowledged
    values = [region.values for region in mw.open_table(uri).snapshot("strong").regions]
    assert len(values) == len({str(value) for value in values}) == len(manifests(uri)) == 2


def _read(uri: str) -> State:
    with as_another_process():
        return read(mw.open_table(uri))


@pytest.mark.parametrize("kind", [Kind.PAUSE, Kind.PAUSE_AFTER], ids=["before", "after"])
def test_a_writer_paused_at_any_change_while_its_successor_flushes(
    tmp_path: Path, kind: Kind
) -> None:
    template = tmp_path / "template"
    lance.write_dataset(base_rows(), str(template))
    mw.enable(str(template), primary_key="id")
    nth = 0
    while True:
        nth += 1
        uri = str(tmp_path / f"table{nth}")
        shutil.copytree(template, uri)
        fault = Fault("put_if_absent", kind, nth)
        if not _pause_and_succeed(uri, fault):
            assert nth > 5
            return
        shutil.rmtree(uri)


def _pause_and_succeed(uri: str, fault: Fault) -> bool:
    """Play both writers; False when the first never came to the fault."""
    table = opened_over(uri, lambda store: FaultyStore(store, [fault]))
    told: list[Write] = []
    tried = [
        Write(1, "upsert", (0, 1)),
        Write(2, "upsert", (1, 2)),
        Write(3, "flush"),
        Write(4, "upsert", (2, 3)),
    ]
    done = threading.Event()

    def first() -> None:
        with suppress(MemWalError), table.writer(flush_attempts=1, turns=False) as writer:
            for write in tried:
                if write.kind == "flush":
                    writer.flush()
                else:
                    writer.upsert(write.rows())
                told.append(write)
        done.set()

    thread = threading.Thread(target=first)
    thread.start()
    while not (fault.paused.is_set() or done.is_set()):
        time.sleep(0.001)
    if done.is_set():
        thread.join()
        return False
    told_before = len(told)
    after = Write(50, "upsert", (3, 9))
    with mw.open_table(uri).writer() as second:
        second.upsert(after.rows())
        before_flush = _read(uri)
        second.flush()
        assert _read(uri) == before_flush
        fault.resume.set()
        thread.join(30)
        states = [base_state()]
        for write in tried:
            states.append(write.apply(states[-1]))
        expected = before_flush
        if told_before == 0 and len(told) == len(tried):
            # It had not claimed the region yet, and took it over in its turn.
            for write in tried:
                expected = write.apply(expected)
        else:
            assert len(told) <= told_before + 1
        assert _read(uri) == expected
        # All that it was told is there, and at most the write that was under way besides.
        assert before_flush in [after.apply(s) for s in states[told_before : told_before + 2]]
    assert _read(uri) == expected
    schema = pa.schema([SCHEMA.field("id")])
    with mw.open_table(uri).writer() as third:
        third.delete(pa.table({"id": [9]}, schema=schema))
    assert _read(uri) == {k: v for k, v in expected.items() if k != 9}
    return True
