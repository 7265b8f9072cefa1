"""A check whose reads are refused does not call a damaged table sound."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from memwal_sql.errors import StoreUnavailableError
from tests.maintain.life import create, flush, rows
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.opened import opened_over


def test_each_object_that_cannot_be_read_once_is_told(tmp_path: Path) -> None:
    table = create(tmp_path)
    flush(table, rows(0, 9, 1))
    with table.writer() as writer:
        for val in (2, 3, 4):
            writer.upsert(rows(0, 9, val))
    (log,) = (tmp_path / "t" / "_mem_wal").glob("*/wal")
    entries = sorted(log.iterdir(), key=lambda entry: int(entry.stem[::-1], 2))
    entries[-2].unlink()  # another entry is behind it
    fired = 0
    for nth in range(1, 100):
        fault = Fault("get", Kind.REFUSED, nth)
        with suppress(StoreUnavailableError):
            other = opened_over(table.uri, lambda store, fault=fault: FaultyStore(store, [fault]))
            report = other.check()
            assert not report.ok, (nth, fault.fired)
        if not fault.fired:
            break
        fired += 1
    assert 5 < fired < 99, fired
