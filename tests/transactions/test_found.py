"""What `wal()`, `changes()` and `check()` show of transactions."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

import memwal_sql as mw
from memwal_sql.maintain.checks.findings import Severity
from memwal_sql.state.replay import Replay
from memwal_sql.storage import paths
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.records.table import read_record
from memwal_sql.storage.records.transactions import Part, Transactions
from memwal_sql.storage.wal.log import Wal, encode_fence
from tests.cli.test_cli import call
from tests.interop.native import native_writer
from tests.maintain.life import create, rows
from tests.model.merging import manifests
from tests.model.process import as_another_process
from tests.transactions.open_intents import commit, leave_intents


@pytest.fixture
def table(tmp_path: Path) -> mw.Table:
    return create(tmp_path, regions=2)


def upsert(table: mw.Table, val: int, *, atomic: bool = False, flush: bool = False) -> None:
    with table.writer() as writer:
        writer.upsert(rows(0, 9, val), atomic=atomic)
        if flush:
            writer.flush()


def put_read(table: mw.Table, transaction: str) -> None:
    """An intent without rows in every region, as a transaction leaves it that only reads it."""
    store, record = open_store(table.uri), read_record(open_store(table.uri))
    assert record is not None
    for region, manifest in manifests(table.uri).items():
        wal = Wal(store, region)
        intent = Intent(transaction, "", record.incarnation)
        data = encode_fence(writer_epoch=manifest.writer_epoch, intent=intent)
        assert wal.append(max(wal.positions()) + 1, data).landed
    commit(table.uri, transaction)


def shown(table: mw.Table) -> Counter[tuple[str, str | None, str | None]]:
    entries = mw.open_table(table.uri).wal().to_pylist()
    return Counter((e["kind"], e["transaction"], e["verdict"]) for e in entries)


def test_the_log_shows_transactions_and_their_verdicts(table: mw.Table) -> None:
    upsert(table, 1, atomic=True)
    (first,) = Transactions(open_store(table.uri)).ids()
    put_read(table, "t-read")
    expected = Counter(
        {
            ("fence", None, None): 2,
            ("rows", first, "committed"): 2,
            ("read", "t-read", "committed"): 2,
        }
    )
    assert shown(table) == expected
    lost = leave_intents(table.uri, 9)
    expected += Counter(
        {
            ("fence", None, None): 2,
            ("rows", None, None): 2,
            ("rows", lost, "undecided"): 2,
        }
    )
    assert shown(table) == expected
    upsert(table, 2, flush=True)
    expected -= Counter({("rows", lost, "undecided"): 2})
    expected += Counter(
        {
            ("fence", None, None): 2,
            ("rows", None, None): 2,
            ("rows", lost, "aborted"): 2,
        }
    )
    assert shown(table) == expected
    # The record of one that was given up may be gone before its entry.
    open_store(table.uri).delete([Transactions(open_store(table.uri)).path(lost)])
    assert shown(table) == expected
    assert '"undecided"' not in call("wal", table.uri, "--output", "json")


@pytest.mark.parametrize("verdict", ["committed", "aborted"])
def test_a_feed_ends_before_what_is_undecided_and_goes_on(table: mw.Table, verdict: str) -> None:
    upsert(table, 1, atomic=True)
    (first,) = Transactions(open_store(table.uri)).ids()

    def read(places: object) -> list[tuple[int, str | None]]:
        changes = mw.open_table(table.uri).changes(after=places).read_all()
        return sorted(
            zip(changes["val"].to_pylist(), changes["_transaction"].to_pylist(), strict=True),
            key=str,
        )

    lost = leave_intents(table.uri, 9)
    before = [*[(0, None)] * 10, *[(1, first)] * 10]
    with as_another_process():
        assert read(None) == before
        follower = mw.open_table(table.uri)
        places = follower.change_offsets()
        assert read(places) == []
        assert call("tail", table.uri, "--after", json.dumps(places)) == ""
    if verdict == "committed":
        commit(table.uri, lost)
    upsert(table, 2)
    with as_another_process():
        after = [(9, lost)] * 10 if verdict == "committed" else []
        assert read(places) == [*[(2, None)] * 10, *after]
        assert read(None) == [*before[:10], *before[10:], *[(2, None)] * 10, *after]
        assert follower.changes(after=places).read_all().num_rows == 10 + len(after)
        lines = call("tail", table.uri).splitlines()
        assert sum(f"_transaction={lost}" in line for line in lines) == len(after)
        assert sum("_transaction=" in line for line in lines) == 10 + len(after)


# Checks

Damage = Callable[[mw.Table], None]
DAMAGES: list[tuple[Damage, str]] = []


def damages(text: str) -> Callable[[Damage], Damage]:
    def register(damage: Damage) -> Damage:
        DAMAGES.append((damage, text))
        return damage

    return register


def record_of_one(table: mw.Table) -> str:
    home = Transactions(open_store(table.uri))
    (transaction,) = home.ids()
    return home.path(transaction)


@damages("can't be read: _memwal_sql/transactions/")
def cut_record(table: mw.Table) -> None:
    upsert(table, 1, atomic=True)
    (Path(table.uri) / record_of_one(table)).write_text("{")


@damages("was committed, as a later entry says, but its record is missing")
def lost_record(table: mw.Table) -> None:
    upsert(table, 1, atomic=True)
    upsert(table, 2)
    open_store(table.uri).delete([record_of_one(table)])


@damages("has no record, though the region was claimed, and written, since: its rows are left out")
def lost_record_of_an_older_version(table: mw.Table) -> None:
    """No entry says what became of those before it."""
    with patch.object(Replay, "_note", lambda *_: None):
        lost_record(table)


@damages("is committed, but its entry at position 2 of region")
def lost_part(table: mw.Table) -> None:
    upsert(table, 1, atomic=True)
    region = next(iter(manifests(table.uri)))
    open_store(table.uri).delete([paths.wal_path(region, 2)])


@damages("of ../other is missing, and was not flushed")
def lost_part_of_another_table(table: mw.Table) -> None:
    other = create(str(Path(table.uri).parent / "other"), regions=2)
    upsert(other, 1)
    record = read_record(open_store(other.uri))
    assert record is not None
    region = next(iter(manifests(other.uri)))
    part = Part("../other", record.incarnation, region, 7, 1, 1)
    Transactions(open_store(table.uri)).commit("x", [part])


@damages("was not committed, but native code has flushed its 6 rows")
def flushed_by_native_code(table: mw.Table) -> None:
    lost = leave_intents(table.uri, 9)
    claim_natively(table)
    Transactions(open_store(table.uri)).abort(lost, "a test")


def claim_natively(table: mw.Table) -> None:
    """Native code replays the logs, intents too, and flushes them when it closes."""
    for region in manifests(table.uri):
        wal = Wal(open_store(table.uri), region)
        entries = [wal.read(position) for position in wal.positions()]
        batches = [entry.batch for entry in entries if entry and entry.batch]
        with native_writer(table.uri, region) as writer:
            writer.put(batches[0].drop_columns("_tombstone"))


@pytest.mark.parametrize(("damage", "text"), DAMAGES, ids=[d[0].__name__ for d in DAMAGES])
def test_damage_is_found(table: mw.Table, damage: Damage, text: str) -> None:
    damage(table)
    report = mw.open_table(table.uri).check()
    found = [one for one in report if one.check == "transactions" and text in one.what]
    assert found, str(report)
    assert {one.severity for one in found} == {Severity.ERROR}
    assert all(one.where and one.remedy for one in found)


def test_what_is_sound_is_no_finding(table: mw.Table) -> None:
    """Committed, aborted, given up, undecided, and undecided by a claimant that died."""

    def errors() -> list[str]:
        findings = mw.open_table(table.uri).check()
        return [f.what for f in findings if f.severity is not Severity.INFO]

    upsert(table, 1, atomic=True, flush=True)
    upsert(table, 2, atomic=True)
    leave_intents(table.uri, 9)
    upsert(table, 3, flush=True)
    leave_intents(table.uri, 9)
    assert errors() == []
    for region, manifest in manifests(table.uri).items():  # a claim that got no further
        wal = Wal(open_store(table.uri), region)
        data = encode_fence(writer_epoch=manifest.writer_epoch)
        assert wal.append(max(wal.positions()) + 1, data).landed
    assert errors() == []
    upsert(table, 4, flush=True)
    claim_natively(table)
    assert errors() == []
