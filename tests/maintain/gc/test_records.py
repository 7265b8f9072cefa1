"""Which records of transactions a collection takes (protocol rule T14)."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import memwal_sql as mw
from memwal_sql.maintain.gc.collector import collect_garbage
from memwal_sql.state.context import TableContext
from memwal_sql.storage import paths
from memwal_sql.storage.objects.open import open_store
from memwal_sql.storage.records.intent import Intent
from memwal_sql.storage.records.table import read_record
from memwal_sql.storage.records.transactions import Part, Transactions
from memwal_sql.storage.wal.log import Wal, encode_fence
from tests.maintain.life import NOW, collect, create, merge_all, rows, values
from tests.model.merging import manifests
from tests.model.process import ProcessKilledError, Switch, _KillableStore, as_another_process
from tests.soak import IS_SOAK
from tests.write.hooked_store import HookedStore

DAY = 24 * 3600.0
WEEK = 7 * DAY


def upsert(table: mw.Table, val: int, *, flush: bool) -> None:
    """Keys of all regions, in one transaction."""
    with table.writer() as writer:
        writer.upsert(rows(0, 9, val), atomic=True)
        if flush:
            writer.flush()


def records(table: mw.Table) -> Transactions:
    return Transactions(open_store(table.uri))


def part(table: mw.Table, place: str = "", ahead: int = 0, upserts: int = 1) -> Part:
    """A part of a transaction in a region of a table, so many positions behind what is flushed."""
    region, manifest = sorted(manifests(table.uri).items())[0]
    record = read_record(open_store(table.uri))
    assert record is not None
    position = manifest.replay_after_wal_entry_position + ahead
    return Part(place, record.incarnation, region, position, 1, upserts)


def test_records_go_when_nobody_needs_them(tmp_path: Path) -> None:
    """Records are a week old; `rounds` lists those that each collection leaves."""
    table, other = create(tmp_path, regions=2), create(str(tmp_path / "other"), regions=2)
    gone = create(str(tmp_path / "gone"), regions=2)
    for each in (table, other, gone):
        upsert(each, 1, flush=True)
        with each.writer() as writer:
            writer.upsert(rows(0, 9, 2))
            writer.flush()  # its entries: the last ones that are flushed, which native code probes
    probed, unflushed = part(table), part(other, "../other", 1)
    (first,) = records(table).ids()
    home = records(table)
    home.commit("probed", [probed])
    home.commit("probed-read", [part(table, upserts=0)])
    home.commit("elsewhere", [part(table, ahead=-2), part(other, "../other", -2)])
    home.commit("elsewhere-unflushed", [part(table, ahead=-2), unflushed])
    home.commit("elsewhere-gone", [part(gone, "../gone", 1)])
    home.commit("lost", [part(table, ahead=5)])
    for transaction in ("aborted", "again", "again~2", "again~3"):
        home.abort(transaction, "a claim")
    home.commit("again~4", [part(table, ahead=-2)])
    table.checkpoint("c")
    upsert(table, 3, flush=False)
    (second,) = set(home.ids()) - everything(first)
    shutil.rmtree(tmp_path / "gone")
    damaged = tmp_path / "t" / home.path("damaged")
    damaged.write_text("{")
    assert values(table) == dict.fromkeys(range(10), 3)
    staying = {"probed", "elsewhere-unflushed", "lost", second, "damaged"}
    chain = ["again", "again~2", "again~3"]
    rounds = [
        (WEEK - 60, everything(first) | {second, "damaged"}),  # entries go here
        (WEEK + 60, staying | {"elsewhere", *chain}),
        (WEEK + 60, staying | {"elsewhere", *chain[:2]}),
        (WEEK + 60, staying | {"elsewhere", *chain[:1]}),
        (WEEK + 60, staying | {"elsewhere"}),
    ]
    for number, (after, expected) in enumerate(rounds):
        collect(table, after=after)
        left = set(home.ids()) | {"damaged"} & {damaged.stem}
        assert left == expected, number
    collect(other, after=WEEK + 60)
    collect(table, after=WEEK + 60)
    assert set(home.ids()) == staying
    assert damaged.exists()
    with as_another_process():
        assert values(mw.open_table(table.uri)) == dict.fromkeys(range(10), 3)


def everything(first: str) -> set[str]:
    return {
        *(first, "probed", "probed-read", "elsewhere", "elsewhere-unflushed", "elsewhere-gone"),
        *("lost", "aborted", "again", "again~2", "again~3", "again~4", "damaged"),
    }


def test_a_checkpoint_keeps_the_records_of_its_entries(tmp_path: Path) -> None:
    """Without the rule (`recEarly` of the model) its rows would be gone."""
    table = create(tmp_path, regions=2)
    upsert(table, 1, flush=False)
    table.checkpoint("c")
    with table.writer() as writer:
        writer.upsert(rows(0, 9, 2))
        writer.flush()
    for _ in range(2):
        collect(table, after=WEEK + 60)
    assert len(records(table).ids()) == 1
    assert values(mw.open_table(table.uri, checkpoint="c")) == dict.fromkeys(range(10), 1)
    table.drop_checkpoint("c")
    for _ in range(2):
        collect(table, after=WEEK + 60)
    assert records(table).ids() == []
    assert values(table) == dict.fromkeys(range(10), 2)


def test_a_region_s_last_rows_keep_their_record(tmp_path: Path) -> None:
    """`recEarly` once more: what is in the log alone, after years."""
    table = create(tmp_path, regions=2)
    upsert(table, 1, flush=False)
    collect(table, after=1000 * DAY)
    with as_another_process():
        assert values(mw.open_table(table.uri)) == dict.fromkeys(range(10), 1)


@pytest.mark.parametrize("verdict", ["committed", "aborted"])
def test_no_record_goes_while_somebody_may_still_put_it(tmp_path: Path, verdict: str) -> None:
    """`recForget` of the model: a coordinator sleeps before its record while a claimant of its
    region puts *aborted*; or another attempt with its id was first."""
    table = create(tmp_path, regions=2)
    upsert(table, 1, flush=True)
    merge_all(table)
    home, parts = records(table), [part(table, ahead=1)]
    if verdict == "committed":
        home.commit("x", [part(table)])
    else:
        home.abort("x", "a claim")
    for _ in range(2):
        collect(table, after=DAY)
    assert home.commit("x", parts).parts != tuple(parts)


@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_a_collector_that_dies_at_any_change_leaves_what_the_next_one_takes(
    tmp_path: Path, before: bool
) -> None:
    """Among garbage of every kind that needs no other clock."""
    table = create(tmp_path, regions=2)
    upsert(table, 1, flush=True)
    merge_all(table)
    for val in range(2, 8):
        upsert(table, val, flush=True)
    region, manifest = sorted(manifests(table.uri).items())[0]
    generations = tmp_path / "t" / paths.region_folder(region)
    flushed = manifest.flushed_generations[0].path
    shutil.copytree(generations / flushed, generations / "0000000a_gen_1")
    table.checkpoint("c")
    table.drop_checkpoint("c")
    home = records(table)
    for transaction in ("x", "x~2", "y"):
        home.abort(transaction, "a claim")
    upsert(table, 9, flush=False)
    rows_now = dict.fromkeys(range(10), 9)
    shutil.copytree(tmp_path / "t", tmp_path / "whole")
    for _ in range(3):
        _collect(str(tmp_path / "whole"))
    alive, change = False, 0
    while not alive:
        change += 1 if IS_SOAK else 3
        uri = str(tmp_path / f"t{change}")
        shutil.copytree(tmp_path / "t", uri)
        switch = Switch()
        switch.kill_at(change, before=before)
        try:
            for _ in range(2):  # of files in bulk, one after the other
                _collect(uri, lambda store, switch=switch: _KillableStore(store, switch))
            alive = True
        except ProcessKilledError:
            pass
        copy = mw.open_table(uri)
        with as_another_process():
            assert values(copy) == rows_now, change
        left = set(records(copy).ids())
        assert "x" in left or "x~2" not in left, change
        for _ in range(3):
            _collect(uri)
        assert _files(uri) == _files(str(tmp_path / "whole")), change
        with as_another_process():
            assert values(mw.open_table(uri)) == rows_now, change
        shutil.rmtree(uri)
    assert change > 5


def _files(uri: str) -> set[str]:
    """What collections leave, but for the names and numbers of their own changes."""
    store = open_store(uri)
    listed = [meta.path for folder in ("_mem_wal", "_memwal_sql") for meta in store.list(folder)]
    changing = ("/manifest/", "/collected/", "/maintenance/", "/publishing/")
    return {path for path in listed if not any(part in path for part in changing)}


def _collect(
    uri: str, wrap: Callable[[Any], Any] = lambda store: store, after: float = WEEK + 60
) -> None:
    context = TableContext(uri, wrap(open_store(uri)), read_record(open_store(uri)))
    collect_garbage(context, older_than=NOW, clock=lambda: time.time() + after)


def test_a_longer_grace_keeps_records_longer(tmp_path: Path) -> None:
    table = create(tmp_path, regions=2)
    records(table).abort("x", "a claim")
    collect(table, after=WEEK + 60, older_than=timedelta(days=10))
    assert records(table).ids() == ["x"]
    collect(table, after=11 * DAY, older_than=timedelta(days=10))
    assert records(table).ids() == []


def test_only_old_records_are_read_and_only_other_tables_are_asked(tmp_path: Path) -> None:
    table, other = create(tmp_path, regions=2), create(str(tmp_path / "other"), regions=2)
    for each in (table, other):
        upsert(each, 1, flush=True)
    home = records(table)
    home.commit("here", [part(table)])
    home.commit("there", [part(other, "../other")])
    calls: list[tuple[str, str]] = []

    def note(operation: str, path: str, call: Callable[[], Any]) -> Any:
        calls.append((operation, path))
        return call()

    def collected(after: float) -> Counter[str]:
        calls.clear()
        _collect(table.uri, lambda store: HookedStore(store, note), after)
        return Counter(f"{name} {path}" for name, path in calls if "transactions" in path)

    folder = paths.RECORD_FOLDER + "/transactions"
    assert collected(WEEK - 60) == {f"list {folder}": 1}
    old = {f"get {home.path(transaction)}": 1 for transaction in home.ids()}
    assert collected(WEEK + 60) == {f"list {folder}": 1, **old}
    assert not [path for name, path in calls if name == "exists" and "/wal/" in path]


def test_intents_without_rows_go_like_entries(tmp_path: Path) -> None:
    """They have the shape of fences, and stop nobody."""
    table = create(tmp_path)
    with table.writer() as writer:
        writer.upsert(rows(0, 2, 1))
    (region, manifest), store = next(iter(manifests(table.uri).items())), open_store(table.uri)
    record = read_record(store)
    assert record is not None
    wal = Wal(store, region)
    for n in range(2):
        intent = Intent(f"t{n}", "", record.incarnation)
        data = encode_fence(writer_epoch=manifest.writer_epoch, intent=intent)
        assert wal.append(max(wal.positions()) + 1, data).landed
        place = Part("", record.incarnation, region, max(wal.positions()), manifest.writer_epoch)
        records(table).commit(f"t{n}", [place])
    with table.writer() as writer:  # a fence at 1, rows at 2, intents at 3 and 4, a fence at 5
        writer.upsert(rows(0, 2, 2))
        writer.upsert(rows(0, 2, 2))
        writer.flush()
    collect(table, after=2 * DAY)
    assert wal.positions() == [1, 5, 7]
    assert len(records(table).ids()) == 2
    collect(table, after=WEEK + 60)
    assert records(table).ids() == []
    assert (tmp_path / "t" / paths.wal_path(region, 5)).exists()
