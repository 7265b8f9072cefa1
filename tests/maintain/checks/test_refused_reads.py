"""A check whose reads are refused does not call a damaged table sound."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from memwal_sql.errors import StoreUnavailableError
from memwal_sql.maintain.checks.findings import Severity
from memwal_sql.maintain.checks.run import Passes
from tests.each import each
from tests.maintain.life import create, flush, rows
from tests.model.faults import Fault, FaultyStore, Kind
from tests.model.opened import opened_over
from tests.soak import IS_SOAK
from tests.write.hooked_store import Call, HookedStore


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
    for nth in range(1, 100, 1 if IS_SOAK else 2):
        fault = Fault("get", Kind.REFUSED, nth)
        with suppress(StoreUnavailableError):
            other = opened_over(table.uri, lambda store, fault=fault: FaultyStore(store, [fault]))
            report = other.check()
            assert not report.ok, (nth, fault.fired)
        if not fault.fired:
            break
        fired += 1
    assert 5 < fired < 99, fired


@each("refuses_last", [True, False])
def test_what_was_seen_once_beside_refused_reads_is_no_damage(
    tmp_path: Path, refuses_last: bool
) -> None:
    """Others collect files during a check; simulations (bank 5000267, jobs 7300004) called that
    damage."""
    table = create(tmp_path)
    with table.writer() as writer:
        for val in (1, 2, 3):
            writer.upsert(rows(0, 9, val))
    (log,) = (tmp_path / "t" / "_mem_wal").glob("*/wal")
    entry = sorted(log.iterdir(), key=lambda entry: int(entry.stem[::-1], 2))[-2]
    refused = 0

    def refuse(operation: str, path: str, call: Call) -> object:
        nonlocal refused
        if (operation, path) == ("list", "_memwal_sql/checkpoints"):  # twice, behind the logs
            refused += 1
            if refused == 2 * (Passes.most - 1):
                entry.unlink()  # the last time looks on
            if refused > 2 * (Passes.most - 1) and not refuses_last:
                return call()
            raise StoreUnavailableError("list is refused")
        return call()

    report = opened_over(table.uri, lambda store: HookedStore(store, refuse)).check()
    assert refused == 2 * Passes.most
    assert not report.ok
    assert all("refused" in one.what for one in report.of(Severity.ERROR)), str(report)
    assert not table.check().ok, "now it is seen each time"
